"""The one driver that runs a schedule over a rank's channels, verifying every byte.

Lockstep runs exchange by exchange, one message a transfer. What a rank forwards is taken from the
table when what it received was equal to it, so that a rank needs no memory of its own; a block that
came in wrong is kept and travels on as it came. Cut-through forwards whatever bytes a read brings,
as far as they have to travel on.

Both are coroutines for `emucoll.net.base.drive`: they await Channels alone.
"""

from dataclasses import dataclass

from emucoll.collectives.rings import HEADER_BYTES
from emucoll.collectives.schedule import Line, Part, Schedule
from emucoll.collectives.table import RecordTable, WrongBlocks
from emucoll.errors import ConnectionClosed
from emucoll.net.base import Channel

CHUNK_BYTES = 256 * 1024
"""The most a cut-through rank reads at once."""


@dataclass(slots=True)
class Collective:
    """One AllGather of one communicator, as the ranks of one process run it."""

    schedule: Schedule
    n: int
    rounds: int
    """How many of the schedule's rounds to run, all of them unless limited."""
    table: RecordTable
    wrong: WrongBlocks


async def run(rank: int, lines: dict[Line, Channel], collective: Collective) -> None:
    """Rank `rank`'s part of the collective. Raises ConnectionClosed when a neighbour is lost."""
    if collective.rounds == 0:
        return
    if collective.schedule.flow == "cut-through":
        await _cut_through(rank, lines, collective)
    else:
        await _lockstep(rank, lines, collective)


async def _lockstep(rank: int, lines: dict[Line, Channel], collective: Collective) -> None:
    n, schedule, table = collective.n, collective.schedule, collective.table
    size = table.record_bytes
    header = size.to_bytes(HEADER_BYTES, "little")
    kept: dict[int, bytes] = {}
    for step in range(collective.rounds):
        for exchange in schedule.exchanges(n, step):
            for transfer in exchange:
                if transfer.part is Part.HEADER:
                    lines[transfer.to].send(header)
                elif size:
                    block = transfer.sent_block(rank, n)
                    lines[transfer.to].send(kept.get(block) or table.record(block))
            for transfer in exchange:
                block = transfer.received_block(rank, n)
                if transfer.part is Part.HEADER:
                    came = await lines[transfer.source].recv(HEADER_BYTES)
                    if came != header:
                        announced = int.from_bytes(came, "little", signed=True)
                        collective.wrong.add(
                            rank, block, f"size {announced} announced instead of {size}"
                        )
                elif size:
                    came = await lines[transfer.source].recv(size)
                    if not table.holds(block, came):
                        kept[block] = came
                        collective.wrong.add(
                            rank, block, _first_difference(came, table.record(block))
                        )
            for transfer in exchange:
                await lines[transfer.to].flush()


def _first_difference(came: bytes, expected: bytes) -> str:
    at = next(
        at for at, (one, other) in enumerate(zip(came, expected, strict=True)) if one != other
    )
    return f"data differs from byte {at} on"


async def _cut_through(rank: int, lines: dict[Line, Channel], collective: Collective) -> None:
    """A ring only: one stream of blocks from PREV to NEXT."""
    n, table = collective.n, collective.table
    size = table.record_bytes
    if not size:
        return
    source, to = lines[Line.PREV], lines[Line.NEXT]
    to.send(table.record(rank))
    total = collective.rounds * size
    forward = total - size
    at = table.stream((rank - 1) % n)
    got, last_wrong = 0, -1
    while got < total:
        data = await source.recv_some(min(CHUNK_BYTES, total - got))
        count = len(data)
        if not count:
            raise ConnectionClosed(
                f"rank {(rank - 1) % n} closed the ring after {got} of {total} bytes"
            )
        if not table.matches(at + got, data):
            for block in table.differences(at + got, data):
                if block != last_wrong:
                    collective.wrong.add(rank, block, "data differs")
                last_wrong = block
        if got < forward:
            blocks = min(got + count, forward) // size - got // size
            await to.send(
                data if got + count <= forward else data[: forward - got], messages=blocks
            )
        got += count
    await to.flush()
