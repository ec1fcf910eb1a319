"""The root over TCP: what it answers, whom it drops, and when it quits."""

import asyncio
import errno
from typing import NamedTuple

import pytest

from emucoll.errors import ConnectFailed, RemoteProtocolError
from emucoll.net.base import LISTEN_BACKLOG, Channel, Listener, Network
from emucoll.servers.root import RootServer
from emucoll.servers.root_state import CollectingRootState, RootState
from emucoll.wire.address import Address, pack_address
from emucoll.wire.nccl import (
    CHECK_IN_2_18,
    CHECK_IN_2_23,
    CHECK_IN_2_29,
    HELLO_BYTES,
    CheckIn,
    CheckInLayout,
    SocketType,
    frame,
    pack_hello,
)
from tests.worlds import World, default_world, settle

MAGIC = 0x1234_5678_9ABC_DEF0
HELLO = pack_hello(MAGIC, SocketType.BOOTSTRAP)
SILENCE_S = 0.1


@pytest.fixture
def world() -> World:
    return default_world()


class Root(NamedTuple):
    """A root that serves, and a network from which to reach it."""

    server: RootServer
    listener: Listener
    ranks: Network
    serving: asyncio.Task[None]
    layout: CheckInLayout = CHECK_IN_2_29

    async def connect(self) -> Channel:
        return await self.ranks.connect(self.listener.address, 10.0)

    async def check_in(self, rank: int, nranks: int) -> Listener:
        """Check in as a rank would; its reply listener."""
        reply = self.ranks.listen()
        channel = await self.connect()
        c = CheckIn(rank, nranks, 0, 1, 0, reply.address, ring_address(rank))
        await channel.send(HELLO + frame(self.layout.pack(c)))
        channel.close()
        return reply


def ring_address(rank: int) -> Address:
    return Address("10.0.0.1", 1000 + rank)


def start(
    world: World, nranks: int, network: Network | None = None, counts: list[int] | None = None
) -> Root:
    home = world.network()
    server = RootServer(
        network or home,
        world.clock,
        RootState(nranks),
        MAGIC,
        CHECK_IN_2_29,
        SILENCE_S,
        None if counts is None else counts.append,
    )
    listener = home.listen()
    task = asyncio.create_task(server.serve(listener, 10.0))
    return Root(server, listener, world.network(), task)


async def answer(reply: Listener) -> bytes:
    """All that the root says to one rank."""
    channel = await reply.accept()
    data = b""
    while piece := await channel.recv_some(1000):
        data += piece
    return data


async def test_every_rank_hears_of_its_successor(world: World) -> None:
    counts: list[int] = []
    root = start(world, 3, counts=counts)
    replies = {rank: await root.check_in(rank, 3) for rank in (1, 0, 2)}
    for rank, reply in replies.items():
        expected = HELLO + frame(CHECK_IN_2_29.pack_connect_info(ring_address((rank + 1) % 3)))
        assert await answer(reply) == expected
    await root.serving
    assert counts == [1, 2, 3]
    assert (root.server.connections, root.server.retries) == (6, 0)


async def test_a_collecting_root_answers_nobody_before_all_have_come(world: World) -> None:
    home, counts = world.network(), list[int]()
    state, layout = CollectingRootState(3), CHECK_IN_2_18
    server = RootServer(home, world.clock, state, MAGIC, layout, SILENCE_S, counts.append)
    listener = home.listen()
    serving = asyncio.create_task(server.serve(listener, 10.0))
    root = Root(server, listener, world.network(), serving, layout)
    replies = {rank: await root.check_in(rank, 3) for rank in (1, 0)}
    while counts != [1, 2]:
        await world.clock.sleep(0.001)
    await settle(world)
    assert server.connections == 2, "it has connected to nobody"
    replies[2] = await root.check_in(2, 3)
    for rank, reply in replies.items():
        packed = pack_address(ring_address((rank + 1) % 3))
        assert await answer(reply) == HELLO + (28).to_bytes(4, "little") + packed
    await serving
    assert (counts, server.connections) == ([1, 2, 3], 6)


async def test_a_lone_rank_hears_of_itself(world: World) -> None:
    root = start(world, 1)
    reply = await root.check_in(0, 1)
    assert (await answer(reply))[HELLO_BYTES:] == frame(
        CHECK_IN_2_29.pack_connect_info(ring_address(0))
    )
    await root.serving


WHOLE = CHECK_IN_2_29.pack(CheckIn(0, 1, 0, 1, 0, ring_address(0), ring_address(0)))
OLD = CHECK_IN_2_23.pack(CheckIn(0, 1, 0, 1, 0, ring_address(0), ring_address(0)))
STRANGERS = {
    "wrong magic": pack_hello(MAGIC + 1, SocketType.BOOTSTRAP),
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "wrong type": pack_hello(MAGIC, SocketType.PROXY),
    "a frame too long": HELLO + (1 << 30).to_bytes(4, "little"),
    "a negative frame": HELLO + b"\xff" * 4,
    "another layout": HELLO + frame(OLD),
    "rubbish in an address": HELLO + frame(WHOLE[:20] + b"\x63" * (len(WHOLE) - 20)),
}


@pytest.mark.parametrize("hello", STRANGERS.values(), ids=STRANGERS)
async def test_a_stranger_is_dropped_and_the_ring_forms(world: World, hello: bytes) -> None:
    root = start(world, 1)
    stranger = await root.connect()
    await stranger.send(hello)
    reply = await root.check_in(0, 1)
    await answer(reply)
    await root.serving
    assert len(root.server.dropped) == 1


@pytest.mark.parametrize("said", [b"", HELLO[:5], HELLO, HELLO + frame(WHOLE)[:100]])
async def test_an_early_close_is_passed_over(world: World, said: bytes) -> None:
    root = start(world, 1)
    stranger = await root.connect()
    await stranger.send(said)
    stranger.close()
    await answer(await root.check_in(0, 1))
    await root.serving
    assert len(root.server.dropped) == 1
    assert "short of" in root.server.dropped[0]


@pytest.mark.parametrize("said", [b"", HELLO[:5], HELLO, HELLO + frame(WHOLE)[:100]])
async def test_silence_is_cut_short(world: World, said: bytes) -> None:
    root = start(world, 1)
    began = world.clock.now()
    stranger = await root.connect()
    await stranger.send(said)
    await answer(await root.check_in(0, 1))
    await root.serving
    assert world.clock.now() - began >= SILENCE_S * 0.9
    assert root.server.dropped == [f"silent for {SILENCE_S:g} s in the middle of its check-in"]


@pytest.mark.parametrize(("rank", "nranks"), [(0, 3), (3, 3), (1, 4)])
async def test_a_rank_that_contradicts_the_job_ends_it(
    world: World, rank: int, nranks: int
) -> None:
    root = start(world, 3)
    await root.check_in(0, 3)
    await root.check_in(rank, nranks)
    with pytest.raises(RemoteProtocolError, match=f"rank {rank} "):
        await root.serving


class Refusing:
    """A network on which the first few connects are refused."""

    def __init__(self, network: Network, refusals: int, code: int) -> None:
        self._network = network
        self.left = refusals
        self._code = code

    def listen(self, backlog: int = LISTEN_BACKLOG) -> Listener:
        return self._network.listen(backlog)

    async def connect(self, address: Address, deadline_s: float) -> Channel:
        if self.left:
            self.left -= 1
            raise ConnectFailed("refused", self._code)
        return await self._network.connect(address, deadline_s)


class Hasty:
    """A clock on which no time passes; it keeps what was slept."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return 0.0

    async def sleep(self, s: float) -> None:
        self.slept.append(s)


async def served_with(
    world: World,
    refusals: int,
    layout: CheckInLayout = CHECK_IN_2_29,
    code: int = errno.ECONNREFUSED,
) -> tuple[RootServer, Hasty]:
    home, clock = world.network(), Hasty()
    server = RootServer(
        Refusing(home, refusals, code),
        clock,
        CollectingRootState(1) if layout.collects else RootState(1),
        MAGIC,
        layout,
        SILENCE_S,
    )
    listener = home.listen()
    serving = asyncio.create_task(server.serve(listener, 10.0))
    root = Root(server, listener, world.network(), serving, layout)
    reply = await root.check_in(0, 1)
    await root.serving
    await answer(reply)
    return server, clock


async def test_a_reply_is_tried_again_as_nccl_does(world: World) -> None:
    server, clock = await served_with(world, 3)
    assert clock.slept == pytest.approx([0.1, 0.2, 0.3])
    assert (server.retries, server.connections) == (3, 5)


async def test_a_reply_is_tried_again_as_2_22_did(world: World) -> None:
    server, clock = await served_with(world, 40, CHECK_IN_2_18)
    assert clock.slept == [0.001] * 40
    assert server.retries == 40


@pytest.mark.parametrize(
    ("refusals", "layout", "code"),
    [
        (35, CHECK_IN_2_29, errno.ECONNREFUSED),
        (1, CHECK_IN_2_23, errno.EADDRNOTAVAIL),
        (3, CHECK_IN_2_18, errno.ETIMEDOUT),
        (1, CHECK_IN_2_18, errno.EHOSTUNREACH),
    ],
)
async def test_a_reply_is_not_tried_for_ever(
    world: World, refusals: int, layout: CheckInLayout, code: int
) -> None:
    with pytest.raises(ConnectFailed):
        await served_with(world, refusals, layout, code)
