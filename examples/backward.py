"""A formation of one's own: a TCPStore ring in which each rank dials its predecessor.

emucoll run -np 1024 --formation examples.backward:Backward
"""

from emucoll.formation.base import Formation, accept_bootstrap, connect_bootstrap
from emucoll.formation.store_client import StoreClient
from emucoll.rank import Job, Rank, Ring
from emucoll.wire.address import ADDRESS_BYTES, pack_address, unpack_address


class Backward(Formation):
    """Publish my address, read that of rank - 1, dial it, and be dialled by rank + 1."""

    server = "store"
    windowable = True  # a rank needs its neighbours alone, not everybody at once

    async def form(self, rank: Rank, job: Job) -> Ring:
        """Bring one rank into the ring."""
        before, after = (rank.rank - 1) % job.nranks, (rank.rank + 1) % job.nranks
        comm = job.comm.encode()  # a store keeps the keys of earlier communicators
        with rank.span("bootstrap.create_store", peer="store"):
            store = await StoreClient.open(rank, job)
        listener = rank.network.listen()
        with rank.span("bootstrap.set_key", peer="store"):
            await store.set(b"%s-%d" % (comm, rank.rank), pack_address(listener.address))
        with rank.span("bootstrap.get_key", peer=before):
            address = unpack_address(await store.get(b"%s-%d" % (comm, before), ADDRESS_BYTES))
        store.close()
        with rank.span("bootstrap.connect", peer=before):
            prev = await connect_bootstrap(rank, address, job)
        with rank.span("bootstrap.accept", peer=after):
            next_ = await accept_bootstrap(rank, listener, job)
        return Ring(next=next_, prev=prev, listener=listener)
