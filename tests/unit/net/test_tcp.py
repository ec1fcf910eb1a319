"""What only TCP has: the order of dispatch, its counters, and how a network ends."""

import asyncio
import itertools
import math
import random
import resource
from typing import Any

import pytest

from emucoll.errors import ConnectFailed, ListenFailed
from emucoll.net import dispatch
from emucoll.net.base import drive
from emucoll.net.tcp import TcpChannel, TcpNetwork
from emucoll.wire.address import Address
from tests.worlds import TCP_WORLDS, TcpWorld, World, make_world, settle


@pytest.fixture(params=TCP_WORLDS)
def world(request: pytest.FixtureRequest) -> World:
    return make_world(request.param)


async def connected(network: TcpNetwork) -> tuple[TcpChannel, TcpChannel]:
    listener = network.listen()
    near = await network.connect(listener.address, 10.0)
    return near, await listener.accept()


async def all_waiting(
    world: World, orders: list[float], served: list[float]
) -> tuple[list[TcpChannel], list[asyncio.Task[None]]]:
    """A drive for each of `orders` that waits for a byte, served in that order; the channels on
    which to send it.
    """
    near_network, far_network = world.network(), world.network()
    assert isinstance(near_network, TcpNetwork)
    assert isinstance(far_network, TcpNetwork)
    listener = far_network.listen()
    near, far = [], []
    for _ in orders:
        near.append(await near_network.connect(listener.address, 10.0))
        far.append(await listener.accept())

    async def receive(channel: TcpChannel, order: float) -> None:
        await channel.recv(1)
        served.append(order)

    waits = [
        asyncio.ensure_future(drive(receive(channel, order)))
        for channel, order in zip(far, orders, strict=True)
    ]
    await settle(world)
    far_network.dispatch_in_order(list(zip(far, orders, strict=True)))
    return near, waits


async def everything_ready(
    world: World, count: int, orders: list[float], served: list[float]
) -> list[asyncio.Task[None]]:
    """As `all_waiting`, and each has its byte before anybody is served."""
    near, waits = await all_waiting(world, orders, served)
    for channel in random.Random(7).sample(near, count):
        channel.send(b"x")  # not a turn of the loop in between
    return waits


@pytest.mark.parametrize("count", [2, 20, dispatch.ORDERED_BATCH - 1])
async def test_ranks_are_served_in_order(world: World, count: int) -> None:
    orders = [float(order) for order in random.Random(1).sample(range(count), count)]
    served: list[float] = []
    await asyncio.gather(*await everything_ready(world, count, orders, served))
    assert served == sorted(orders)


async def test_the_order_may_be_infinite_and_shared(world: World) -> None:
    orders = [math.inf, 3.0, 3.0, -1.0]
    served: list[float] = []
    await asyncio.gather(*await everything_ready(world, 4, orders, served))
    assert served == [-1.0, 3.0, 3.0, math.inf]


async def test_a_batch_leaves_the_loop_its_turn(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "ORDERED_BATCH", 4)
    served: list[float] = []
    orders = [float(order) for order in range(20)]
    waits = await everything_ready(world, 20, orders, served)
    seen = []
    while len(served) < 20:
        seen.append(len(served))
        await asyncio.sleep(0)
    await asyncio.gather(*waits)
    assert served == orders
    steps = [after - before for before, after in itertools.pairwise(seen)]
    assert max(steps) <= 8, "a batch from the reader and one from the rest, at most"
    assert len(seen) > 2


async def test_news_in_every_turn_leave_the_loop_its_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "ORDERED_BATCH", 1)
    served: list[float] = []
    near, waits = await all_waiting(world, [float(order) for order in range(100)], served)
    late = iter(near[50:])

    def more() -> None:
        """Something new comes just after each dispatch."""
        for channel in late:
            channel.send(b"x")
            break

    assert isinstance(world, TcpWorld)
    world.networks[1]._after_dispatch = more
    for channel in near[:50]:
        channel.send(b"x")
    most = 0
    while len(served) < 100:
        before = len(served)
        await asyncio.sleep(0)
        most = max(most, len(served) - before)
    await asyncio.gather(*waits)
    assert most <= 2, "one for the reader and one for the rest, however long it goes on"


async def test_a_network_closed_in_mid_batch_says_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dispatch, "ORDERED_BATCH", 1)
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))
    served: list[float] = []
    waits = await everything_ready(world, 10, [float(order) for order in range(10)], served)
    while not served:
        await asyncio.sleep(0)
    assert len(served) < 10
    assert isinstance(world, TcpWorld)
    world.networks[1].close()
    await asyncio.gather(*waits, return_exceptions=True)
    await settle(world)
    assert faults == []


async def test_what_is_counted(world: World) -> None:
    network = world.network()
    assert isinstance(network, TcpNetwork)
    near, far = await connected(network)
    counters = network.counters
    assert (counters.connects, counters.messages, counters.bytes_sent) == (1, 0, 0)
    await near.send(b"four", messages=2)
    await near.send(b"")
    assert await far.recv(4) == b"four"
    assert (counters.messages, counters.bytes_sent, counters.writes) == (3, 4, 2)
    assert counters.syscalls >= counters.reads + counters.writes + counters.accepts


async def test_a_connect_counts_though_it_fails(world: World) -> None:
    network = world.network()
    assert isinstance(network, TcpNetwork)
    listener = network.listen()
    listener.close()
    with pytest.raises(ConnectFailed):
        await network.connect(listener.address, 10.0)
    assert network.counters.connects == 1
    assert len(network.channels) == 0


async def test_an_address_that_is_not_ours_to_bind() -> None:
    network = TcpNetwork("192.0.2.1")
    try:
        with pytest.raises(ListenFailed, match=r"192\.0\.2\.1"):
            network.listen()
        with pytest.raises(ConnectFailed):
            await network.connect(Address("127.0.0.1", 9), 10.0)
    finally:
        network.close()


async def test_every_network_of_a_process_connects_from_its_own_address() -> None:
    here, there = TcpNetwork("127.81.2.3"), TcpNetwork("127.81.2.4")
    try:
        listener = there.listen()
        assert listener.address.host == "127.81.2.4"
        await here.connect(listener.address, 10.0)
        far = await listener.accept()
        assert far._sock.getpeername()[0] == "127.81.2.3"
    finally:
        here.close()
        there.close()


async def test_out_of_descriptors() -> None:
    network = TcpNetwork("127.0.0.1")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        listener = network.listen()
        near = await network.connect(listener.address, 10.0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (near._fd + 1, hard))
        with pytest.raises(ListenFailed, match="descriptor"):
            await listener.accept()
        with pytest.raises(ListenFailed):
            network.listen()
        with pytest.raises(ConnectFailed) as caught:
            await network.connect(listener.address, 10.0)
        assert caught.value.code != 0
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        far = await listener.accept()
        await near.send(b"x")
        assert await far.recv(1) == b"x"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        network.close()
