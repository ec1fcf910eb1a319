"""The event loop whose clock jumps."""

import asyncio
import subprocess
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from emucoll.errors import Deadlock, NotInVirtualTime
from emucoll.sim.loop import VirtualLoop

T = TypeVar("T")


def run(main: Coroutine[Any, Any, T]) -> tuple[T, VirtualLoop]:
    loop = VirtualLoop(weak_s=60.0)
    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        return runner.run(main), loop


def test_hours_pass_at_once_and_exactly() -> None:
    async def main() -> float:
        await asyncio.sleep(3600)
        await asyncio.sleep(0.25)
        return asyncio.get_running_loop().time()

    assert run(main())[0] == 3600.25


def test_what_is_due_at_one_time_happens_in_the_order_in_which_it_was_asked_for() -> None:
    async def main() -> list[int]:
        loop, seen = asyncio.get_running_loop(), list[int]()
        assert isinstance(loop, VirtualLoop)
        for number in range(100):
            due = loop.call_at if number % 2 else lambda when, call, n: loop.at(when, call, n)
            due(2.0, seen.append, number)
        loop.at(1.0, seen.append, -1)
        await asyncio.sleep(3)
        return seen

    assert run(main())[0] == list(range(-1, 100))


def test_what_an_event_wakes_runs_before_the_next_event() -> None:
    async def main() -> list[str]:
        loop, seen = asyncio.get_running_loop(), list[str]()

        async def steps(name: str) -> None:
            await asyncio.sleep(1)
            for step in range(3):
                seen.append(f"{name}{step}")
                await asyncio.sleep(0)

        tasks = [asyncio.create_task(steps(name)) for name in "ab"]
        await asyncio.gather(*tasks)
        assert loop.time() == 1
        return seen

    assert run(main())[0] == ["a0", "a1", "a2", "b0", "b1", "b2"]


def test_a_cancelled_timer_does_nothing() -> None:
    async def main() -> list[int]:
        loop, seen = asyncio.get_running_loop(), list[int]()
        loop.call_later(1, seen.append, 1).cancel()
        loop.call_later(2, seen.append, 2)
        await asyncio.sleep(3)
        return seen

    assert run(main())[0] == [2]


# -- deadlines and deadlock


def test_a_short_timeout_ends_a_wait() -> None:
    async def main() -> float:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(59):
                await asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.get_running_loop().create_future(), 1)
        return asyncio.get_running_loop().time()

    assert run(main())[0] == 60


@pytest.mark.parametrize("by", ["timeout", "wait_for", "nothing"])
def test_where_only_deadlines_remain_it_is_a_deadlock_at_once(by: str) -> None:
    async def main() -> None:
        await asyncio.sleep(7)
        forever = asyncio.get_running_loop().create_future()
        if by == "timeout":
            async with asyncio.timeout(60):
                await forever
        await (asyncio.wait_for(forever, 600) if by == "wait_for" else forever)

    with pytest.raises(Deadlock, match="at 7 s of virtual time everybody waits"):
        run(main())


def test_a_deadline_that_comes_before_what_is_under_way_counts() -> None:
    async def main() -> float:
        loop = asyncio.get_running_loop()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(100):
                await asyncio.sleep(200)
        return loop.time()

    assert run(main())[0] == 100


# -- what is real


@pytest.mark.parametrize("what", ["thread", "socket", "process", "name", "signal", "descriptor"])
def test_nothing_real_can_be_waited_for(what: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        match what:
            case "thread":
                await asyncio.to_thread(print)
            case "socket":
                await asyncio.open_connection("127.0.0.1", 1)
            case "process":
                await asyncio.create_subprocess_exec("true", stdout=subprocess.DEVNULL)
            case "name":
                await loop.getaddrinfo("localhost", 1)
            case "signal":
                loop.add_signal_handler(1, print)
            case "descriptor":
                loop.add_reader(0, print)

    with pytest.raises(NotInVirtualTime, match="use the rank's network and clock"):
        run(main())
