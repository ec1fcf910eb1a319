"""Formations and plans that scale badly, each in one way. Runs name them `bottlenecks:NAME`."""

from dataclasses import replace
from weakref import WeakKeyDictionary

from emucoll.formation.base import accept_bootstrap, connect_bootstrap
from emucoll.formation.store_client import StoreClient
from emucoll.formation.tcpstore import TcpStoreRing
from emucoll.plans import PLANS
from emucoll.plans.local import RING_CHECK_NESTED
from emucoll.plans.steps import Local
from emucoll.rank import Job, Rank, Ring
from emucoll.wire.address import ADDRESS_BYTES, pack_address, unpack_address

STAGGER_S = 1e-3
SLOW_RANK, SLOW_S = 7, 12.0
HOT_BYTES = 256 * 1024
KEPT_BYTES = 16 * 1024
BACKLOG = 128


def nested(plan: str) -> object:
    """A plan whose ring check is that of before nccl #1789."""
    steps = tuple(
        replace(step, work=RING_CHECK_NESTED)
        if isinstance(step, Local) and step.phase == "allgathers.ring_check"
        else step
        for step in PLANS[plan].steps
    )
    return replace(PLANS[plan], name="nested", steps=steps)


NestedRingCheck = nested("ncclx")


class FixedStagger(TcpStoreRing):
    """Each rank starts 1 ms after the one before."""

    async def form(self, rank: Rank, job: Job) -> Ring:
        with rank.span("bootstrap.delay"):
            await rank.clock.sleep(STAGGER_S * rank.rank)
        return await super().form(rank, job)


class SlowRank(TcpStoreRing):
    """One rank takes twelve seconds over what takes others none."""

    async def form(self, rank: Rank, job: Job) -> Ring:
        with rank.span("bootstrap.create"):
            await rank.clock.sleep(SLOW_S if rank.rank == SLOW_RANK else 0.0)
        return await super().form(rank, job)


class HotKey(TcpStoreRing):
    """Every rank reads one large value."""

    async def form(self, rank: Rank, job: Job) -> Ring:
        with rank.span("bootstrap.topology", peer="store"):
            store = await StoreClient.open(rank, job)
            key = b"topology-%s" % job.comm.encode()
            if rank.rank == 0:
                await store.set(key, bytes(HOT_BYTES))
            await store.get(key, HOT_BYTES)
            store.close()
        return await super().form(rank, job)


class StoreBarrier(TcpStoreRing):
    """A barrier that asks a counter in the store, again and again, until all have come."""

    async def form(self, rank: Rank, job: Job) -> Ring:
        with rank.span("bootstrap.store_barrier", peer="store"):
            store = await StoreClient.open(rank, job)
            key = b"barrier-%s" % job.comm.encode()
            come = await store.add(key, 1)
            while come < job.nranks:
                await rank.clock.sleep(0.01)
                come = await store.add(key, 0)
            store.close()
        return await super().form(rank, job)


class BusyPolling(TcpStoreRing):
    """Each rank polls all ranks' flags, one round a rank, as a progress loop over all connections
    does.
    """

    async def form(self, rank: Rank, job: Job) -> Ring:
        ring = await super().form(rank, job)
        with rank.span("bootstrap.poll"):
            flags = [False] * job.nranks
            for _ in range(job.nranks):
                for flag in flags:
                    assert not flag
        return ring


class ConnectionPerMessage(TcpStoreRing):
    """Each of n - 1 messages to the successor takes a connection of its own."""

    async def form(self, rank: Rank, job: Job) -> Ring:
        r, n = rank.rank, job.nranks
        with rank.span("bootstrap.messages", peer=(r + 1) % n):
            store = await StoreClient.open(rank, job)
            listener = rank.network.listen()
            await store.set(b"%s-p2p-%d" % (job.comm.encode(), r), pack_address(listener.address))
            key = b"%s-p2p-%d" % (job.comm.encode(), (r + 1) % n)
            successor = unpack_address(await store.get(key, ADDRESS_BYTES))
            for _ in range(n - 1):
                outgoing = await connect_bootstrap(rank, successor, job)
                incoming = await accept_bootstrap(rank, listener, job)
                await outgoing.send(b"12345678")
                await incoming.recv(8)
                outgoing.close()
                incoming.close()
            listener.close()
            store.close()
        return await super().form(rank, job)


class FullMesh(TcpStoreRing):
    """Every rank connects to all before it."""

    async def form(self, rank: Rank, job: Job) -> Ring:
        with rank.span("bootstrap.mesh"):
            store = await StoreClient.open(rank, job)
            comm, listener = job.comm.encode(), rank.network.listen()
            await store.set(b"%s-mesh-%d" % (comm, rank.rank), pack_address(listener.address))
            for other in range(rank.rank):
                key = b"%s-mesh-%d" % (comm, other)
                address = unpack_address(await store.get(key, ADDRESS_BYTES))
                (await connect_bootstrap(rank, address, job)).close()
            for _ in range(rank.rank + 1, job.nranks):
                (await accept_bootstrap(rank, listener, job)).close()
            listener.close()
            store.close()
        return await super().form(rank, job)


_KEPT: WeakKeyDictionary[Job, list[bytearray]] = WeakKeyDictionary()


class ResultPerRank(TcpStoreRing):
    """Each rank keeps 16 KiB of every rank, as long as its job is there."""

    async def form(self, rank: Rank, job: Job) -> Ring:
        ring = await super().form(rank, job)
        _KEPT.setdefault(job, []).append(bytearray(b"\1") * (KEPT_BYTES * job.nranks))
        return ring


class SmallBacklog(TcpStoreRing):
    """All ranks say to rank 0 that they are there, whose listener has a backlog of 128."""

    async def form(self, rank: Rank, job: Job) -> Ring:
        with rank.span("bootstrap.hello", peer=0):
            store = await StoreClient.open(rank, job)
            key = b"leader-%s" % job.comm.encode()
            if rank.rank == 0:
                listener = rank.network.listen(BACKLOG)
                await store.set(key, pack_address(listener.address))
                for _ in range(job.nranks - 1):
                    channel = await accept_bootstrap(rank, listener, job)
                    await channel.recv(8)
                    channel.close()
                listener.close()
            else:
                leader = unpack_address(await store.get(key, ADDRESS_BYTES))
                channel = await connect_bootstrap(rank, leader, job)
                await channel.send(b"12345678")
                await channel.flush()
                channel.close()
            store.close()
        return await super().form(rank, job)
