"""The TCPStore server over TCP: the order of replies, and clients that do what they should not."""

import asyncio
import contextlib
import struct
from collections.abc import AsyncIterator, Callable

import pytest

from emucoll.errors import ConnectionClosed
from emucoll.net.base import Buffer, Channel, Network
from emucoll.net.tcp import TcpChannel
from emucoll.servers.store import StoreServer
from emucoll.wire.address import Address
from emucoll.wire.tcpstore import (
    add_request,
    barrier_request,
    get_request,
    ping,
    queue_push_request,
    set_request,
    validate,
    wait_request,
)
from tests.worlds import World, default_world, settle

STOP = b"\0"
SILENCE_S = 0.1


@pytest.fixture
def world() -> World:
    return default_world()


def echo(nonce: int) -> bytes:
    return nonce.to_bytes(4, "little")


class Served:
    """A store, and clients of it."""

    def __init__(self, server: StoreServer, address: Address, network: Network) -> None:
        self.server = server
        self.address = address
        self._network = network

    async def stranger(self) -> Channel:
        return await self._network.connect(self.address, 10.0)

    async def client(self) -> Channel:
        channel = await self.stranger()
        await channel.send(validate() + ping(1))
        assert await channel.recv(4) == echo(1)
        return channel

    async def value(self, key: bytes) -> bytes:
        """What another client finds."""
        channel = await self.client()
        await channel.send(get_request(key))
        value = await channel.recv(int.from_bytes(await channel.recv(8), "little"))
        channel.close()
        return value


@contextlib.asynccontextmanager
async def serving(
    world: World, handshake_s: float = 10.0, on_connect: Callable[[int], None] | None = None
) -> AsyncIterator[Served]:
    server = StoreServer(world.clock, handshake_s, on_connect)
    listener = world.network().listen()
    task = asyncio.create_task(server.serve(listener))
    try:
        yield Served(server, listener.address, world.network())
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def rest(channel: Channel) -> bytes:
    """All that comes until the server closes."""
    data = b""
    while piece := await channel.recv_some(1 << 16):
        data += piece
    return data


# Serving ----------------------------------------------------------------------------------------


async def test_one_client_waits_for_what_another_sets(world: World) -> None:
    counts: list[int] = []
    async with serving(world, on_connect=counts.append) as store:
        waiting, setting = await store.client(), await store.client()
        await waiting.send(wait_request((b"k",)) + ping(2))
        assert await waiting.recv(4) == echo(2), "requests go on behind a WAIT"
        await setting.send(set_request(b"k", b"value"))
        assert await waiting.recv(1) == STOP
        assert await store.value(b"k") == b"value"
        assert counts == [1, 2, 3]
        assert store.server.connections == store.server.validated == 3
        assert store.server.dropped == []


async def test_a_request_in_pieces(world: World) -> None:
    async with serving(world) as store:
        channel = await store.stranger()
        for byte in validate() + set_request(b"key", b"value") + ping(9):
            await channel.send(bytes([byte]))
        assert await channel.recv(4) == echo(9)
        assert await store.value(b"key") == b"value"


@pytest.mark.parametrize(
    "waker",
    [set_request(b"k", b"v"), queue_push_request(b"k", b"v")],
    ids=["set", "queue_push"],
)
async def test_who_wakes_himself_is_answered_in_order(world: World, waker: bytes) -> None:
    async with serving(world) as store:
        channel = await store.client()
        await channel.send(wait_request((b"k",)) + ping(5) + waker + ping(6))
        assert await channel.recv(9) == echo(5) + STOP + echo(6)


async def test_a_barrier_that_its_own_client_completes(world: World) -> None:
    async with serving(world) as store:
        channel = await store.client()
        await channel.send(barrier_request(b"b", 2) + ping(5) + barrier_request(b"b", 2) + ping(6))
        assert await channel.recv(10) == echo(5) + STOP + STOP + echo(6)


async def test_replies_far_above_the_buffers(world: World) -> None:
    async with serving(world) as store:
        value = bytes(range(256)) * 4096
        channel = await store.client()
        for request in [set_request(b"k", value), *[get_request(b"k")] * 20, ping(3)]:
            await channel.send(request)
        for _ in range(20):
            assert await channel.recv(8) == struct.pack("<Q", len(value))
            assert await channel.recv(len(value)) == value
        assert await channel.recv(4) == echo(3)


async def test_a_waiting_client_that_has_gone_harms_nobody(world: World) -> None:
    async with serving(world) as store:
        gone, setting = await store.client(), await store.client()
        assert isinstance(gone, TcpChannel)
        await gone.send(wait_request((b"k",)) + ping(2))
        assert await gone.recv(4) == echo(2)
        gone.abort()
        while store.server.state.stuck_waits():
            await world.clock.sleep(0.001)
        await setting.send(set_request(b"k", b"v") + ping(3))
        assert await setting.recv(4) == echo(3)
        assert await store.value(b"k") == b"v"
        assert store.server.state.stuck_waits() == []


async def test_a_store_that_ends_closes_its_clients(world: World) -> None:
    async with serving(world) as store:
        channel = await store.client()
    with contextlib.suppress(ConnectionClosed):
        assert await rest(channel) == b""


# Clients that break the protocol ----------------------------------------------------------------


async def test_what_came_before_rubbish_counts(world: World) -> None:
    async with serving(world) as store:
        channel = await store.client()
        await channel.send(set_request(b"k", b"v") + ping(7) + b"\xc8" + ping(8))
        assert await rest(channel) == echo(7)
        assert await store.value(b"k") == b"v"
        assert any("opcode 200" in reason for reason in store.server.dropped)


async def test_what_came_before_an_impossible_request_is_answered(world: World) -> None:
    async with serving(world) as store:
        channel = await store.client()
        await channel.send(
            set_request(b"k", b"no number") + ping(7) + add_request(b"k", 1) + ping(8)
        )
        assert await rest(channel) == echo(7)
        assert await store.value(b"k") == b"no number"
        assert len(store.server.dropped) == 1


async def test_replies_above_the_buffers_before_rubbish(world: World) -> None:
    async with serving(world) as store:
        value = bytes(8 << 20)
        channel = await store.client()
        await channel.send(set_request(b"k", value) + get_request(b"k") + b"\xff")
        assert len(await rest(channel)) == 8 + len(value)


class Recording:
    """A channel that brings `data`, and keeps what was asked of it."""

    bound = 1 << 20

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.calls: list[str] = []
        self.closed = asyncio.Event()

    async def send(self, data: Buffer, messages: int = 1) -> None:
        self.calls.append(f"send {bytes(data).hex()} {messages}")

    async def flush(self) -> None:
        self.calls.append("flush")

    async def recv(self, n: int) -> bytes:
        raise AssertionError("the store takes what comes")

    async def recv_some(self, limit: int) -> Buffer:
        data, self._data = self._data, b""
        return data

    def close(self) -> None:
        self.calls.append("close")
        self.closed.set()


class Brings:
    """A listener to which one client comes."""

    address = Address("127.0.0.1", 1)

    def __init__(self, channel: Channel) -> None:
        self._channels = [channel]

    async def accept(self) -> Channel:
        if not self._channels:
            await asyncio.Event().wait()
        return self._channels.pop()

    def close(self) -> None:
        """Nothing to close."""


async def test_the_replies_before_a_fault_are_gone_before_it_closes(world: World) -> None:
    channel = Recording(validate() + ping(7) + ping(8) + b"\xff")
    serving = asyncio.create_task(StoreServer(world.clock).serve(Brings(channel)))
    await channel.closed.wait()
    serving.cancel()
    assert channel.calls == ["send 0700000008000000 2", "flush", "close"]


async def test_a_valid_first_request_and_rubbish_in_one_piece(world: World) -> None:
    async with serving(world) as store:
        channel = await store.stranger()
        await channel.send(validate() + ping(7) + b"\xff")
        assert await rest(channel) == echo(7)
        assert store.server.validated == 1


STRANGERS = {
    "wrong magic": b"\0" + bytes(4),
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "no validate": get_request(b"k"),
    "validate twice": validate() + validate(),
    "a key too long": validate() + b"\x03" + (8193).to_bytes(8, "little"),
    "a list too long": validate() + b"\x06" + (131_073).to_bytes(8, "little"),
    "a negative length": validate() + b"\x01" + b"\xff" * 8,
}


@pytest.mark.parametrize("hello", STRANGERS.values(), ids=STRANGERS)
async def test_a_stranger_is_dropped_and_the_rest_go_on(world: World, hello: bytes) -> None:
    async with serving(world) as store:
        before = await store.client()
        stranger = await store.stranger()
        await stranger.send(hello)
        assert await rest(stranger) == b""
        assert len(store.server.dropped) == 1
        await before.send(ping(2))
        assert await before.recv(4) == echo(2)
        assert await store.value(b"k") == b""


async def test_who_connects_and_closes(world: World) -> None:
    async with serving(world) as store:
        for _ in range(20):
            (await store.stranger()).close()
        assert await store.value(b"k") == b""
        assert store.server.validated == 1


@pytest.mark.parametrize("hello", [b"", validate()[:3]], ids=["nothing", "half a hello"])
async def test_who_stays_silent_is_dropped(world: World, hello: bytes) -> None:
    async with serving(world, handshake_s=SILENCE_S) as store:
        known = await store.client()
        stranger = await store.stranger()
        await stranger.send(hello)
        start = world.clock.now()
        assert await rest(stranger) == b""
        assert SILENCE_S * 0.9 <= world.clock.now() - start < 10
        assert store.server.dropped == [f"said nothing valid for {SILENCE_S:g} s"]
        await settle(world)
        await known.send(ping(2))
        assert await known.recv(4) == echo(2), "whoever has said hello may be silent as he likes"
