"""The driver over channels in memory: whatever the cut of the reads, every block is verified."""

import asyncio
from collections.abc import Awaitable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.collectives import ALLGATHERS
from emucoll.collectives.driver import Collective, run
from emucoll.collectives.rings import HEADER_BYTES, RING, RING_PIPELINED, Ring
from emucoll.collectives.schedule import Line
from emucoll.collectives.table import WrongBlocks
from emucoll.errors import ConnectionClosed
from emucoll.net.base import Buffer, drive
from tests.unit.collectives.pipes import Pipe, full_table, gather

BOTH = pytest.mark.parametrize("schedule", [RING, RING_PIPELINED], ids=lambda ring: ring.name)
CUTS = st.lists(st.integers(1, 40), min_size=1, max_size=4)


def gathered(
    schedule: Ring, pipes: list[Pipe], record_bytes: int, rounds: int | None = None
) -> WrongBlocks:
    async def main() -> WrongBlocks:
        async with asyncio.timeout(20):
            return await gather(schedule, pipes, record_bytes, rounds)

    return asyncio.run(main())


@given(st.sampled_from(sorted(ALLGATHERS)), st.integers(1, 7), st.integers(0, 12), CUTS, st.data())
def test_whatever_the_reads_bring(
    name: str, n: int, record_bytes: int, cuts: list[int], data: st.DataObject
) -> None:
    schedule = ALLGATHERS[name]
    assert isinstance(schedule, Ring)
    rounds = data.draw(st.integers(min(1, n - 1), n - 1))
    pipes = [Pipe(cuts) for _ in range(n)]
    assert gathered(schedule, pipes, record_bytes, rounds) == WrongBlocks()
    traffic = schedule.traffic(n, rounds, record_bytes)
    assert {pipe.sent for pipe in pipes} == {traffic.sent_bytes}
    assert {pipe.messages for pipe in pipes} == {traffic.messages}


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
    assert {(rank, named) for rank, named, _ in wrong.named} == {(r, block) for r in receivers}
    assert all("differs" in what for _, _, what in wrong.named)


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
    assert sorted((rank, block) for rank, block, _ in wrong.named) == [(1, 0), (2, 0), (3, 0)]


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
    assert (wrong.count, wrong.named) == (1, [(2, (1 - step) % 5, text)])


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
        collective = Collective(schedule, n, n - 1, full_table(n, size, n - 1), WrongBlocks())
        driven = asyncio.ensure_future(
            drive(run(1, {Line.NEXT: to, Line.PREV: source}, collective))
        )
        await source.send(bytes(bytes_sent))
        source.close()
        async with asyncio.timeout(10):
            with pytest.raises(ConnectionClosed) as caught:
                await driven
        if schedule.flow == "cut-through":
            assert str(caught.value) == f"rank 0 closed the ring after {bytes_sent} of 30 bytes"

    asyncio.run(main())


def test_a_large_record_and_an_empty_one() -> None:
    for schedule in (RING, RING_PIPELINED):
        for size in (0, 3 << 20):
            assert gathered(schedule, [Pipe() for _ in range(3)], size).count == 0
