"""The one driver that runs a schedule: blocks from the table onto the wire, every received byte
verified.

Runs in a rank's Task and steps its loops by `drive`. A wrong block is counted at every rank that
receives it, and travels on as it came. It must not know which network it runs on, nor processes.
"""

import asyncio
from collections.abc import Awaitable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Protocol

from emucoll.collectives.rings import HEADER_BYTES
from emucoll.collectives.schedule import (
    NEXT,
    PREV,
    Line,
    Part,
    Schedule,
    Transfer,
    both_ways,
)
from emucoll.collectives.table import RecordTable, WrongBlocks
from emucoll.errors import ConnectionClosed
from emucoll.net.base import READY, Buffer, Channel, drive, drive_all
from emucoll.rank import Rank
from emucoll.trace import Metered
from emucoll.wrong import Wrong

CHUNK_BYTES = 256 * 1024
"""The most that a rank reads at once where blocks run together. 64 KiB let kernel TCP memory pile
up to its pressure threshold, windows shrink and reads fall to 7 KB; see docs/architecture.md.
"""
PEER_CHUNK_BYTES = 64 * 1024
"""The most of a message to a peer that a rank has in hand: all ranks send theirs at once."""


class Peers(Protocol):
    """Connections beyond the ring's two, one for each message."""

    async def connect(self, line: Line, tag: int) -> Channel:
        """A new connection to rank + line."""

    async def accept(self, line: Line, tag: int) -> Channel:
        """The connection that rank + line opened with this tag."""


@dataclass(slots=True)
class Collective:
    """One AllGather of one communicator, as the ranks of one process run it."""

    schedule: Schedule
    n: int
    rounds: int
    """How many of the schedule's rounds to run, all of them unless limited."""
    table: RecordTable
    wrong: WrongBlocks = field(default_factory=WrongBlocks)


def run(
    rank: Rank, lines: dict[Line, Channel], collective: Collective, peers: Peers | None = None
) -> Awaitable[object]:
    """`rank`'s part of the collective, to be awaited at once, over the ring's `lines` and, where
    the schedule has peers, over connections to them. Raises ConnectionClosed when a neighbour is
    lost.

    No coroutine itself: a hundred thousand ranks wait in here, and each frame counts.
    """
    schedule = collective.schedule
    if collective.rounds == 0:
        return _nothing()
    if schedule.peers(collective.n):
        assert peers is not None, "this schedule needs more lines than the ring's"
        return _over_peers(rank, peers, collective)
    shared = both_ways(schedule, collective.n, collective.rounds)
    for line in lines.values():
        line.both_ways = shared
    if schedule.flow == "cut-through":
        return _drive(rank, _cut_through(rank.rank, lines[PREV], lines[NEXT], collective))
    return _drive(
        rank,
        *(_lockstep(rank.rank, lines, collective, lane) for lane in range(schedule.lanes)),
    )


async def _nothing() -> None:
    """No round to run."""


def _drive(rank: Rank, *loops: Coroutine[Any, Any, None]) -> Awaitable[object]:
    if rank.slow > 1:
        loops = tuple(Metered(loop, rank) for loop in loops)
    resume = rank.trace.resumption(rank.phase)
    return drive(loops[0], resume) if len(loops) == 1 else drive_all(loops, resume)


async def _lockstep(
    rank: int, lines: dict[Line, Channel], collective: Collective, lane: int
) -> None:
    n, schedule, table = collective.n, collective.schedule, collective.table
    size = table.record_bytes
    header = size.to_bytes(HEADER_BYTES, "little")
    kept: dict[int, bytes] = {}
    """Blocks that came wrong: they go on as they came."""
    fresh: dict[int, bytes] = {}
    """Those of the exchange before, which a ring sends on next."""
    several_lanes = schedule.lanes > 1
    for step in range(collective.rounds):
        for exchange in schedule.exchanges(n, step):
            if several_lanes:
                exchange = tuple(each for each in exchange if each.lane == lane)
            for transfer in exchange:
                if transfer.part is Part.HEADER:
                    lines[transfer.to].send(header)
                elif size:
                    block = transfer.sent_block(rank, n)
                    data = fresh.get(block) or kept.get(block) or table.record(block)
                    lines[transfer.to].send(data)
            if exchange and exchange[0].part is Part.DATA:
                fresh = {}
            for transfer in exchange:
                block = transfer.received_block(rank, n)
                if transfer.part is Part.HEADER:
                    came = await lines[transfer.source].recv(HEADER_BYTES)
                    if came != header:
                        announced = int.from_bytes(came, "little", signed=True)
                        what = f"size {announced} announced instead of {size}"
                        peer = (rank + transfer.source) % n
                        collective.wrong.add(Wrong(rank, block, what, peer, step))
                elif size:
                    came = fresh[block] = await lines[transfer.source].recv(size)
                    if not table.holds(block, came) and not table.learn(block, came):
                        kept[block] = came
                        what = _first_difference(came, table.record(block))
                        peer = (rank + transfer.source) % n
                        collective.wrong.add(Wrong(rank, block, what, peer, step))
            for transfer in exchange:
                written = lines[transfer.to].flush()
                if written is not READY:
                    await written


def _first_difference(came: bytes, expected: bytes) -> str:
    at = next(
        at for at, (one, other) in enumerate(zip(came, expected, strict=True)) if one != other
    )
    return f"data differs from byte {at} on"


async def _cut_through(rank: int, source: Channel, to: Channel, collective: Collective) -> None:
    """A ring only: one stream of blocks from `source`, the rank before, `to` the next."""
    n, table = collective.n, collective.table
    size = table.record_bytes
    if not size:
        return
    to.send(table.record(rank))
    total = collective.rounds * size
    forward = total - size
    at = table.stream((rank - 1) % n)
    got, last_wrong = 0, -1
    while got < total:
        data = await _piece(source, (rank - 1) % n, got, total)
        count = len(data)
        if not table.matches(at + got, data):
            for block in table.differences(at + got, data):
                if block != last_wrong:
                    step = (rank - 1 - block) % n
                    collective.wrong.add(Wrong(rank, block, "data differs", (rank - 1) % n, step))
                last_wrong = block
        if got < forward:
            blocks = min(got + count, forward) // size - got // size
            await to.send(
                data if got + count <= forward else data[: forward - got], messages=blocks
            )
        got += count
    await to.flush()


async def _piece(source: Channel, peer: int, got: int, total: int) -> Buffer:
    """What comes next of `total` bytes, of which `got` have come. Raises ConnectionClosed."""
    data = await source.recv_some(min(CHUNK_BYTES, total - got))
    if not len(data):
        raise ConnectionClosed(f"rank {peer} closed its connection after {got} of {total} bytes")
    return data


async def _over_peers(rank: Rank, peers: Peers, collective: Collective) -> None:
    """A message of many blocks to one peer and from another each round, sent and received side by
    side, so that no pair of buffers can fill up.
    """
    if not collective.table.record_bytes:
        return
    came_wrong: dict[int, bytearray] = {}

    async def send(transfer: Transfer, step: int, wrong_before: dict[int, bytearray]) -> None:
        to = await peers.connect(transfer.to, step)
        to.bound = 0  # the next chunk goes when this one is in the network's hands
        await _drive(rank, _send_blocks(rank.rank, to, transfer, collective, wrong_before))
        to.close()

    async def receive(transfer: Transfer, step: int) -> None:
        source = await peers.accept(transfer.source, step)
        blocks = _receive_blocks(rank.rank, source, transfer, step, collective, came_wrong)
        await _drive(rank, blocks)
        source.close()

    for step in range(collective.rounds):
        for exchange in collective.schedule.exchanges(collective.n, step):
            for transfer in exchange:
                await _side_by_side(
                    send(transfer, step, came_wrong.copy()), receive(transfer, step)
                )


async def _side_by_side(*coroutines: Coroutine[Any, Any, None]) -> None:
    """In a Task each; the first error ends the others, and is raised as it is."""
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in coroutines:
                group.create_task(coroutine)
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _send_blocks(
    rank: int,
    to: Channel,
    transfer: Transfer,
    collective: Collective,
    came_wrong: dict[int, bytearray],
) -> None:
    """One message, highest block first, as the table lies; what came wrong goes on as it came."""
    table = collective.table
    size, last = table.record_bytes, transfer.sent_block(rank, collective.n) + transfer.blocks - 1
    at, total = table.stream(last % collective.n), transfer.blocks * size
    wrong_at = {(last - block) % collective.n * size: data for block, data in came_wrong.items()}
    sent = 0
    while sent < total:
        chunk = table.piece(at + sent, min(PEER_CHUNK_BYTES, total - sent))
        if wrong_at:
            chunk = _overlaid(chunk, sent, wrong_at)
        await to.send(chunk, messages=not sent)
        sent += len(chunk)
    await to.flush()


def _overlaid(chunk: bytes, at: int, patches: dict[int, bytearray]) -> bytes:
    """`chunk`, which stands at `at` in its message, with the patches that reach into it."""
    result = bytearray(chunk)
    for start, data in patches.items():
        low, high = max(start, at), min(start + len(data), at + len(chunk))
        if low < high:
            result[low - at : high - at] = data[low - start : high - start]
    return bytes(result)


async def _receive_blocks(
    rank: int,
    source: Channel,
    transfer: Transfer,
    step: int,
    collective: Collective,
    came_wrong: dict[int, bytearray],
) -> None:
    """The counterpart of `_send_blocks`. What came wrong is put together from the table and the
    pieces that differ.
    """
    n, table = collective.n, collective.table
    size, last = table.record_bytes, transfer.received_block(rank, n) + transfer.blocks - 1
    at, total = table.stream(last % n), transfer.blocks * size
    peer = (rank + transfer.source) % n
    got = 0
    while got < total:
        data = await _piece(source, peer, got, total)
        count = len(data)
        if not table.matches(at + got, data):
            for block in table.differences(at + got, data):
                if block not in came_wrong:
                    collective.wrong.add(Wrong(rank, block, "data differs", peer, step))
                    came_wrong[block] = bytearray(table.record(block))
                start = (last - block) % n * size
                low, high = max(start, got), min(start + size, got + count)
                came_wrong[block][low - start : high - start] = data[low - got : high - got]
        got += count
