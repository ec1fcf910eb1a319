"""What a Channel does, in every world."""

import asyncio
import random
from collections.abc import Awaitable
from typing import NamedTuple, TypeVar

import pytest

from emucoll.errors import ConnectionClosed
from emucoll.net.base import Buffer, Channel, Listener, Network, drive
from tests.worlds import World, settle

T = TypeVar("T")
MIB = 1 << 20


class Pair(NamedTuple):
    """Both ends of one connection, and the two processes that hold them."""

    near: Channel
    far: Channel
    networks: tuple[Network, Network]
    listener: Listener


async def connected(world: World) -> Pair:
    here, there = world.network(), world.network()
    listener = there.listen()
    near = await here.connect(listener.address, 10.0)
    far = await listener.accept()
    return Pair(near, far, (here, there), listener)


def noise(count: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(count)


async def as_coroutine(wait: Awaitable[T]) -> T:
    """The seam promises an Awaitable; a TaskGroup wants a coroutine."""
    return await wait


async def read_to_end(channel: Channel) -> bytes:
    pieces = []
    while piece := await channel.recv_some(1 << 16):
        pieces.append(bytes(piece))
    return b"".join(pieces)


# Sizes and pieces -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 2, 28, 4095, 4096, 4097, 65_537, 3 * MIB + 1])
async def test_all_bytes_arrive_in_both_directions(world: World, count: int) -> None:
    near, far, *_ = await connected(world)

    async def send(channel: Channel, seed: int) -> None:
        await channel.send(noise(count, seed))
        await channel.flush()

    forth, back, *_ = await asyncio.gather(
        far.recv(count), near.recv(count), send(near, 1), send(far, 2)
    )
    assert forth == noise(count, 1)
    assert back == noise(count, 2)
    assert type(forth) is bytes


async def test_nothing_is_received_of_nothing(world: World) -> None:
    near, far, *_ = await connected(world)
    await near.send(b"")
    assert await far.recv(0) == b""
    await near.send(b"x")
    assert await far.recv(0) == b""
    assert await far.recv(1) == b"x"


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
async def test_any_buffer_can_be_sent_and_reused_at_once(world: World, kind: type) -> None:
    near, far, *_ = await connected(world)
    data = bytearray(noise(6 * MIB))
    sent = bytes(data)
    waits = near.send(kind(data))
    if kind is not bytes:
        data[:] = bytes(len(data))
    received = asyncio.ensure_future(far.recv(len(sent)))
    await waits
    assert await received == sent


@pytest.mark.parametrize("n", [7, 5000])
async def test_recv_puts_pieces_together(world: World, n: int) -> None:
    near, far, *_ = await connected(world)
    received = asyncio.ensure_future(far.recv(n))
    data = noise(n)
    for at in range(0, n, -(-n // 7)):
        await near.send(data[at : at + -(-n // 7)])
        await settle(world)
    assert await received == data


async def test_surplus_is_kept_in_order(world: World) -> None:
    near, far, *_ = await connected(world)
    data = noise(30_000)
    await near.send(data)
    got = b""
    for n in (1, 0, 2, 27, 1, 4096, 1, 5000, 3, 8192):
        got += await far.recv(n)
        got += await far.recv_some(1)
    assert data.startswith(got)
    assert len(got) == 1 + 2 + 27 + 1 + 4096 + 1 + 5000 + 3 + 8192 + 10


@pytest.mark.parametrize("limit", [1, 3, 100, 1 << 20])
async def test_recv_some_gives_one_byte_to_the_limit(world: World, limit: int) -> None:
    near, far, *_ = await connected(world)
    data = noise(100)
    await near.send(data)
    near.close()
    got = bytearray()
    while piece := await far.recv_some(limit):
        assert 1 <= len(piece) <= limit
        got += piece
    assert got == data
    assert bytes(await far.recv_some(limit)) == b"", "the end stays the end"


# Far more than the buffers ----------------------------------------------------------------------


@pytest.mark.parametrize("driven", [False, True])
async def test_both_sides_send_first_and_then_receive(world: World, driven: bool) -> None:
    near, far, *_ = await connected(world)
    size = 8 * MIB

    async def side(channel: Channel, seed: int) -> bytes:
        channel.send(noise(size, seed))  # above its bound: not awaited before it has received
        received = await channel.recv(size)
        await channel.flush()
        return received

    sides = [side(near, 1), side(far, 2)]
    forth, back = await asyncio.gather(*(map(drive, sides) if driven else sides))
    assert forth == noise(size, 2)
    assert back == noise(size, 1)


async def test_send_suspends_above_the_bound_and_resumes(world: World) -> None:
    near, far, *_ = await connected(world)
    near.bound = 64 * 1024
    sent = 0

    async def sender() -> None:
        nonlocal sent
        while sent < 32 * MIB:
            await near.send(bytes(MIB))
            sent += MIB

    task = asyncio.create_task(sender())
    await settle(world)
    suspended_at = sent
    assert suspended_at < 32 * MIB, "nobody reads, and yet everything was taken"
    await settle(world)
    assert sent == suspended_at
    received = 0
    while received < 32 * MIB:
        received += len(await far.recv_some(MIB))
    await task
    assert sent == received == 32 * MIB


async def test_send_below_the_bound_never_suspends(world: World) -> None:
    near, far, *_ = await connected(world)
    near.bound = 64 * MIB
    for _ in range(32):
        sending = near.send(noise(MIB)).__await__()
        assert next(sending, "done") == "done"
    flushing = asyncio.ensure_future(near.flush())
    await settle(world)
    assert not flushing.done(), "32 MiB cannot be in the network's hands when nobody reads"
    for _ in range(32):
        assert await far.recv(MIB) == noise(MIB)
    await flushing


# The end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [10, 10_000])
async def test_a_peer_that_closes_in_the_middle(world: World, n: int) -> None:
    near, far, *_ = await connected(world)
    received = asyncio.ensure_future(far.recv(n))
    await settle(world)
    await near.send(noise(n - 3))
    await settle(world)
    near.close()
    with pytest.raises(ConnectionClosed, match=f"3 bytes short of {n}"):
        await received
    assert await read_to_end(far) == noise(n - 3), "what had come can still be read"


async def test_a_peer_that_closes_while_data_is_queued_for_it(world: World) -> None:
    near, far, *_ = await connected(world)
    writer = asyncio.ensure_future(near.send(bytes(32 * MIB)))
    await settle(world)
    assert not writer.done()
    far.close()
    with pytest.raises(ConnectionClosed):
        await writer
    with pytest.raises(ConnectionClosed):
        await near.flush()
    with pytest.raises(ConnectionClosed):
        await near.send(b"more")


async def test_our_own_close_right_after_the_peers_tells_the_writer(world: World) -> None:
    near, far, *_ = await connected(world)
    writer = asyncio.ensure_future(near.send(bytes(32 * MIB)))
    await settle(world)
    far.close()
    near.close()
    with pytest.raises(ConnectionClosed):
        await writer


@pytest.mark.parametrize("some", [False, True])
async def test_data_and_the_end_in_one_piece(world: World, some: bool) -> None:
    near, far, *_ = await connected(world)
    receiving = asyncio.ensure_future(far.recv_some(100) if some else far.recv(4))
    await settle(world)
    await near.send(b"abcd")
    near.close()
    assert bytes(await receiving) == b"abcd"
    with pytest.raises(ConnectionClosed):
        await far.recv(1)


async def test_close_is_idempotent(world: World) -> None:
    near, far, *_ = await connected(world)
    for _ in range(3):
        near.close()
    with pytest.raises(ConnectionClosed):
        await near.recv(1)
    with pytest.raises(ConnectionClosed):
        near.send(b"x")
    assert await read_to_end(far) == b""


@pytest.mark.parametrize("driven", [False, True])
async def test_close_wakes_who_waits(world: World, driven: bool) -> None:
    near, _far, *_ = await connected(world)

    async def reader() -> bytes:
        return await near.recv(1)

    async def writer() -> None:
        await near.send(bytes(32 * MIB))

    run = drive if driven else asyncio.ensure_future
    waiting = [asyncio.ensure_future(run(each())) for each in (reader, writer)]
    await settle(world)
    assert not any(each.done() for each in waiting)
    near.close()
    for each in waiting:
        with pytest.raises(ConnectionClosed):
            await each


async def test_the_last_words_of_a_closed_channel_arrive(world: World) -> None:
    near, far, *_ = await connected(world)
    await near.send(b"last words")
    near.close()
    assert await read_to_end(far) == b"last words"


# One waiter a direction -------------------------------------------------------------------------


async def test_two_readers_are_a_mistake(world: World) -> None:
    near, far, *_ = await connected(world)
    first = asyncio.ensure_future(far.recv(1))
    await settle(world)
    with pytest.raises(AssertionError, match="two readers"):
        await far.recv(1)
    await near.send(b"1")
    assert await first == b"1"


async def test_two_writers_are_a_mistake(world: World) -> None:
    near, far, *_ = await connected(world)
    first = asyncio.ensure_future(near.send(bytes(32 * MIB)))
    await settle(world)
    with pytest.raises(AssertionError, match="two writers"):
        await near.flush()
    reader = asyncio.ensure_future(far.recv(32 * MIB))
    await first
    await reader


async def test_a_reader_and_a_writer_wait_at_once(world: World) -> None:
    near, far, *_ = await connected(world)
    writer = asyncio.ensure_future(near.send(bytes(32 * MIB)))
    reader = asyncio.ensure_future(near.recv(1))
    await settle(world)
    await far.send(b"x")
    assert await reader == b"x"
    assert not writer.done()
    await far.recv(32 * MIB)
    await writer


# asyncio around Channel waits -------------------------------------------------------------------


@pytest.mark.parametrize("n", [8, 9000])
@pytest.mark.parametrize("driven", [False, True])
async def test_a_cancelled_recv_loses_no_byte(world: World, n: int, driven: bool) -> None:
    near, far, *_ = await connected(world)

    async def receive() -> bytes:
        return await far.recv(n)

    data = noise(n)
    for at in range(0, n, n // 4):
        waiting = asyncio.ensure_future(drive(receive()) if driven else receive())
        await settle(world)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await near.send(data[at : at + n // 4])
    assert await far.recv(n) == data


async def test_a_cancelled_send_has_sent(world: World) -> None:
    near, far, *_ = await connected(world)
    data = noise(16 * MIB)
    waiting = asyncio.ensure_future(near.send(data))
    await settle(world)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await asyncio.gather(near.send(b"more"), reader := asyncio.ensure_future(far.recv(len(data))))
    assert reader.result() == data
    assert await far.recv(4) == b"more"


async def test_a_timeout_around_a_recv_and_reuse(world: World) -> None:
    near, far, *_ = await connected(world)
    start = world.clock.now()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await far.recv(1)
    assert world.clock.now() - start >= 0.045
    await near.send(b"late")
    async with asyncio.timeout(10):
        assert await far.recv(4) == b"late"


async def test_gather_and_a_task_group_of_waits(world: World) -> None:
    pairs = [await connected(world) for _ in range(3)]
    received = asyncio.gather(*(pair.far.recv(2) for pair in pairs))
    async with asyncio.TaskGroup() as group:
        back = [group.create_task(as_coroutine(pair.near.recv(3))) for pair in pairs]
        for index, pair in enumerate(pairs):
            await pair.near.send(b"%02d" % index)
            await pair.far.send(b"%03d" % index)
    assert await received == [b"00", b"01", b"02"]
    assert [task.result() for task in back] == [b"000", b"001", b"002"]


async def test_a_failure_in_a_task_group_cancels_the_waits(world: World) -> None:
    near, far, *_ = await connected(world)
    waiting = []

    async def fail() -> None:
        await near.recv(1)
        raise ValueError("on purpose")

    async def together() -> None:
        async with asyncio.TaskGroup() as group:
            waiting.append(group.create_task(as_coroutine(far.recv(1))))
            group.create_task(fail())
            await far.send(b"x")

    with pytest.raises(ExceptionGroup) as caught:
        await together()
    assert caught.group_contains(ValueError, match="on purpose")
    assert waiting[0].cancelled()
    await near.send(b"y")
    assert await far.recv(1) == b"y"


async def test_many_channels_echo(world: World) -> None:
    here, there = world.network(), world.network()
    listener = there.listen()

    async def serve(channel: Channel) -> None:
        while piece := await channel.recv_some(1000):
            await channel.send(piece)

    async def ask(index: int) -> None:
        channel = await here.connect(listener.address, 10.0)
        data: Buffer = noise(10 + 300 * index, index)
        await channel.send(data)
        assert await channel.recv(len(data)) == data
        channel.close()

    async def accept(count: int) -> None:
        await asyncio.gather(*[drive(serve(await listener.accept())) for _ in range(count)])

    await asyncio.gather(accept(100), *map(ask, range(100)))
