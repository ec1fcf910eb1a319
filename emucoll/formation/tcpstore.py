"""Ring formation through a TCPStore, without a root: Meta's NCCLX
(`NCCL_FASTINIT_MODE=ring_hybrid`).

Each rank stores its ring listener's address under a key of its own and reads one key, that of rank
+ 1: every key has one reader, so none is hot. Five requests and three replies a rank, on one
connection; no barrier and no counter.
"""

from emucoll.formation.base import Formation, accept_bootstrap, connect_bootstrap
from emucoll.formation.store_client import StoreClient
from emucoll.rank import Job, Rank, Ring
from emucoll.wire.address import ADDRESS_BYTES, pack_address, unpack_address


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
