"""NCCL's ring formation through a root, or several: check in, learn who comes next, connect.

Source: NCCL 2.18-2.31 bootstrap (`docs/architecture.md`). Each rank tells the root where its ring
listener is, and learns from the root where that of rank + 1 is. The root is one thread that serves
one connection at a time. What differs between releases is in the classes; what a check-in looks
like is the root's to say (`Job.check_in`), since a real one brings its own.
"""

import errno
from collections.abc import Callable

from emucoll.errors import ConnectionClosed
from emucoll.formation.base import Formation, accept_bootstrap, connect_bootstrap
from emucoll.net.base import Address, Listener
from emucoll.net.retries import Backoff, nccl_backoff, nccl_backoff_2_23, pause_s
from emucoll.rank import Job, Rank, Ring, stagger_s
from emucoll.wire.nccl import (
    CHECK_IN_2_18,
    CHECK_IN_2_29,
    LENGTH_BYTES,
    CheckIn,
    CheckInLayout,
    check_in_with_previous_root,
    frame,
    root_of,
    root_ranks,
    unpack_length,
)

_STAGGERED_2_22 = 128
"""Up to so many ranks start together, in 2.22 and before."""


class NcclRoot(Formation):
    """One root, which owns every rank and answers eagerly: 2.23 and later."""

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

    def __init__(
        self,
        check_in: CheckInLayout = CHECK_IN_2_29,
        tries: Callable[[], Backoff] = nccl_backoff,
    ) -> None:
        """As releases do whose check-in is `check_in`, and who try a connection as `tries` says."""
        self.check_in = check_in
        self.tries = tries

    def backoff(self) -> Backoff:
        """How often a rank tries one connection."""
        return self.tries()

    def stagger_s(self, local_id: int, owned: int, threshold: int, rate: float) -> float:
        """See Formation.stagger_s."""
        return stagger_s(local_id, owned, threshold, rate)

    async def form(self, rank: Rank, job: Job) -> Ring:
        """See Formation.form."""
        r, n, nroots = rank.rank, job.nranks, len(job.roots)
        assert nroots and job.check_in is not None, "this formation needs a root"
        iroot = root_of(r, n, nroots)
        owned = root_ranks(n, nroots, iroot)
        with rank.span("bootstrap.create"):
            ring = rank.network.listen()
            reply = rank.network.listen()
        with rank.span("bootstrap.delay"):
            threshold, rate = job.uid_stagger_threshold, job.uid_stagger_rate
            wait_s = self.stagger_s(r - owned.start, len(owned), threshold, rate)
            if wait_s > 0:
                await rank.clock.sleep(wait_s)
        with rank.span("bootstrap.send", peer="root"):
            own = CheckIn(r, n, iroot, nroots, 0, reply.address, ring.address)
            await self._check_in(rank, job, own)
            other = check_in_with_previous_root(own)
            if other is not None:
                await self._check_in(rank, job, other)
        # A root that collects keeps everybody waiting for everybody.
        with rank.span("bootstrap.recv", peer="all" if job.check_in.collects else (r + 1) % n):
            successor = await self._successor(rank, job, reply, job.roots[iroot].magic)
        with rank.span("bootstrap.connect", peer=(r + 1) % n):
            next_channel = await connect_bootstrap(rank, successor, job, self.backoff())
        with rank.span("bootstrap.accept", peer=(r - 1) % n):
            prev_channel = await accept_bootstrap(rank, ring, job)
        return Ring(next_channel, prev_channel, ring)

    async def _check_in(self, rank: Rank, job: Job, check_in: CheckIn) -> None:
        """Send the check-in and close, as NCCL does, but not before the root's machine has it.

        When the root's accept queue overflows, the kernel may call a connection established that
        the root's side has not taken: NCCL closes, the check-in is lost and the job hangs (so did
        13,293 of 98,304 ranks here). Such a check-in is sent again, as if it had been refused.
        """
        assert job.check_in is not None
        root = job.roots[check_in.iroot]
        data = frame(job.check_in.pack(check_in))
        backoff = self.backoff()
        while True:
            channel = await connect_bootstrap(rank, root.root, job, self.backoff(), root.magic)
            try:
                await channel.send(data)
                await channel.acknowledged()
                return
            except ConnectionClosed:
                wait_s = pause_s(backoff, errno.ECONNREFUSED)
                if wait_s is None:
                    raise
            finally:
                channel.close()
            rank.trace.retries += 1
            await rank.clock.sleep(wait_s)

    async def _successor(self, rank: Rank, job: Job, reply: Listener, magic: int) -> Address:
        assert job.check_in is not None
        layout = job.check_in
        channel = await accept_bootstrap(rank, reply, job, magic)
        length = unpack_length(await channel.recv(LENGTH_BYTES), layout.connect_info_bytes)
        successor = layout.unpack_connect_info(await channel.recv(length))
        channel.close()
        reply.close()
        return successor


class NcclMultiRoot(NcclRoot):
    """Several roots, each of which owns contiguous ranks: 2.23 and later."""

    name = "nccl-multiroot"
    text = (
        "NCCL 2.23 and later with several roots, by default one per 128 ranks, as PyTorch asks for"
    )
    ranks_per_root = 128


class NcclRoot222(NcclRoot):
    """One root, which owns every rank and answers when all have come: 2.22 and before."""

    name = "nccl-root-2.22"
    text = (
        "NCCL 2.22 and before: check in with one root, which answers in rank order once every rank "
        "has come"
    )
    windowable = False

    def __init__(self) -> None:
        """One way only."""
        super().__init__(CHECK_IN_2_18, nccl_backoff_2_23)

    def stagger_s(self, local_id: int, owned: int, threshold: int, rate: float) -> float:
        """See Formation.stagger_s: 1 ms a rank, whatever the options, which are later ones."""
        return local_id * 0.001 if owned > _STAGGERED_2_22 else 0.0
