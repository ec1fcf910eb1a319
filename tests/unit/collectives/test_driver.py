"""The driver over channels in memory: whatever the cut of the reads, every block is verified."""

import asyncio
from collections.abc import Awaitable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.collectives import ALLGATHERS
from emucoll.collectives.bruck import BRUCK
from emucoll.collectives.driver import Collective, run
from emucoll.collectives.rings import (
    HEADER_BYTES,
    RING,
    RING_BIDIR,
    RING_BIDIR_HEADERLESS,
    RING_PIPELINED,
    Ring,
)
from emucoll.collectives.schedule import NEXT, PREV, Schedule
from emucoll.collectives.table import WrongBlocks
from emucoll.errors import ConnectionClosed
from emucoll.net.base import Buffer
from emucoll.wrong import Wrong
from tests.unit.collectives.pipes import Pipe, PipePeers, full_table, gather, make_ranks

BOTH = pytest.mark.parametrize("schedule", [RING, RING_PIPELINED], ids=lambda ring: ring.name)
CUTS = st.lists(st.integers(1, 40), min_size=1, max_size=4)


def gathered(
    schedule: Schedule,
    pipes: list[Pipe],
    record_bytes: int,
    rounds: int | None = None,
    backward: list[Pipe] | None = None,
    made: dict[tuple[int, int, int], Pipe] | None = None,
) -> WrongBlocks:
    async def main() -> WrongBlocks:
        async with asyncio.timeout(20):
            return await gather(schedule, pipes, record_bytes, rounds, backward, made)

    return asyncio.run(main())


@given(st.sampled_from(sorted(ALLGATHERS)), st.integers(1, 7), st.integers(0, 12), CUTS, st.data())
def test_whatever_the_reads_bring(
    name: str, n: int, record_bytes: int, cuts: list[int], data: st.DataObject
) -> None:
    schedule = ALLGATHERS[name]
    rounds = data.draw(st.integers(min(1, n - 1), schedule.rounds(n)))
    pipes, backward = [Pipe(cuts) for _ in range(n)], [Pipe(cuts) for _ in range(n)]
    made = {
        (sender, (sender + line) % n, tag): Pipe(cuts)
        for sender in range(n)
        for tag, line in enumerate(schedule.peers(n))
    }
    assert gathered(schedule, pipes, record_bytes, rounds, backward, made) == WrongBlocks()
    traffic = schedule.traffic(n, rounds, record_bytes)
    for rank in range(n):
        mine = [pipes[rank], backward[rank]]
        mine += [pipe for (sender, _, _), pipe in made.items() if sender == rank]
        assert sum(pipe.sent for pipe in mine) == traffic.sent_bytes
        assert sum(pipe.messages for pipe in mine) == traffic.messages


def position(schedule: Ring, record_bytes: int, step: int, byte: int) -> int:
    """Where in what a rank sends stands `byte` of the block of `step`."""
    framing = HEADER_BYTES if schedule.frames == "sized" else 0
    return step * (record_bytes + framing) + framing + byte


@BOTH
@pytest.mark.parametrize("byte", [0, 3, 9])
@pytest.mark.parametrize("step", range(5))
def test_a_wrong_block_travels_on_and_is_counted_at_each_rank(
    schedule: Ring, step: int, byte: int
) -> None:
    n, culprit, size = 6, 2, 10
    flip = position(schedule, size, step, byte)
    pipes = [Pipe((7, 3, 100), flip if r == culprit else None) for r in range(n)]
    wrong = gathered(schedule, pipes, size)
    block = (culprit - step) % n
    receivers = {(culprit + hop) % n for hop in range(1, n - step)}
    assert wrong.count == len(receivers) == n - 1 - step
    assert {(rank, named) for rank, named, *_ in wrong.named} == {(r, block) for r in receivers}
    assert all("differs" in what for _, _, what, *_ in wrong.named)


@pytest.mark.parametrize("cuts", [(1,), (3,), (10,), (15,), (4, 11)])
def test_a_wrong_block_over_several_reads_counts_once(cuts: tuple[int, ...]) -> None:
    class Spoilt(Pipe):
        """Every byte of its first block is wrong."""

        def send(self, data: Buffer, messages: int = 1) -> Awaitable[None]:
            if not self.sent:
                data = bytes(byte ^ 0xFF for byte in data[:10]) + bytes(data[10:])
            return super().send(data, messages)

    pipes = [Spoilt(cuts), Pipe(cuts), Pipe(cuts), Pipe(cuts)]
    wrong = gathered(RING_PIPELINED, pipes, 10)
    assert wrong.count == 3
    assert sorted((rank, block) for rank, block, *_ in wrong.named) == [(1, 0), (2, 0), (3, 0)]


@pytest.mark.parametrize("cuts", [(1,), (7,), (1000,)])
def test_every_wrong_block_of_a_read_is_counted(cuts: tuple[int, ...]) -> None:
    class Inverted(Pipe):
        def send(self, data: Buffer, messages: int = 1) -> Awaitable[None]:
            return super().send(bytes(byte ^ 0xFF for byte in data), messages)

    pipes: list[Pipe] = [Pipe(cuts), Inverted(cuts), Pipe(cuts), Pipe(cuts), Pipe(cuts)]
    wrong = gathered(RING_PIPELINED, pipes, 10)
    assert wrong.count == 4 + 3 + 2 + 1
    assert len(set(wrong.named)) == 10


@pytest.mark.parametrize("step", [0, 3])
@pytest.mark.parametrize("record_bytes", [0, 10])
def test_a_wrong_size_counts_as_one_and_stays(step: int, record_bytes: int) -> None:
    flip = step * (HEADER_BYTES + record_bytes)
    pipes = [Pipe(flip=flip if r == 1 else None) for r in range(5)]
    wrong = gathered(RING, pipes, record_bytes)
    announced = record_bytes ^ 0x55
    text = f"size {announced} announced instead of {record_bytes}"
    assert (wrong.count, wrong.named) == (1, [Wrong(2, (1 - step) % 5, text, 1, step)])


def test_some_wrong_blocks_are_named_and_all_counted() -> None:
    pipes = [Pipe(flip=position(RING, 4, 0, 0)) for r in range(12)]
    wrong = gathered(RING, pipes, 4)
    assert wrong.count == 12 * 11
    assert len(wrong.named) == WrongBlocks.NAMED


@BOTH
@pytest.mark.parametrize("bytes_sent", [0, 3, 10, 25])
def test_a_lost_neighbour(schedule: Ring, bytes_sent: int) -> None:
    async def main() -> None:
        n, size = 4, 10
        to, source = Pipe(), Pipe()
        collective = Collective(schedule, n, n - 1, full_table(n, size))
        driven = asyncio.ensure_future(run(make_ranks(n)[1], {NEXT: to, PREV: source}, collective))
        await source.send(bytes(bytes_sent))
        source.close()
        async with asyncio.timeout(10):
            with pytest.raises(ConnectionClosed) as caught:
                await driven
        if schedule.flow == "cut-through":
            assert (
                str(caught.value) == f"rank 0 closed its connection after {bytes_sent} of 30 bytes"
            )

    asyncio.run(main())


WAYS = [
    (n, step, back)
    for n in (6, 7)
    for back in (False, True)
    for step in range((n - 1) // 2 if back else n // 2)
]


@pytest.mark.parametrize("schedule", [RING_BIDIR, RING_BIDIR_HEADERLESS], ids=lambda r: r.name)
@pytest.mark.parametrize(("n", "step", "back"), WAYS)
def test_both_ways_a_wrong_block_travels_on_in_its_direction(
    schedule: Ring, n: int, step: int, back: bool
) -> None:
    steps = (n - 1) // 2 if back else n // 2
    culprit, size = 2, 10
    flip = position(schedule, size, step, 3)
    spoilt = [Pipe((7, 3, 100), flip if r == culprit else None) for r in range(n)]
    fine = [Pipe((100,)) for _ in range(n)]
    pipes, backward = (fine, spoilt) if back else (spoilt, fine)
    wrong = gathered(schedule, pipes, size, None, backward)
    way = -1 if back else 1
    block = (culprit - way * step) % n
    receivers = {(culprit + way * hop) % n for hop in range(1, steps - step + 1)}
    assert wrong.count == len(receivers)
    assert {(rank, named) for rank, named, *_ in wrong.named} == {(r, block) for r in receivers}


FLIPS = [
    (n, tag, byte)
    for n in (2, 5, 8, 11)
    for tag in range(BRUCK.rounds(n))
    for byte in (0, 9, 10, 25)
    if byte < 10 * BRUCK.exchanges(n, tag)[0][0].blocks
]


@pytest.mark.parametrize(("n", "tag", "byte"), FLIPS)
def test_a_wrong_block_of_bruck_travels_on(n: int, tag: int, byte: int) -> None:
    size, culprit = 10, 1
    blocks = min(1 << tag, n - (1 << tag))
    made = {(culprit, (culprit - (1 << tag)) % n, tag): Pipe((7, 3, 100), byte)}
    wrong = gathered(BRUCK, [Pipe() for _ in range(n)], size, None, None, made)
    block = (culprit + blocks - 1 - byte // size) % n  # the highest comes first
    spoilt = {(culprit - (1 << tag)) % n}
    for step in range(tag + 1, BRUCK.rounds(n)):  # whoever has it wrong passes it on
        sent = min(1 << step, n - (1 << step))
        spoilt |= {(r - (1 << step)) % n for r in spoilt if (block - r) % n < sent}
    assert {(rank, named) for rank, named, *_ in wrong.named} == {(r, block) for r in spoilt}
    assert wrong.count == len(spoilt)


def test_a_large_record_and_an_empty_one() -> None:
    for schedule in ALLGATHERS.values():
        for size in (0, 3 << 20):
            assert gathered(schedule, [Pipe() for _ in range(3)], size).count == 0


def test_a_lost_peer_is_told_as_it_is() -> None:
    """Not as a group of errors: who reports it looks at the kind."""
    n, size = 4, 10
    made = {(1, 0, 0): Pipe()}
    made[1, 0, 0].close()

    async def main() -> None:
        collective = Collective(BRUCK, n, 2, full_table(n, size))
        with pytest.raises(
            ConnectionClosed, match="rank 1 closed its connection after 0 of 10 bytes"
        ):
            await run(make_ranks(n)[0], {}, collective, PipePeers(0, n, made))

    asyncio.run(main())
