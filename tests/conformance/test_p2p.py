"""Point to point: connections told apart by who sends and a tag, in whatever order they come."""

import asyncio
import random

from emucoll.net.base import Listener, Network
from emucoll.p2p import PointToPoint
from emucoll.rank import Job, Rank
from emucoll.trace import Trace
from emucoll.wire.nccl import SocketType, frame, pack_hello
from tests.worlds import World, settle

MAGIC = 0xABCD


def end(
    world: World, number: int, handshake_s: float = 10.0
) -> tuple[PointToPoint, Rank, Listener]:
    network = world.network()
    rank = Rank(number, 0, network, world.clock, Trace(1), random.Random(1))
    job = Job(8, MAGIC, "p2p", handshake_s=handshake_s)
    listener = network.listen()
    return PointToPoint(rank, job, listener), rank, listener


async def test_whoever_comes_early_is_kept_until_waited_for(world: World) -> None:
    here, _, listener = end(world, 0)
    one, two = end(world, 1)[0], end(world, 2)[0]
    for sender, number, tag in ((one, 1, 5), (one, 1, 6), (two, 2, 5), (two, 2, -1)):
        channel = await sender.connect(listener.address, tag)
        await channel.send(b"%d/%+d" % (number, tag))
    for number, tag in ((2, -1), (1, 6), (2, 5), (1, 5)):
        channel = await here.accept(number, tag)
        assert await channel.recv(4) == b"%d/%+d" % (number, tag)
        channel.close()


async def test_strangers_are_dropped_and_the_rank_goes_on(world: World) -> None:
    here, rank, listener = end(world, 0, handshake_s=0.2)
    stranger: Network = world.network()
    hello = pack_hello(MAGIC, SocketType.BOOTSTRAP)
    kept = []
    for said in (
        b"GET /metrics",
        hello,
        hello + frame(b"\0\0\0\0"),
        hello + b"\xff\xff\xff\x7f" + bytes(8),
        hello + frame(bytes(8)) * 2,
        hello + frame(bytes(8)),
    ):
        channel = await stranger.connect(listener.address, 10.0)
        await channel.send(said)
        kept.append(channel)
    closer = await stranger.connect(listener.address, 10.0)
    await closer.send(hello + b"\x08\0")
    closer.close()
    waiting = asyncio.ensure_future(here.accept(3, 1))
    await settle(world)
    friend = await end(world, 3)[0].connect(listener.address, 1)
    await friend.send(b"!")
    assert await (await waiting).recv(1) == b"!"
    dropped = " | ".join(rank.trace.dropped)
    assert len(rank.trace.dropped) == 6, dropped
    for reason in (
        "an HTTP request",
        "silent for 0.2 s before it said who sends",
        "4 bytes came instead of a sender's rank and tag",
        "a frame of 2147483647 bytes was announced",
        "rank 0 connected with tag 0 a second time",
        "closed the connection",
    ):
        assert reason in dropped
    here.close()
