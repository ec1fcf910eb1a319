"""NCCL's ring formation through a root, as 2.23 and later do it: eager root, stagger by rate.

Source: NCCL 2.23-2.31 bootstrap (`docs/architecture.md`). Each rank tells the root where its ring
listener is, and learns from the root where that of rank + 1 is. The root is one thread that serves
one connection at a time.
"""

from emucoll.errors import ConnectionClosed
from emucoll.formation.base import accept_bootstrap, connect_bootstrap, nccl_backoff
from emucoll.net.base import Address, Listener
from emucoll.rank import Job, Rank, Ring, stagger_s
from emucoll.wire.nccl import (
    CONNECT_INFO_BYTES,
    LENGTH_BYTES,
    CheckIn,
    frame,
    unpack_connect_info,
    unpack_length,
)


class NcclRoot:
    """One root, which owns every rank."""

    name = "nccl-root"
    text = (
        "NCCL 2.23 and later: check in with one root, which eagerly forwards each rank's address "
        "to its predecessor"
    )
    server = "root"
    unformed_descriptors = 3  # ring and root-reply listener, the connection to or from the root
    formed_descriptors = 3  # ring listener, the two ring sockets
    listeners = 2
    windowable = True

    async def form(self, rank: Rank, job: Job) -> Ring:
        """See Formation.form."""
        r, n = rank.rank, job.nranks
        with rank.span("bootstrap.create"):
            ring = rank.network.listen()
            reply = rank.network.listen()
        with rank.span("bootstrap.delay"):
            await rank.clock.sleep(stagger_s(r, n, job.uid_stagger_threshold, job.uid_stagger_rate))
        with rank.span("bootstrap.send", peer="root"):
            await self._check_in(rank, job, reply.address, ring.address)
        with rank.span("bootstrap.recv", peer=(r + 1) % n):
            successor = await self._successor(rank, job, reply)
        with rank.span("bootstrap.connect", peer=(r + 1) % n):
            next_channel = await connect_bootstrap(rank, successor, job)
        with rank.span("bootstrap.accept", peer=(r - 1) % n):
            prev_channel = await accept_bootstrap(rank, ring, job)
        return Ring(next_channel, prev_channel, ring)

    async def _check_in(self, rank: Rank, job: Job, reply: Address, ring: Address) -> None:
        """Send the check-in and close, as NCCL does, but not before the root's machine has it.

        When the root's accept queue overflows, the kernel may call a connection established that
        the root's side has not taken: NCCL closes, the check-in is lost and the job hangs (so did
        13,293 of 98,304 ranks here). Such a check-in is sent again.
        """
        assert job.root is not None and job.check_in is not None, "this formation needs a root"
        check_in = frame(job.check_in.pack(CheckIn(rank.rank, job.nranks, 0, 1, 0, reply, ring)))
        backoff = nccl_backoff()
        while True:
            channel = await connect_bootstrap(rank, job.root.root, job)
            try:
                await channel.send(check_in)
                await channel.acknowledged()
                return
            except ConnectionClosed:
                pause_s = next(backoff, None)
                if pause_s is None:
                    raise
            finally:
                channel.close()
            rank.trace.retries += 1
            await rank.clock.sleep(pause_s)

    async def _successor(self, rank: Rank, job: Job, reply: Listener) -> Address:
        channel = await accept_bootstrap(rank, reply, job)
        length = unpack_length(await channel.recv(LENGTH_BYTES), CONNECT_INFO_BYTES)
        successor = unpack_connect_info(await channel.recv(length))
        channel.close()
        reply.close()
        return successor
