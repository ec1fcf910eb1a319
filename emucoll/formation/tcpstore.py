"""Ring formation through a TCPStore, without a root: Meta's NCCLX
(`NCCL_FASTINIT_MODE=ring_hybrid`).

Each rank stores its ring listener's address under a key of its own and reads one key, that of rank
+ 1: every key has one reader, so none is hot. Five requests and three replies a rank, on one
connection; no barrier and no counter.

Also the client side of PyTorch's TCPStore protocol, as far as this needs it.
"""

import random
from collections.abc import Iterator

from emucoll.errors import RemoteProtocolError
from emucoll.formation.base import Formation, accept_bootstrap, connect, connect_bootstrap
from emucoll.net.base import Channel
from emucoll.net.retries import alike
from emucoll.rank import Job, Rank, Ring
from emucoll.wire.address import ADDRESS_BYTES, pack_address, unpack_address
from emucoll.wire.tcpstore import (
    STOP_WAITING,
    get_request,
    ping,
    set_request,
    validate,
    value_length,
    wait_request,
)


def ncclx_pauses(jitter: random.Random) -> Iterator[float]:
    """NCCLX's pauses between tries to reach the store: 500 ms x 1.5, at most 3 s, +-10 %, without
    end.
    """
    pause_s = 0.5
    while True:
        yield pause_s * jitter.uniform(0.9, 1.1)
        pause_s = min(3.0, 1.5 * pause_s)


class StoreClient:
    """One client connection to a TCPStore. Requests are counted in the rank's trace."""

    def __init__(self, channel: Channel, rank: Rank) -> None:
        """Speak over an established connection."""
        self._channel = channel
        self._trace = rank.trace

    @classmethod
    async def open(cls, rank: Rank, job: Job) -> "StoreClient":
        """Connect, VALIDATE, PING and wait for the echo; all of it is tried again when the network
        fails.
        """
        assert job.store is not None, "this formation needs a store"
        nonce = rank.rank & 0xFFFFFFFF
        greeting = validate() + ping(nonce)
        pauses = ncclx_pauses(rank.random)
        backoff = alike(pauses)
        while True:
            channel = await connect(rank, job.store, job, backoff)
            try:
                await channel.send(greeting, messages=2)
                echo = await channel.recv(4)
            except (
                RemoteProtocolError
            ):  # accepted by the kernel, then reset by a store that could not keep up
                channel.close()
                rank.trace.retries += 1
                await rank.clock.sleep(next(pauses))
                continue
            if int.from_bytes(echo, "little") != nonce:
                raise RemoteProtocolError(f"the store answered PING {nonce} with {echo.hex(' ')}")
            rank.trace.requests += 2
            return cls(channel, rank)

    async def set(self, key: bytes, value: bytes) -> None:
        """SET; nothing is answered."""
        self._trace.requests += 1
        await self._channel.send(set_request(key, value))

    async def get(self, key: bytes, limit: int) -> bytes:
        """WAIT for the key, then GET it: two round trips. Above `limit` bytes is an error."""
        self._trace.requests += 2
        await self._channel.send(wait_request((key,)))
        answer = await self._channel.recv(1)
        if answer[0] != STOP_WAITING:
            raise RemoteProtocolError(f"the store answered WAIT with {answer[0]}")
        await self._channel.send(get_request(key))
        length = value_length(await self._channel.recv(8))
        if not 0 <= length <= limit:
            raise RemoteProtocolError(
                f"the store answered GET {key!r} with {length} bytes; at most {limit} were expected"
            )
        return await self._channel.recv(length)

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()


class TcpStoreRing(Formation):
    """A key per rank in a TCPStore."""

    name = "tcpstore"
    text = (
        "Meta's NCCLX: each rank publishes its address in a TCPStore and reads that of rank + 1; "
        "no root"
    )
    server = "store"
    unformed_descriptors = 4  # store connection, ring listener, the two ring sockets
    formed_descriptors = 3
    listeners = 1
    windowable = True

    async def form(self, rank: Rank, job: Job) -> Ring:
        """See Formation.form."""
        r, n = rank.rank, job.nranks
        following = (r + 1) % n
        with rank.span("bootstrap.create_store", peer="store"):
            store = await StoreClient.open(rank, job)
        with rank.span("bootstrap.create"):
            listener = rank.network.listen()
        with rank.span("bootstrap.set_key", peer="store"):
            await store.set(address_key(job.comm, r), pack_address(listener.address))
        with rank.span("bootstrap.get_key", peer=following):
            successor = unpack_address(
                await store.get(address_key(job.comm, following), ADDRESS_BYTES)
            )
        with rank.span("bootstrap.connect", peer=following):
            next_channel = await connect_bootstrap(rank, successor, job)
        with rank.span("bootstrap.accept", peer=(r - 1) % n):
            prev_channel = await accept_bootstrap(rank, listener, job)
        store.close()
        return Ring(next_channel, prev_channel, listener)


def address_key(comm: str, rank: int) -> bytes:
    """The key under which a rank's 28-byte ring address stands, as the wire sees it."""
    return b"/bootstrapAddr-%s-%d" % (comm.encode(), rank)
