"""What forming a ring and one AllGather really send, by any formation, in any world; and what the
protocols say that must be.

Real TCP and virtual time must both give `expected`, to the message and to the byte.
"""

import asyncio
import random
from typing import Any, NamedTuple

import numpy as np

from emucoll.collectives import ALLGATHERS
from emucoll.collectives.driver import Collective, run
from emucoll.collectives.schedule import NEXT, PREV
from emucoll.collectives.table import RecordTable, WrongBlocks
from emucoll.formation import FORMATIONS
from emucoll.formation.base import Formation, count_roots
from emucoll.formation.tcpstore import address_key
from emucoll.net.base import Network
from emucoll.p2p import PointToPoint, RingPeers
from emucoll.plans.steps import one_allgather
from emucoll.rank import Job, Rank, Ring
from emucoll.servers.root import RootServer
from emucoll.servers.root_state import CollectingRootState, RootState
from emucoll.servers.store import StoreServer
from emucoll.trace import Trace
from emucoll.wire.address import ADDRESS_BYTES, pack_address
from emucoll.wire.nccl import (
    CHECK_IN_2_18,
    CHECK_IN_2_29,
    CONNECT_INFO_BYTES,
    HELLO_BYTES,
    LENGTH_BYTES,
    UniqueId,
)
from tests.worlds import Sent, World

MAGIC = 0xFEED_FACE_CAFE_F00D
COMM = "agreement"


class Counts(NamedTuple):
    """What was sent, by role and part."""

    forming: Sent
    """By the ranks, while the ring formed."""
    gathering: Sent
    """By the ranks, in the AllGather."""
    server: Sent
    """By the root or store."""
    requests: int
    """Of the ranks to a store."""
    served: int
    """Requests that the store counted."""


class Formed(NamedTuple):
    """A formed ring, and how it came about."""

    ranks: list[Rank]
    rings: list[Ring]
    ranks_network: Network
    server_network: Network
    store: StoreServer | None
    job: Job


def expected(
    formation: str, allgather: str, n: int, record_bytes: int, nroots: int | None = None
) -> Counts:
    """The closed formula. `nroots` is for formations that can have several: None for the usual."""
    forming, server, requests = _FORMULAS[formation](n, nroots)
    return Counts(forming, _allgather(allgather, n, record_bytes), server, requests, requests)


def _tcpstore(n: int, _: int | None) -> tuple[Sent, Sent, int]:
    """Meta's ring_hybrid in TCPStore's bytes (protocols/nccl-bootstrap.md and tcpstore.md).

    A rank sends VALIDATE (opcode, u32) and PING (opcode, u32), SET of its own key (opcode, two
    strings, each u64 and its bytes), WAIT for the next key (opcode, u64 count, string) and GET of
    it (opcode, string): five requests; and the hello to rank + 1. Each key is set once, waited for
    once and got once, so over all ranks its length comes three times. The store answers PING (u32),
    WAIT (a byte) and GET (u64, 28 bytes). A rank connects to the store and to rank + 1.
    """
    keys = sum(len(address_key(COMM, rank)) for rank in range(n))
    a_rank = (1 + 4) + (1 + 4) + (1 + 8 + 8 + ADDRESS_BYTES) + (1 + 8 + 8) + (1 + 8) + HELLO_BYTES
    a_rank_hears = 4 + 1 + (8 + ADDRESS_BYTES)
    return Sent(6 * n, n * a_rank + 3 * keys, 2 * n), Sent(3 * n, n * a_rank_hears, 0), 5 * n


def _nccl_root(n: int, _: int | None = None) -> tuple[Sent, Sent, int]:
    """NCCL 2.23 and later with one root (protocols/nccl-bootstrap.md), the check-in of 2.29.

    A rank sends its root a hello and the framed check-in of 176 bytes, and rank + 1 a hello. The
    root sends each rank a hello and the framed connect info of 128 bytes, on a connection of its
    own.
    """
    a_rank = HELLO_BYTES + (LENGTH_BYTES + CHECK_IN_2_29.size) + HELLO_BYTES
    a_rank_hears = HELLO_BYTES + LENGTH_BYTES + CONNECT_INFO_BYTES
    return Sent(3 * n, n * a_rank, 2 * n), Sent(2 * n, n * a_rank_hears, n), 0


def _nccl_root_2_22(n: int, _: int | None) -> tuple[Sent, Sent, int]:
    """NCCL 2.22 and before: the check-in has 64 bytes, what the root answers 28 (an address)."""
    a_rank = HELLO_BYTES + (LENGTH_BYTES + CHECK_IN_2_18.size) + HELLO_BYTES
    a_rank_hears = HELLO_BYTES + LENGTH_BYTES + ADDRESS_BYTES
    return Sent(3 * n, n * a_rank, 2 * n), Sent(2 * n, n * a_rank_hears, n), 0


def _nccl_multiroot(n: int, nroots: int | None) -> tuple[Sent, Sent, int]:
    """As with one root; but with several the first rank of each checks in with the previous one as
    well. A root answers those whom it owns, so all roots together answer as one does.
    """
    forming, server, requests = _nccl_root(n)
    nroots = nroots or -(-n // 128)
    again = nroots if nroots > 1 else 0
    a_check_in = HELLO_BYTES + (LENGTH_BYTES + CHECK_IN_2_29.size)
    forming = Sent(
        forming.messages + 2 * again,
        forming.bytes + again * a_check_in,
        forming.connections + again,
    )
    return forming, server, requests


_FORMULAS = {
    "tcpstore": _tcpstore,
    "nccl-root": _nccl_root,
    "nccl-root-2.22": _nccl_root_2_22,
    "nccl-multiroot": _nccl_multiroot,
}


def _allgather(name: str, n: int, record_bytes: int) -> Sent:
    """Every rank sends n - 1 blocks, whatever the ring; NCCL's rings send the 4-byte size of each
    first. Nothing is sent for a block of 0 bytes.

    Bruck's AllGather sends as many blocks in ceil(log2 n) messages, each on a new connection, which
    a hello and a framed pair of i32 open. A ring has brought the 28-byte addresses before.
    """
    blocks = n * (n - 1)
    if name == "bruck":
        connections = n * (n - 1).bit_length() if record_bytes else 0
        opening = HELLO_BYTES + LENGTH_BYTES + 8
        total = ADDRESS_BYTES * blocks + opening * connections + record_bytes * blocks
        return Sent(blocks + 3 * connections, total, connections)
    sizes = blocks if name in ("ring", "ring-bidir") else 0
    data = blocks if record_bytes else 0
    return Sent(sizes + data, 4 * sizes + record_bytes * blocks, 0)


async def measure(
    world: World,
    formation: str,
    allgather: str,
    n: int,
    record_bytes: int,
    nroots: int | None = None,
) -> Counts:
    """Form a ring of `n` ranks, check that everybody has the right neighbours, run the AllGather
    and verify it.
    """
    formed = await form(world, FORMATIONS[formation], n, nroots)
    before = world.sent(formed.ranks_network)
    await check_neighbours(formed)
    between = world.sent(formed.ranks_network)
    wrong = await gather(formed, allgather, record_bytes)
    assert wrong.count == 0, wrong.named
    after = world.sent(formed.ranks_network)
    store = formed.store
    return Counts(
        before,
        Sent(*(late - early for late, early in zip(after, between, strict=True))),
        world.sent(formed.server_network),
        formed.ranks[0].trace.requests,
        0 if store is None else store.state.requests,
    )


async def form(world: World, formation: Formation, n: int, nroots: int | None = None) -> Formed:
    """Bring up a server of the kind it needs, and `n` ranks as one process has them."""
    servers, network = world.network(), world.network()
    if formation.server == "store":
        job, store, serving = _serve_store(world, n, servers)
    else:
        nroots = count_roots(formation, n, nroots)
        job, store, serving = _serve_roots(world, formation, n, nroots, servers)
    trace, jitter = Trace(n, world.clock.now), random.Random(1)
    ranks = [Rank(r, r, network, world.clock, trace, jitter) for r in range(n)]
    rings = await asyncio.gather(*(formation.form(rank, job) for rank in ranks))
    if store is None:
        await serving  # a root ends by itself
    else:
        serving.cancel()
    assert trace.retries == 0, "it was counted on a quiet network"
    return Formed(ranks, rings, network, servers, store, job)


Serving = tuple[Job, StoreServer | None, "asyncio.Future[Any]"]


def _serve_store(world: World, n: int, network: Network) -> Serving:
    listener = network.listen()
    store = StoreServer(world.clock)
    job = Job(n, MAGIC, COMM, store=listener.address)
    return job, store, asyncio.create_task(store.serve(listener))


def _serve_roots(
    world: World, formation: Formation, n: int, nroots: int, network: Network
) -> Serving:
    """Each root has a listener and a magic of its own."""
    layout = formation.check_in
    ids, serving = [], []
    for iroot in range(nroots):
        state: RootState | CollectingRootState = RootState(n, iroot, nroots)
        if layout.collects:
            state = CollectingRootState(n)
        root = RootServer(network, world.clock, state, MAGIC + iroot, layout)
        listener = network.listen()
        ids.append(UniqueId(MAGIC + iroot, listener.address))
        serving.append(root.serve(listener, 60.0))
    job = Job(
        n, MAGIC, COMM, roots=tuple(ids), check_in=layout, uid_stagger_rate=100_000.0
    )  # the stagger itself is a wait, and sends nothing
    return job, None, asyncio.gather(*serving)


async def check_neighbours(formed: Formed) -> None:
    """Every rank's next is rank + 1 and its prev rank - 1, mod n."""
    n = len(formed.rings)
    for rank, ring in enumerate(formed.rings):
        await ring.next.send(rank.to_bytes(4, "little"))
    for rank, ring in enumerate(formed.rings):
        assert int.from_bytes(await ring.prev.recv(4), "little") == (rank - 1) % n
    assert len({ring.listener.address for ring in formed.rings}) == n


async def gather(formed: Formed, allgather: str, record_bytes: int) -> WrongBlocks:
    """Run one AllGather; records of 28 bytes are the ranks' addresses."""
    n = len(formed.rings)
    addresses = [ring.listener.address for ring in formed.rings]
    for ring in formed.rings:
        for channel in (ring.next, ring.prev):
            channel.bound = max(channel.bound, record_bytes)
    wrong = WrongBlocks()
    packed = b"".join(map(pack_address, addresses))
    columns = np.frombuffer(packed, dtype=np.uint8).reshape(n, ADDRESS_BYTES)
    plan = one_allgather(FORMATIONS["tcpstore"], ALLGATHERS[allgather], record_bytes, n)
    for step in plan.gathers:
        table = RecordTable.derived(n, step.record_bytes, 1, 0, range(n), (n, n))
        for _, at in step.addresses:
            table.lay_over(columns, at)
        collective = Collective(step.schedule, n, step.rounds(n, None), table, wrong)
        await asyncio.gather(
            *(
                run(
                    rank,
                    {NEXT: ring.next, PREV: ring.prev},
                    collective,
                    RingPeers(
                        rank.rank,
                        n,
                        PointToPoint(rank, formed.job, ring.listener),
                        addresses.__getitem__,
                    ),
                )
                for rank, ring in zip(formed.ranks, formed.rings, strict=True)
            )
        )
    return wrong
