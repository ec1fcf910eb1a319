"""How a process that ends looks from the other side, in every world."""

import asyncio

import pytest

from emucoll.errors import ConnectFailed, ConnectionClosed
from tests.worlds import World, settle


async def test_a_process_that_ends_is_noticed_everywhere(world: World) -> None:
    here, there = world.network(), world.network()
    listener = there.listen()
    near = [await here.connect(listener.address, 10.0) for _ in range(3)]
    far = [await listener.accept() for _ in range(2)]  # the third is not accepted
    reading = [asyncio.ensure_future(channel.recv(1)) for channel in near]
    await settle(world)
    world.close(there)
    for wait in reading:
        with pytest.raises(ConnectionClosed):
            await wait
    for channel in far:
        with pytest.raises(ConnectionClosed):
            await channel.recv(1)
    with pytest.raises(ConnectFailed):
        await here.connect(listener.address, 10.0)


async def test_one_process_ends_and_others_go_on(world: World) -> None:
    networks = [world.network() for _ in range(3)]
    listener = networks[0].listen()
    near = [await network.connect(listener.address, 10.0) for network in networks[1:]]
    far = [await listener.accept() for _ in near]
    world.close(networks[1])
    with pytest.raises(ConnectionClosed):
        await far[0].recv(1)
    await near[1].send(b"on")
    assert await far[1].recv(2) == b"on"
