"""Where a byte is flipped, and what else injection does to a rank."""

import asyncio
from typing import Literal

import msgspec
import pytest

from emucoll.collectives.rings import RING, RING_PIPELINED, Ring
from emucoll.errors import UsageError
from emucoll.net.base import Channel
from harness.control.inject import RankFaults, flip_position
from harness.planned import plan_of
from harness.spec import RankFault, ServerKill, Spec, WorkerKill
from tests.unit.collectives.pipes import Pipe, gather

Where = Literal["header", "first", "last", "forwarded"]


def spec(schedule: Ring, n: int = 5, record_bytes: int = 10, steps: int | None = None) -> Spec:
    return Spec(nranks=n, allgather=schedule.name, record_bytes=record_bytes, steps=steps)


def flipped_at(spec: Spec, where: str) -> int:
    return flip_position(spec, plan_of(spec).gathers[-1], where)


def faults_of(spec: Spec) -> RankFaults:
    return RankFaults(spec, plan_of(spec))


@pytest.mark.parametrize(
    ("schedule", "where", "position"),
    [
        (RING, "header", 0),
        (RING, "first", 4 + 9),
        (RING, "forwarded", 14 + 13),
        (RING, "last", 3 * 14 + 13),
        (RING_PIPELINED, "first", 9),
        (RING_PIPELINED, "forwarded", 19),
        (RING_PIPELINED, "last", 39),
    ],
)
def test_the_byte_that_is_flipped(schedule: Ring, where: str, position: int) -> None:
    assert flipped_at(spec(schedule), where) == position


@pytest.mark.parametrize("schedule", [RING, RING_PIPELINED], ids=lambda ring: ring.name)
def test_the_last_of_the_first_steps(schedule: Ring) -> None:
    two = spec(schedule, steps=2)
    assert flipped_at(two, "last") == flipped_at(two, "forwarded")
    one = spec(schedule, steps=1)
    assert flipped_at(one, "last") == flipped_at(one, "first")
    beyond = spec(schedule, steps=100)
    whole = spec(schedule)
    assert flipped_at(beyond, "last") == flipped_at(whole, "last")


@pytest.mark.parametrize(
    ("broken", "where", "text"),
    [
        (spec(RING_PIPELINED), "header", "without a header"),
        (spec(RING, n=1), "first", "1 rank sends no block"),
        (spec(RING, n=1), "header", "1 rank sends no block"),
        (spec(RING, record_bytes=0), "first", "0 bytes have no byte"),
        (spec(RING, n=2), "forwarded", "no block is forwarded in 1 step"),
        (spec(RING, steps=1), "forwarded", "no block is forwarded in 1 step"),
    ],
)
def test_where_there_is_nothing_to_flip(broken: Spec, where: Where, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        flipped_at(broken, where)
    fault = RankFault(rank=0, what="corrupt", where=where)
    with pytest.raises(UsageError, match=text):
        faults_of(msgspec.structs.replace(broken, inject=(fault,)))


def test_a_header_can_be_flipped_though_records_are_empty() -> None:
    assert flipped_at(spec(RING, record_bytes=0), "header") == 0


CORRUPTIONS: list[tuple[Ring, Where, int, int]] = [
    (RING, "header", 1, 2),
    (RING, "first", 4, 2),
    (RING, "forwarded", 3, 1),
    (RING, "last", 1, 4),
    (RING_PIPELINED, "first", 4, 2),
    (RING_PIPELINED, "forwarded", 3, 1),
    (RING_PIPELINED, "last", 1, 4),
]


@pytest.mark.parametrize(("schedule", "where", "count", "block"), CORRUPTIONS)
@pytest.mark.parametrize("cut", [1, 7, 1000])
def test_it_is_found_at_every_rank_that_it_reaches(
    schedule: Ring, where: Where, count: int, block: int, cut: int
) -> None:
    """Rank 2 of 5: its first block is 2, the first it forwards 1, its last 2 - 3 = 4 mod 5."""
    fault = RankFault(rank=2, what="corrupt", where=where)
    faulty = Spec(nranks=5, allgather=schedule.name, record_bytes=10, inject=(fault,))
    faults = faults_of(faulty)

    async def main() -> None:
        channels: list[Channel] = [Pipe((cut,)) for _ in range(5)]
        flips = faults.flips(2)
        assert flips is not None
        channels[2] = flips(channels[2])
        async with asyncio.timeout(20):
            wrong = await gather(schedule, channels, 10)
        assert wrong.count == count
        assert {named for _, named, *_ in wrong.named} == {block}
        assert min((rank - 3) % 5 for rank, *_ in wrong.named) == 0, "rank 3 meets it first"

    asyncio.run(main())


def test_only_the_named_ranks_are_harmed() -> None:
    inject = (
        RankFault(rank=1, what="never-start"),
        RankFault(rank=2, what="raise"),
        RankFault(rank=3, what="slow", factor=4.0),
        RankFault(rank=4, what="corrupt", where="first"),
        WorkerKill(worker=0),
        ServerKill(server="store"),
    )
    faults = faults_of(Spec(nranks=6, allgather="ring", inject=inject))
    ranks = range(6)
    assert [rank for rank in ranks if faults.never_starts(rank)] == [1]
    assert [rank for rank in ranks if faults.raises(rank)] == [2]
    assert [faults.slow(rank) for rank in ranks] == [1, 1, 1, 4, 1, 1]
    assert [rank for rank in ranks if faults.flips(rank)] == [4]
