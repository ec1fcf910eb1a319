"""`drive`: coroutines that await Channels alone, stepped without a Task."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from emucoll.errors import ConnectionClosed, DriveError
from emucoll.net.base import Channel, Listener, Network, begin_drive, drive
from tests.worlds import World, settle


async def connected(world: World) -> tuple[Channel, Channel]:
    here, there = world.network(), world.network()
    listener = there.listen()
    near = await here.connect(listener.address, 10.0)
    return near, await listener.accept()


async def test_it_returns_what_the_coroutine_returns(world: World) -> None:
    near, far = await connected(world)

    async def receive() -> str:
        first = await far.recv(3)
        await far.send(first)
        return (first + await far.recv(3)).decode()

    driven = asyncio.ensure_future(drive(receive()))
    await near.send(b"abc")
    assert await near.recv(3) == b"abc"
    await near.send(b"def")
    assert await driven == "abcdef"


async def test_a_coroutine_that_ends_at_once(world: World) -> None:
    async def at_once() -> int:
        return 7

    async def raises() -> int:
        raise KeyError("at once")

    assert world.clock.now() >= 0
    assert await drive(at_once()) == 7
    with pytest.raises(KeyError, match="at once"):
        await drive(raises())


async def test_it_raises_what_the_coroutine_raises(world: World) -> None:
    near, far = await connected(world)

    async def fails() -> None:
        await far.recv(1)
        raise ValueError("after a byte")

    async def lost() -> None:
        await far.recv(1)

    driven = asyncio.ensure_future(drive(fails()))
    await near.send(b"x")
    with pytest.raises(ValueError, match="after a byte"):
        await driven
    driven = asyncio.ensure_future(drive(lost()))
    await settle(world)
    near.close()
    with pytest.raises(ConnectionClosed):
        await driven


async def test_cancelled_from_outside(world: World) -> None:
    near, far = await connected(world)
    ends = []

    async def waits() -> None:
        try:
            await far.recv(1)
        except BaseException as error:
            ends.append(type(error))
            raise
        finally:
            ends.append("closed")  # type: ignore[arg-type]

    driven = asyncio.ensure_future(drive(waits()))
    await settle(world)
    driven.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driven
    assert ends == [GeneratorExit, "closed"]
    await near.send(b"x")
    assert await far.recv(1) == b"x", "the channel is free again"


async def test_a_timeout_around_it(world: World) -> None:
    near, far = await connected(world)

    async def waits() -> bytes:
        return await far.recv(1)

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.02):
            await drive(waits())
    await near.send(b"x")
    async with asyncio.timeout(10):
        assert await drive(waits()) == b"x"


async def sleeps(_channel: Channel, _network: Network, _listener: Listener) -> None:
    await asyncio.sleep(0.001)


async def yields(_channel: Channel, _network: Network, _listener: Listener) -> None:
    await asyncio.sleep(0)


async def awaits_a_future(_channel: Channel, _network: Network, _listener: Listener) -> None:
    await asyncio.get_running_loop().create_future()


async def accepts(_channel: Channel, _network: Network, listener: Listener) -> None:
    await listener.accept()


async def connects(_channel: Channel, network: Network, listener: Listener) -> None:
    await network.connect(listener.address, 10.0)


What = Callable[[Channel, Network, Listener], Coroutine[Any, Any, None]]
REFUSED: dict[What, str] = {
    sleeps: r"Future in sleep\(\)",
    yields: r"bare yield .*asyncio\.sleep\(0\)",
    awaits_a_future: r"Future in awaits_a_future\(\) inside",
    accepts: r"Listener\.accept inside",
    connects: r"Network\.connect inside",
}


@pytest.mark.parametrize("what", REFUSED, ids=lambda what: what.__name__)
@pytest.mark.parametrize("later", [False, True])
async def test_anything_else_is_a_named_error(world: World, what: What, later: bool) -> None:
    network = world.network()
    listener = network.listen()
    near = await network.connect(listener.address, 10.0)
    far = await listener.accept()
    await network.connect(listener.address, 10.0)  # somebody to accept, and yet it is refused
    closed = []

    async def main() -> None:
        try:
            if later:
                await far.recv(1)
            await what(far, network, listener)
        finally:
            closed.append(True)

    driven = asyncio.ensure_future(drive(main()))
    await near.send(b"x")
    with pytest.raises(DriveError, match=REFUSED[what]) as caught:
        await driven
    assert closed == [True]
    assert "drive()" in str(caught.value)


async def test_many_at_once(world: World) -> None:
    near, far = [], []
    here, there = world.network(), world.network()
    listener = there.listen()
    for _ in range(200):
        near.append(await here.connect(listener.address, 10.0))
        far.append(await listener.accept())

    async def relay(source: Channel, to: Channel) -> int:
        total = 0
        while total < 300:
            data = await source.recv_some(50)
            total += len(data)
            await to.send(data)
        return total

    # A chain: what goes in at the first comes out of the last, through every drive.
    drives = asyncio.gather(*(drive(relay(far[i], near[i + 1])) for i in range(199)))
    for _ in range(3):
        await near[0].send(bytes(100))
    assert await far[199].recv(300) == bytes(300)
    assert await drives == [300] * 199


async def test_it_calls_resume_before_every_step(world: World) -> None:
    near, far = await connected(world)
    log: list[str] = []

    async def receive() -> None:
        for _ in range(3):
            log.append((await far.recv(1)).decode())

    driven = asyncio.ensure_future(drive(receive(), lambda: log.append("step")))
    for letter in b"abc":
        await settle(world)
        await near.send(bytes([letter]))
    await driven
    assert log == ["step", "step", "a", "step", "b", "step", "c"]


async def test_one_that_nobody_waits_for(world: World) -> None:
    near, far = await connected(world)
    log: list[object] = []

    async def receive() -> None:
        try:
            log.append(await far.recv(1))
        finally:
            log.append("ended")

    begin_drive(receive(), log.append)
    await near.send(b"x")
    await settle(world)
    assert log == [b"x", "ended"]
    coroutine = receive()
    begin_drive(coroutine, log.append)
    coroutine.close()
    assert log == [b"x", "ended", "ended"]
    await near.send(b"y")
    assert await far.recv(1) == b"y"


async def test_an_error_of_one_that_nobody_waits_for() -> None:
    errors: list[BaseException] = []
    error = ValueError("its own")

    async def raises() -> None:
        raise error

    async def sleeps() -> None:
        await asyncio.sleep(0)

    begin_drive(raises(), errors.append)
    begin_drive(sleeps(), errors.append)
    assert errors[0] is error
    assert isinstance(errors[1], DriveError)


async def test_one_drive_closes_the_channel_of_another(world: World) -> None:
    near, far = await connected(world)
    other_near, other_far = await connected(world)

    async def closes() -> str:
        await far.recv(1)
        other_far.close()
        return (await far.recv(1)).decode()

    async def waits() -> None:
        await other_far.recv(1)

    first, second = asyncio.ensure_future(drive(closes())), asyncio.ensure_future(drive(waits()))
    await settle(world)
    await near.send(b"a")
    with pytest.raises(ConnectionClosed):
        await second
    await near.send(b"b")
    assert await first == "b", "the closing one goes on as if nothing had been"
    with pytest.raises(ConnectionClosed):
        await other_near.recv(1)
