"""What an NCCL root knows and does, without any input or output.

`RootState` follows the root thread of NCCL 2.23 to 2.32 (`bootstrapRoot`), which forwards eagerly:
as soon as a rank and its successor have both checked in, the successor's ring address is due at the
rank's reply listener. `CollectingRootState` follows that of 2.22 and before, which answers in rank
order once everybody has come. Holds true of both: every owned rank is told its successor exactly
once. The eager one drops an address as soon as nobody needs it, so at most two addresses are kept
for a rank. Must not know sockets, time or order of arrival.

Stricter than NCCL where NCCL is careless: a real eager root notices a duplicate only while it still
holds one of that rank's addresses, and before 2.29 none checks the range at all.
"""

from emucoll.errors import RemoteProtocolError
from emucoll.wire.address import Address
from emucoll.wire.nccl import CheckIn, root_ranks

_CONSEQUENCE = "NCCL's root quits here, and the ranks that it has not answered wait forever"


class _RollCall:
    """Who has checked in with root `iroot` of `nroots`, and who may.

    Raises LocalProtocolError unless 1 <= nroots <= nranks and 0 <= iroot < nroots.
    """

    def __init__(self, nranks: int, iroot: int = 0, nroots: int = 1) -> None:
        owned = root_ranks(nranks, nroots, iroot)
        self._nranks = nranks
        self._iroot = iroot
        self._nroots = nroots
        self._first = owned.start
        self._owned = len(owned)
        # With several roots, the next root's first rank checks in too, as the one after our last.
        self._slots = self._owned + (nroots > 1)
        self._seen = bytearray(self._slots)
        self._received = 0

    @property
    def expected(self) -> int:
        """How many check-ins there will be: one per owned rank, one more with several roots."""
        return self._slots

    @property
    def received(self) -> int:
        """How many valid check-ins have come."""
        return self._received

    @property
    def complete(self) -> bool:
        """Whether every expected check-in has come."""
        return self._received == self._slots

    def _admit(self, c: CheckIn) -> int:
        """Note that this rank has come; where it stands among ours."""
        local = self._local_id(c)
        self._seen[local] = 1
        self._received += 1
        return local

    def _local_id(self, c: CheckIn) -> int:
        """Where the rank stands among ours, once the check-in is known to be valid."""
        if (c.nranks, c.iroot, c.nroots) != (self._nranks, self._iroot, self._nroots):
            raise self._refusal(
                c,
                f"takes this for root {c.iroot} of {c.nroots} of a communicator of {c.nranks} "
                f"ranks, but it is root {self._iroot} of {self._nroots} of one of {self._nranks}",
            )
        if c.offset != 0:
            raise self._refusal(
                c, f"grows a communicator (offset {c.offset}), which is not emulated"
            )
        local = c.rank - self._first
        if not 0 <= local < self._slots:
            last = self._first + self._slots - 1
            raise self._refusal(
                c, f"is not one of {self._first}..{last}, which root {self._iroot} awaits"
            )
        if self._seen[local]:
            raise self._refusal(c, "has already checked in")
        return local

    @staticmethod
    def _refusal(c: CheckIn, what: str) -> RemoteProtocolError:
        return RemoteProtocolError(f"rank {c.rank} (ring listener {c.ring}) {what}. {_CONSEQUENCE}")


class RootState(_RollCall):
    """One root of a communicator of `nranks` ranks: root `iroot` of `nroots`. It forwards eagerly.

    Raises LocalProtocolError unless 1 <= nroots <= nranks and 0 <= iroot < nroots.
    """

    def __init__(self, nranks: int, iroot: int = 0, nroots: int = 1) -> None:
        super().__init__(nranks, iroot, nroots)
        # By local id: ring addresses the predecessor still needs, reply listeners not yet
        # answered.
        self._ring: dict[int, Address] = {}
        self._reply: dict[int, Address] = {}

    def check_in(self, c: CheckIn) -> list[tuple[Address, Address]]:
        """Take a check-in; returns what to deliver now, in NCCL's order.

        Each pair is (reply listener to connect to, ring address to send): none, one or two of
        them, the predecessor's before the newcomer's own. Raises RemoteProtocolError, and changes
        nothing, on a rank that is not ours, one that has already checked in, or one of another
        communicator's shape.
        """
        local = self._admit(c)
        due = []
        waiting = self._take_predecessor(local, c)
        if waiting is not None:
            due.append((waiting, c.ring))
        successor = self._take_successor(local, c)
        if successor is not None:
            due.append((c.reply, successor))
        return due

    def finish(self) -> list[tuple[Address, Address]]:
        """What the closing pass still delivers, in rank order.

        NCCL's root makes this pass after the last check-in. Eager forwarding leaves nothing for
        it: whichever of a rank and its successor comes second has triggered the delivery already.
        So this is empty, unless forwarding is broken.
        """
        ready = [local for local in sorted(self._reply) if self._next(local) in self._ring]
        return [(self._reply.pop(local), self._ring.pop(self._next(local))) for local in ready]

    def _next(self, local: int) -> int:
        return (local + 1) % self._slots

    def _take_predecessor(self, local: int, c: CheckIn) -> Address | None:
        """The waiting predecessor's reply listener; else the ring address is kept for it."""
        if self._nroots > 1 and local == 0:
            return None  # the previous root owns the predecessor, and tells it
        previous = (local - 1) % self._slots
        waiting = self._reply.pop(previous, None)
        if waiting is None:
            self._ring[local] = c.ring
        return waiting

    def _take_successor(self, local: int, c: CheckIn) -> Address | None:
        """The known successor's ring address; else the reply listener is kept until it comes."""
        if local == self._owned:
            return None  # the next root's first rank, which that root answers
        successor = self._ring.pop(self._next(local), None)
        if successor is None:
            self._reply[local] = c.reply
        return successor


class CollectingRootState(_RollCall):
    """The only root of a communicator of `nranks` ranks. It answers when all have come.

    Raises LocalProtocolError unless nranks >= 1.
    """

    def __init__(self, nranks: int) -> None:
        super().__init__(nranks)
        self._came: list[CheckIn | None] = [None] * nranks

    def check_in(self, c: CheckIn) -> list[tuple[Address, Address]]:
        """Take a check-in; nothing is due before `finish`.

        Raises RemoteProtocolError, and changes nothing, on a rank that is not ours, one that has
        already checked in, or one of another communicator's shape.
        """
        self._came[self._admit(c)] = c
        return []

    def finish(self) -> list[tuple[Address, Address]]:
        """All that is to be delivered, in rank order: (reply listener to connect to, ring address
        to send). Call it once, when `complete`.
        """
        came = [c for c in self._came if c is not None]
        assert len(came) == self._slots, "somebody has not checked in"
        following = came[1:] + came[:1]
        return [(c.reply, successor.ring) for c, successor in zip(came, following, strict=True)]
