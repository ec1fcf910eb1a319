"""Rank: what an algorithm is handed, and all that it may use.

A rank knows its number, its network, its clock and the job's rendezvous; it records spans. It must
not know of workers, processes, results or other ranks' memory.
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Protocol

from emucoll.net.base import Address, Channel, Clock, Listener, Network
from emucoll.trace import Span, Trace
from emucoll.wire.nccl import CheckInLayout, UniqueId


@dataclass(frozen=True)
class Job:
    """What all ranks of one communicator agree on before they start."""

    nranks: int
    magic: int
    """u64 that opens every connection between ranks (NCCL's bootstrap magic: the first root's)."""
    comm: str
    """Name of the communicator, part of its keys in a store."""
    store: Address | None = None
    roots: tuple[UniqueId, ...] = ()
    """Each root's, in order: where it listens, and the magic of connections to and from it."""
    check_in: CheckInLayout | None = None
    """What the roots take for a check-in; None without a root."""
    uid_stagger_rate: float = 7000.0
    """Check-ins per second that the stagger admits to one root (NCCL_UID_STAGGER_RATE); 0 turns it
    off.
    """
    uid_stagger_threshold: int = 256
    """Ranks that a root may own before its ranks are staggered (NCCL_UID_STAGGER_THRESHOLD)."""
    handshake_s: float = 10.0
    """How long an accepted peer may take over its hello before it is dropped."""
    deadline_s: float = 600.0
    """After this many seconds a wait on the network is an error."""
    attempt: int = 0
    """How often these ranks have been brought up before."""

    @property
    def root(self) -> UniqueId | None:
        """The first root; None without one."""
        return self.roots[0] if self.roots else None

    @cached_property
    def packed_ids(self) -> bytes:
        """The roots' unique ids, 128 bytes each, one after another."""
        return b"".join(root.pack() for root in self.roots)


def stagger_s(local_id: int, owned: int, threshold: int, rate: float) -> float:
    """Seconds a rank waits before it checks in (NCCL 2.23 and later), if its root owns more ranks
    than the threshold.
    """
    return local_id / rate if owned > threshold and rate > 0 else 0.0


class Closable(Protocol):
    """What a rank keeps."""

    def close(self) -> None:
        """Give it back."""


class Ring(NamedTuple):
    """A rank's place in the formed ring: what a formation returns."""

    next: Channel
    """To rank + 1 (mod n): it sends here."""
    prev: Channel
    """From rank - 1 (mod n): it receives here."""
    listener: Listener
    """Its ring listener, held open for the communicator's life."""


@dataclass(slots=True, eq=False)
class Rank:
    """One emulated rank."""

    rank: int
    slot: int
    """Index among the ranks of its worker."""
    network: Network
    clock: Clock
    trace: Trace
    random: random.Random
    """For jitter: seeded per run, shared by the ranks of one worker."""
    slow: float = 1.0
    phase: int = 0
    peer: int | str | None = None
    youngest: Span | None = None
    """The span opened last of those that are still open."""
    kept: tuple[Closable, ...] = ()
    """Connections beside the ring's that it holds for the communicator's life."""

    excused_s: float = 0.0
    """Of its time, what is not counted: charged work that a busy process made longer."""

    members: Sequence[int] | None = None
    """While it brings up a group: that group's ranks, by their numbers in the whole."""

    def span(self, name: str, peer: int | str | None = None) -> Span:
        """Time a phase: `with rank.span("bootstrap.recv", peer="root"):`. `peer` is what the rank
        may wait for there.
        """
        if self.members is not None and isinstance(peer, int):
            peer = self.members[peer]
        return Span(self, self.trace.phase(name), peer)

    @contextmanager
    def member(
        self, number: int, members: Sequence[int], trace: Trace, network: Network
    ) -> Iterator[None]:
        """Be rank `number` of a group of `members`, with a trace and a network of the group's."""
        before = self.rank, self.members, self.trace, self.network
        self.rank, self.members, self.trace, self.network = number, members, trace, network
        try:
            yield
        finally:
            self.rank, self.members, self.trace, self.network = before
