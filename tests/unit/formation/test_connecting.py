"""What formations do alike: retries as NCCL and NCCLX make them, and strangers at a rank's door."""

import asyncio
import errno
import itertools
import random
from collections.abc import Awaitable, Callable

import pytest

from emucoll.errors import ConnectFailed, DeadlineExceeded, EmucollError, RemoteProtocolError
from emucoll.formation import FORMATIONS
from emucoll.formation.base import (
    accept_bootstrap,
    connect,
    connect_bootstrap,
    count_roots,
)
from emucoll.formation.store_client import StoreClient, ncclx_pauses
from emucoll.formation.tcpstore import address_key
from emucoll.net.base import LISTEN_BACKLOG, Address, Channel, Listener, Network
from emucoll.net.retries import RETRIED, nccl_backoff, nccl_backoff_2_23, pause_s
from emucoll.rank import Job, Rank, stagger_s
from emucoll.trace import Trace
from emucoll.wire.nccl import (
    CHECK_IN_2_29,
    HELLO_BYTES,
    SocketType,
    UniqueId,
    frame,
    pack_hello,
)
from tests.worlds import World, default_world

MAGIC = 0xABCD_EF01_2345_6789
HELLO = pack_hello(MAGIC, SocketType.BOOTSTRAP)
SILENCE_S = 0.1
NOWHERE = Address("127.0.0.1", 1)


@pytest.fixture
def world() -> World:
    return default_world()


class Clock:
    """On it no time passes; it keeps what was slept."""

    def __init__(self) -> None:
        self.slept: list[float] = []

    def now(self) -> float:
        return 0.0

    async def sleep(self, s: float) -> None:
        self.slept.append(s)


class Failing:
    """A network on which connects fail by the script, then succeed with what `channel` gives."""

    def __init__(self, failures: list[EmucollError], network: Network | None = None) -> None:
        self.failures = failures
        self.deadlines: list[float] = []
        self._network = network

    def listen(self, backlog: int = LISTEN_BACKLOG) -> Listener:
        raise AssertionError("nobody listens here")

    async def connect(self, address: Address, deadline_s: float) -> Channel:
        self.deadlines.append(deadline_s)
        if self.failures:
            raise self.failures.pop(0)
        assert self._network is not None
        return await self._network.connect(address, deadline_s)


def make_rank(network: Network, clock: Clock | None = None) -> Rank:
    return Rank(3, 0, network, clock or Clock(), Trace(1, lambda: 0.0), random.Random(1))


def job(store: Address | None = None) -> Job:
    return Job(8, MAGIC, "c0", store=store, handshake_s=SILENCE_S, deadline_s=7.0)


def refused(code: int = errno.ECONNREFUSED) -> ConnectFailed:
    return ConnectFailed(f"errno {code}", code)


# Retries ----------------------------------------------------------------------------------------


def test_nccls_pauses() -> None:
    backoff = nccl_backoff()
    codes = itertools.cycle(RETRIED)  # they are counted together
    pauses = list(iter(lambda: pause_s(backoff, next(codes)), None))
    assert len(pauses) == 34
    assert pauses[:3] == pytest.approx([0.1, 0.2, 0.3])
    assert sum(pauses) == pytest.approx(59.5)


def test_the_pauses_of_2_23_and_before() -> None:
    backoff = nccl_backoff_2_23()
    refused = list(iter(lambda: pause_s(backoff, errno.ECONNREFUSED), None))
    assert refused == [0.001] * 19_999, "the 20,000th is fatal"
    timed_out = list(iter(lambda: pause_s(backoff, errno.ETIMEDOUT), None))
    assert timed_out == [0.001] * 2, "counted apart; the third is fatal"
    for code in (errno.EINTR, errno.EAGAIN, errno.EHOSTUNREACH):
        assert pause_s(backoff, code) is None


def test_ncclxs_pauses() -> None:
    pauses = list(itertools.islice(ncclx_pauses(random.Random(1)), 200))
    for pause, base in zip(pauses, [0.5, 0.75, 1.125, 1.6875, 2.53125] + [3.0] * 195, strict=True):
        assert 0.9 * base <= pause <= 1.1 * base
    assert len(set(pauses)) == 200, "jittered"


@pytest.mark.parametrize(
    "code",
    [errno.ECONNREFUSED, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.EINTR, errno.EAGAIN],
)
async def test_what_nccl_retries(world: World, code: int) -> None:
    listener = world.network().listen()
    clock = Clock()
    network = Failing([refused(code)] * 3, world.network())
    rank = make_rank(network, clock)
    channel = await connect_bootstrap(rank, listener.address, job())
    assert await (await listener.accept()).recv(HELLO_BYTES) == HELLO
    channel.close()
    assert clock.slept == pytest.approx([0.1, 0.2, 0.3])
    assert rank.trace.retries == 3
    assert network.deadlines == [7.0] * 4


@pytest.mark.parametrize(
    "failure", [refused(errno.EMFILE), refused(errno.EADDRNOTAVAIL), DeadlineExceeded("late")]
)
async def test_what_nobody_retries(failure: EmucollError) -> None:
    clock = Clock()
    rank = make_rank(Failing([failure]), clock)
    with pytest.raises(type(failure)):
        await connect(rank, NOWHERE, job(), nccl_backoff())
    assert clock.slept == []
    assert rank.trace.retries == 0


async def test_retries_come_to_an_end() -> None:
    clock = Clock()
    rank = make_rank(Failing([refused()] * 35), clock)
    with pytest.raises(ConnectFailed):
        await connect(rank, NOWHERE, job(), nccl_backoff())
    assert len(clock.slept) == rank.trace.retries == 34


async def test_a_rank_of_2_22_retries_what_that_release_did(world: World) -> None:
    formation = FORMATIONS["nccl-root-2.22"]
    listener = world.network().listen()
    clock = Clock()
    failures: list[EmucollError] = [refused()] * 50 + [refused(errno.ETIMEDOUT)]
    rank = make_rank(Failing(failures, world.network()), clock)
    (await connect_bootstrap(rank, listener.address, job(), formation.backoff())).close()
    assert clock.slept == [0.001] * 51
    for failure in (refused(errno.EHOSTUNREACH), refused(errno.EAGAIN)):
        rank = make_rank(Failing([failure]), clock)
        with pytest.raises(ConnectFailed):
            await connect_bootstrap(rank, listener.address, job(), formation.backoff())
        assert rank.trace.retries == 0


@pytest.mark.parametrize(
    ("local_id", "owned", "threshold", "rate", "expected"),
    [
        (0, 257, 256, 7000.0, 0.0),
        (256, 257, 256, 7000.0, 256 / 7000),
        (255, 256, 256, 7000.0, 0.0),
        (98_303, 98_304, 256, 7000.0, 98_303 / 7000),
        (98_303, 98_304, 256, 0.0, 0.0),
        (5, 6, 0, 10.0, 0.5),
    ],
)
def test_stagger(local_id: int, owned: int, threshold: int, rate: float, expected: float) -> None:
    assert stagger_s(local_id, owned, threshold, rate) == pytest.approx(expected)
    nccl = FORMATIONS["nccl-root"]
    assert nccl.stagger_s(local_id, owned, threshold, rate) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("rank", "nranks", "expected"),
    [(127, 128, 0.0), (0, 129, 0.0), (128, 129, 0.128), (98_303, 98_304, 98.303)],
)
@pytest.mark.parametrize(("threshold", "rate"), [(256, 7000.0), (10**6, 7000.0), (0, 0.0)])
def test_stagger_of_2_22(
    rank: int, nranks: int, expected: float, threshold: int, rate: float
) -> None:
    """No option of a later release changes it."""
    formation = FORMATIONS["nccl-root-2.22"]
    assert formation.stagger_s(rank, nranks, threshold, rate) == pytest.approx(expected)


def test_a_store_staggers_nobody() -> None:
    assert FORMATIONS["tcpstore"].stagger_s(98_303, 98_304, 0, 1.0) == 0.0


# Strangers --------------------------------------------------------------------------------------

STRANGERS = {
    "wrong magic": pack_hello(MAGIC ^ 1, SocketType.BOOTSTRAP),
    "wrong type": pack_hello(MAGIC, SocketType.NETSOCKET),
    "http": b"GET / HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("hello", STRANGERS.values(), ids=STRANGERS)
@pytest.mark.parametrize("count", [1, 5])
async def test_strangers_are_dropped_and_the_peer_is_taken(
    world: World, hello: bytes, count: int
) -> None:
    rank = make_rank(world.network())
    listener = rank.network.listen()
    strangers = [await rank.network.connect(listener.address, 10.0) for _ in range(count)]
    for stranger in strangers:
        await stranger.send(hello)
    peer = await connect_bootstrap(rank, listener.address, job())
    channel = await accept_bootstrap(rank, listener, job())
    await peer.send(b"data")
    assert await channel.recv(4) == b"data", "nothing of the hello is left before it"
    assert len(rank.trace.dropped) == count
    for stranger in strangers:
        with pytest.raises(RemoteProtocolError):
            await stranger.recv(1)


@pytest.mark.parametrize("said", [b"", HELLO[:8]])
@pytest.mark.parametrize("closes", [False, True])
async def test_half_a_hello(world: World, said: bytes, closes: bool) -> None:
    rank = make_rank(world.network())
    listener = rank.network.listen()
    stranger = await rank.network.connect(listener.address, 10.0)
    await stranger.send(said)
    if closes:
        stranger.close()
    await connect_bootstrap(rank, listener.address, job())
    await accept_bootstrap(rank, listener, job())
    (reason,) = rank.trace.dropped
    expected = f"bytes short of {HELLO_BYTES}" if closes else f"silent for {SILENCE_S:g} s"
    assert expected in reason


# A store that does what it should not -----------------------------------------------------------

Script = Callable[[Channel], Awaitable[None]]


async def scripted(world: World, *scripts: Script) -> Address:
    """A store whose n-th client meets the n-th script."""
    listener = world.network().listen()

    async def serve() -> None:
        for script in scripts:
            channel = await listener.accept()
            await script(channel)

    task = asyncio.create_task(serve())
    task.add_done_callback(lambda done: done.cancelled() or done.result())
    return listener.address


async def resets(channel: Channel) -> None:
    channel.close()


async def greets(channel: Channel) -> None:
    await channel.recv(5 + 1)
    await channel.send(await channel.recv(4))


async def greets_wrongly(channel: Channel) -> None:
    await channel.recv(5 + 5)
    await channel.send(b"\xff" * 4)


def answers(*replies: bytes) -> Script:
    async def script(channel: Channel) -> None:
        await greets(channel)
        for reply in replies:
            await channel.recv_some(1000)
            await channel.send(reply)

    return script


async def test_a_store_that_could_not_keep_up_is_asked_again(world: World) -> None:
    clock = Clock()
    rank = make_rank(world.network(), clock)
    store = await scripted(world, resets, resets, greets)
    (await StoreClient.open(rank, job(store))).close()
    assert rank.trace.retries == len(clock.slept) == 2
    assert rank.trace.requests == 2, "what was tried in vain is no request"


async def test_a_wrong_echo(world: World) -> None:
    store = await scripted(world, greets_wrongly)
    with pytest.raises(RemoteProtocolError, match="PING 3"):
        await StoreClient.open(make_rank(world.network()), job(store))


@pytest.mark.parametrize(
    ("replies", "text"),
    [
        ((b"\1",), "answered WAIT with 1"),
        ((b"\0", (29).to_bytes(8, "little")), "29 bytes; at most 28"),
        ((b"\0", b"\xff" * 8), "above"),
    ],
)
async def test_a_store_that_answers_wrongly(
    world: World, replies: tuple[bytes, ...], text: str
) -> None:
    store = await scripted(world, answers(*replies))
    client = await StoreClient.open(make_rank(world.network()), job(store))
    with pytest.raises(RemoteProtocolError, match=text):
        await client.get(b"/k", 28)


async def test_a_value_that_is_there(world: World) -> None:
    store = await scripted(world, answers(b"\0", (3).to_bytes(8, "little") + b"abc"))
    rank = make_rank(world.network())
    client = await StoreClient.open(rank, job(store))
    assert await client.get(b"/k", 28) == b"abc"
    assert rank.trace.requests == 4


# Roots ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("formation", "nranks", "asked", "count"),
    [
        ("nccl-multiroot", 1, None, 1),
        ("nccl-multiroot", 128, None, 1),
        ("nccl-multiroot", 129, None, 2),
        ("nccl-multiroot", 98_304, None, 768),
        ("nccl-multiroot", 98_304, 5, 5),
        ("nccl-root", 98_304, None, 1),
        ("nccl-root-2.22", 98_304, None, 1),
        ("tcpstore", 98_304, None, 0),
    ],
)
def test_how_many_roots(formation: str, nranks: int, asked: int | None, count: int) -> None:
    assert count_roots(FORMATIONS[formation], nranks, asked) == count


async def test_each_root_has_its_magic_and_the_ring_the_first_ones(world: World) -> None:
    """Rank 0 of 4 with two roots: who connects to whom with which hello, played by hand."""
    home, network = world.network(), world.network()
    listeners = [home.listen(), home.listen()]
    ids = tuple(UniqueId(MAGIC + i, each.address) for i, each in enumerate(listeners))
    job = Job(4, MAGIC, "c0", roots=ids, check_in=CHECK_IN_2_29, handshake_s=SILENCE_S)
    rank = Rank(0, 0, network, world.clock, Trace(1), random.Random(1))
    forming = asyncio.create_task(FORMATIONS["nccl-multiroot"].form(rank, job))
    said = []
    for i, listener in enumerate(listeners):
        channel = await listener.accept()
        assert await channel.recv(HELLO_BYTES) == pack_hello(MAGIC + i, SocketType.BOOTSTRAP)
        said.append(CHECK_IN_2_29.unpack((await channel.recv(4 + 176))[4:]))
        channel.close()
    own, other = said
    assert own[:5] == (0, 4, 0, 2, 0)
    assert other == own._replace(rank=4, iroot=1), "root 1 knows it as the one after its last"
    stranger = await home.connect(own.reply, 10.0)
    await stranger.send(pack_hello(MAGIC + 1, SocketType.BOOTSTRAP))
    following = home.listen()
    reply = await home.connect(own.reply, 10.0)
    await reply.send(HELLO + frame(CHECK_IN_2_29.pack_connect_info(following.address)))
    to = await following.accept()
    assert await to.recv(HELLO_BYTES) == HELLO
    previous = await home.connect(own.ring, 10.0)
    await previous.send(HELLO)
    await forming
    assert len(rank.trace.dropped) == 1, "root 1 has nothing to say to root 0's ranks"


# What a formation declares ----------------------------------------------------------------------


def test_a_key_is_metas() -> None:
    assert address_key("3f1c", 98_303) == b"/bootstrapAddr-3f1c-98303"


def test_formations_declare_what_they_hold() -> None:
    for name, formation in FORMATIONS.items():
        assert formation.name == name
        assert formation.server in ("root", "store")
        assert formation.unformed_descriptors >= formation.formed_descriptors == 3
        assert formation.windowable is not formation.check_in.collects
