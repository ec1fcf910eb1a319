"""A deadline that costs nothing where nothing is waited for."""

import asyncio

import pytest

from emucoll.net.base import within


async def _at_once() -> int:
    return 7


async def _later(event: asyncio.Event) -> int:
    await event.wait()
    await asyncio.sleep(0)
    return 8


def test_what_need_not_wait_returns_at_once() -> None:
    async def main() -> None:
        async with asyncio.timeout(10):
            assert await within(1e-9, _at_once()) == 7

    asyncio.run(main())


def test_what_waits_goes_on_and_returns() -> None:
    async def main() -> None:
        async with asyncio.timeout(10):
            event = asyncio.Event()
            asyncio.get_running_loop().call_soon(event.set)
            assert await within(5, _later(event)) == 8

    asyncio.run(main())


def test_the_deadline_and_a_cancellation_reach_what_waits() -> None:
    ended: list[str] = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise

    async def main() -> None:
        async with asyncio.timeout(10):
            with pytest.raises(TimeoutError):
                await within(0.01, waits())
            task = asyncio.create_task(within(60, waits()))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert ended == ["cancelled", "cancelled"]


def test_an_exception_comes_through_at_once_or_later() -> None:
    async def fails(first: bool) -> None:
        if not first:
            await asyncio.sleep(0)
        raise ValueError("mine")

    async def main() -> None:
        async with asyncio.timeout(10):
            for first in (True, False):
                with pytest.raises(ValueError, match="mine"):
                    await within(5, fails(first))

    asyncio.run(main())
