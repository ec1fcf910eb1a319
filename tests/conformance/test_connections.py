"""Listening, connecting and accepting, in every world."""

import asyncio
import errno

import pytest

from emucoll.errors import ConnectFailed, ConnectionClosed, DeadlineExceeded, EmucollError
from emucoll.net.base import Channel, Network
from tests.worlds import LateWorld, World, descriptors, settle


async def test_listeners_have_addresses_of_their_own(world: World) -> None:
    network, other = world.network(), world.network()
    addresses = [each.listen().address for each in (network, network, other)]
    assert len(set(addresses)) == 3
    assert len({address.is_ipv6 for address in addresses}) == 1
    assert all(address.port for address in addresses)


async def test_a_network_connects_to_itself(world: World) -> None:
    network = world.network()
    listener = network.listen()
    near = await network.connect(listener.address, 10.0)
    far = await listener.accept()
    await near.send(b"me")
    assert await far.recv(2) == b"me"


async def test_connections_are_accepted_in_order(world: World) -> None:
    here, there = world.network(), world.network()
    listener = there.listen()
    for index in range(50):
        channel = await here.connect(listener.address, 10.0)
        await channel.send(bytes([index]))
    got = [(await (await listener.accept()).recv(1))[0] for _ in range(50)]
    assert got == list(range(50))


async def test_an_accept_that_waits(world: World) -> None:
    here, there = world.network(), world.network()
    listener = there.listen()
    accepting = asyncio.ensure_future(listener.accept())
    await settle(world)
    assert not accepting.done()
    near = await here.connect(listener.address, 10.0)
    far = await accepting
    await far.send(b"hi")
    assert await near.recv(2) == b"hi"


async def test_a_cancelled_accept_and_reuse(world: World) -> None:
    here, there = world.network(), world.network()
    listener = there.listen()
    for _ in range(3):
        accepting = asyncio.ensure_future(listener.accept())
        await settle(world)
        accepting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await accepting
        near = await here.connect(listener.address, 10.0)
        await settle(world)
        await near.send(b"x")
        assert await (await listener.accept()).recv(1) == b"x"


async def test_refused(world: World) -> None:
    here, there = world.network(), world.network()
    listener = there.listen()
    listener.close()
    with pytest.raises(ConnectFailed) as caught:
        await here.connect(listener.address, 10.0)
    assert caught.value.code == errno.ECONNREFUSED
    assert str(listener.address) in str(caught.value)


async def test_a_closed_listener(world: World) -> None:
    here, there = world.network(), world.network()
    listener = there.listen()
    waiting = asyncio.ensure_future(listener.accept())
    await settle(world)
    for _ in range(2):
        listener.close()
    with pytest.raises(ConnectionClosed, match="listener"):
        await waiting
    with pytest.raises(ConnectionClosed, match="listener"):
        await listener.accept()
    with pytest.raises(ConnectFailed):
        await here.connect(listener.address, 10.0)


async def test_a_closed_listener_resets_who_was_not_accepted(world: World) -> None:
    here, there = world.network(), world.network()
    listener = there.listen()
    near = await here.connect(listener.address, 10.0)
    listener.close()
    with pytest.raises(ConnectionClosed):
        await near.recv(1)


async def fill(world: World, here: Network, backlog: int) -> tuple[int, EmucollError]:
    """Connect until the listener's backlog is full: how many came in, and how the next failed."""
    listener = world.network().listen(backlog)
    for count in range(20):
        try:
            await here.connect(listener.address, 0.2)
        except EmucollError as error:
            return count, error
    raise AssertionError("20 connections came in")


@pytest.mark.parametrize("backlog", [0, 1, 5])
async def test_a_full_backlog_reaches_the_connects_deadline(world: World, backlog: int) -> None:
    here = world.network()
    start = world.clock.now()
    count, error = await fill(world, here, backlog)
    assert isinstance(error, DeadlineExceeded)
    assert count == backlog + 1
    assert 0.15 <= world.clock.now() - start < 10
    assert "within 0.2 s" in str(error)


def fills_up(world: World) -> None:
    """Skip the test where connections are taken before anybody accepts them."""
    if isinstance(world, LateWorld):
        pytest.skip("its listeners take connections when they come")


async def test_a_connect_that_waits_is_let_in(world: World) -> None:
    fills_up(world)
    here, there = world.network(), world.network()
    listener = there.listen(0)
    await here.connect(listener.address, 10.0)
    waiting = asyncio.ensure_future(here.connect(listener.address, 30.0))
    await settle(world)
    assert not waiting.done()
    await listener.accept()
    near = await waiting  # the peer asks again after a second
    await near.send(b"x")
    assert await (await listener.accept()).recv(1) == b"x"


async def test_a_cancelled_connect(world: World) -> None:
    fills_up(world)
    here, there = world.network(), world.network()
    listener = there.listen(0)
    await here.connect(listener.address, 10.0)
    before = descriptors()
    waiting = asyncio.ensure_future(here.connect(listener.address, 30.0))
    await settle(world)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert descriptors() == before


async def test_a_closed_network_leaves_nothing(world: World) -> None:
    """`World.run` counts descriptors after every test; here everybody waits in some way as well."""
    fills_up(world)
    here, there = world.network(), world.network()
    listener = there.listen(0)
    accepting = asyncio.ensure_future(here.listen().accept())
    near = await here.connect(listener.address, 10.0)
    connecting = asyncio.ensure_future(here.connect(listener.address, 30.0))
    await settle(world)
    reading = asyncio.ensure_future(near.recv(1))
    writing = asyncio.ensure_future(near.send(bytes(64 << 20)))
    await settle(world)
    for network in (here, there):
        world.close(network)
        world.close(network)
    waits: tuple[asyncio.Future[Channel] | asyncio.Future[bytes] | asyncio.Future[None], ...]
    waits = (accepting, connecting, reading, writing)
    for waiting in waits:
        with pytest.raises((ConnectionClosed, ConnectFailed)):
            await waiting
