"""Spans and the metering of CPU, with clocks that the test turns."""

import asyncio
import itertools
import random
import time
from typing import Any, cast

import pytest

from emucoll.net.base import Clock, Network
from emucoll.rank import Rank
from emucoll.trace import IDLE, LOOP, Metered, Trace, current_rank


class Hands:
    """Wall time and CPU time, as the test sets them."""

    def __init__(self) -> None:
        self.wall = 0.0
        self.cpu = 0.0

    def work(self, s: float) -> None:
        self.wall += s
        self.cpu += s

    def wait(self, s: float) -> None:
        self.wall += s


@pytest.fixture
def hands(monkeypatch: pytest.MonkeyPatch) -> Hands:
    hands = Hands()
    monkeypatch.setattr("time.thread_time", lambda: hands.cpu)
    return hands


def make_ranks(hands: Hands, count: int, slow: float = 1.0) -> list[Rank]:
    trace = Trace(count, lambda: hands.wall)
    nothing = cast(Any, None)
    network, clock = cast(Network, nothing), cast(Clock, nothing)
    idle = trace.phase(IDLE)
    jitter = random.Random(1)
    return [Rank(r, r, network, clock, trace, jitter, slow, idle) for r in range(count)]


def wall(rank: Rank, name: str) -> float:
    return rank.trace.wall[rank.trace.phase(name)][rank.slot]


def cpu(rank: Rank, name: str) -> float:
    return rank.trace.cpu[rank.trace.phase(name)]


def phase(rank: Rank) -> tuple[str, object]:
    return rank.trace.names[rank.phase], rank.peer


def fail(hands: Hands) -> None:
    hands.wait(1)
    raise KeyError("on purpose")


# Spans ------------------------------------------------------------------------------------------


def test_spans_nest_and_add_up(hands: Hands) -> None:
    (rank,) = make_ranks(hands, 1)
    assert phase(rank) == (IDLE, None)
    with rank.span("outer"):
        hands.wait(1)
        assert phase(rank) == ("outer", None)
        for _ in range(2):
            with rank.span("outer.inner", peer=3):
                assert phase(rank) == ("outer.inner", 3)
                hands.wait(2)
            hands.wait(4)
            assert phase(rank) == ("outer", None)
    assert phase(rank) == (IDLE, None)
    assert wall(rank, "outer.inner") == 4
    assert wall(rank, "outer") == 13
    assert rank.youngest is None


def test_ranks_are_apart(hands: Hands) -> None:
    first, second = make_ranks(hands, 2)
    with first.span("a"):
        hands.wait(1)
        with second.span("a"):
            hands.wait(2)
            assert phase(first) == phase(second) == ("a", None)
    assert (wall(first, "a"), wall(second, "a")) == (3, 2)
    assert first.trace.names.count("a") == 1


def test_a_failed_span_leaves_the_rank_where_it_failed(hands: Hands) -> None:
    (rank,) = make_ranks(hands, 1)
    with pytest.raises(KeyError), rank.span("outer"), rank.span("inner", peer="root"):
        fail(hands)
    assert phase(rank) == ("inner", "root")
    assert wall(rank, "outer") == wall(rank, "inner") == 1


def test_a_failure_that_was_dealt_with_is_over(hands: Hands) -> None:
    (rank,) = make_ranks(hands, 1)
    with rank.span("outer", peer=1):
        with pytest.raises(KeyError), rank.span("tried", peer=2):
            fail(hands)
        assert phase(rank) == ("tried", 2)
        with rank.span("again", peer=3):
            pass
        assert phase(rank) == ("outer", 1)
    assert phase(rank) == (IDLE, None)


@pytest.mark.parametrize("first_out", ["left", "right"])
def test_spans_of_tasks_side_by_side_overlap(hands: Hands, first_out: str) -> None:
    (rank,) = make_ranks(hands, 1)
    with rank.span("outer", peer=1):
        spans = {"left": rank.span("left", peer=2), "right": rank.span("right", peer=3)}
        for span in spans.values():
            span.__enter__()
            hands.wait(1)
        assert phase(rank) == ("right", 3)
        spans.pop(first_out).__exit__(None, None, None)
        hands.wait(1)
        ((left, span),) = spans.items()
        assert phase(rank)[0] == left
        span.__exit__(None, None, None)
        assert phase(rank) == ("outer", 1)
    assert phase(rank) == (IDLE, None)
    assert wall(rank, "left") + wall(rank, "right") == 4


# CPU --------------------------------------------------------------------------------------------


def test_cpu_belongs_to_the_phase_that_was_switched_to(hands: Hands) -> None:
    (rank,) = make_ranks(hands, 1)
    trace = rank.trace
    hands.work(1)  # of the loop
    with rank.span("a"):
        hands.work(2)
        hands.wait(100)
        with rank.span("b"):
            hands.work(4)
    hands.work(8)  # between spans little happens: the clock is not read
    trace.to_loop()
    hands.work(16)
    trace.switch(trace.phase("a"))
    assert (cpu(rank, LOOP), cpu(rank, "a"), cpu(rank, "b")) == (17, 2, 12)


def test_the_cpu_clock_is_read_only_when_the_phase_changes(
    hands: Hands, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    trace = make_ranks(hands, 1)[0].trace
    monkeypatch.setattr("time.thread_time", lambda: next(ticks))
    number = trace.phase("a")
    for _ in range(1000):
        trace.switch(number)
    assert next(ticks) == 1


async def runs(rank: Rank, hands: Hands, name: str, *works: float) -> None:
    with rank.span(name):
        for work in works:
            hands.work(work)
            await asyncio.sleep(0)


async def test_each_resumption_is_its_ranks(hands: Hands) -> None:
    ranks = make_ranks(hands, 2)
    async with asyncio.TaskGroup() as group:
        for rank, name, works in zip(ranks, "ab", [(1, 2, 4), (8, 16)], strict=True):
            group.create_task(Metered(runs(rank, hands, name, *works), rank))
    ranks[0].trace.to_loop()
    assert (cpu(ranks[0], "a"), cpu(ranks[0], "b")) == (7, 24)


async def test_throwing_into_a_rank_is_a_resumption(hands: Hands) -> None:
    (rank,) = make_ranks(hands, 1)

    async def cleans_up() -> None:
        with rank.span("a"):
            try:
                await asyncio.sleep(3600)
            finally:
                hands.work(5)

    task = asyncio.create_task(Metered(cleans_up(), rank))
    await asyncio.sleep(0)
    rank.trace.to_loop()
    hands.work(1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    rank.trace.to_loop()
    assert (cpu(rank, "a"), cpu(rank, LOOP)) == (5, 1)


async def test_a_metered_coroutine_can_be_awaited_and_closed(hands: Hands) -> None:
    (rank,) = make_ranks(hands, 1)

    async def seven() -> int:
        await asyncio.sleep(0)
        return 7

    assert await Metered(seven(), rank) == 7
    Metered(seven(), rank).close()


def test_a_slow_rank_takes_a_multiple_of_its_cpu() -> None:
    hands = Hands()
    (rank,) = make_ranks(hands, 1, slow=5.0)

    async def burns() -> None:
        until = time.thread_time() + 0.01
        while time.thread_time() < until:
            pass

    before = time.thread_time()
    with pytest.raises(StopIteration):
        Metered(burns(), rank).send(None)
    assert time.thread_time() - before >= 0.045


# Whose a Task is --------------------------------------------------------------------------------


async def test_tasks_know_whose_they_are(hands: Hands) -> None:
    ranks = make_ranks(hands, 2)
    seen: list[object] = []

    async def main() -> None:
        await asyncio.sleep(0)
        seen.append(current_rank())

    assert current_rank() is None
    await asyncio.gather(*(asyncio.create_task(Metered(main(), rank)) for rank in ranks))
    assert seen == ranks
    assert current_rank() is None
