"""A plan: a whole initialization, as data. Workers run it, preflight counts it, results list it.

A formation, then steps in their order. A step's phase begins with the timer of NCCL's init line
that covers it (`bootstrap`, `allgathers`; `rest` is what no timer covers), so that a real log and
an emulated one line up. It must not know who runs it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

from emucoll.collectives import RING_PIPELINED
from emucoll.collectives.schedule import Schedule, rounds_run
from emucoll.formation.base import Formation
from emucoll.plans.local import Extent, LocalWork
from emucoll.rank import Job, Rank
from emucoll.wire.address import ADDRESS_BYTES

RING = "ring"
"""The listener that a formation leaves behind."""
REST = "rest"
"""What of an initialization none of NCCL's timers covers."""
MOST_COUNTED = 1 << 17
"""Rounds whose messages are counted one by one."""


class Published(NamedTuple):
    """The address of one of a rank's listeners, in its record."""

    listener: str
    at: int
    """Of the record's bytes."""


@dataclass(frozen=True)
class Gather:
    """One AllGather of every rank. What of its records is no address derives from the seed."""

    phase: str
    schedule: Schedule
    record_bytes: int
    """Each rank's contribution."""
    addresses: tuple[Published, ...] = ()
    """Where in a record the sender's real addresses lie."""
    limited: bool = True
    """Does `--steps` apply to it?"""

    def hops(self, n: int, steps: int | None) -> int:
        """How many messages have to arrive one after the other, at least; of rounds after the first
        MOST_COUNTED one each.
        """
        rounds = self.rounds(n, steps)
        counted = min(rounds, MOST_COUNTED)
        hops = sum(len(self.schedule.exchanges(n, step)) for step in range(counted))
        return hops + rounds - counted

    def rounds(self, n: int, steps: int | None) -> int:
        """How many rounds are run, at most `steps` of them where that applies."""
        return rounds_run(self.schedule, n, steps if self.limited else None)

    def knows(self, n: int, steps: int | None) -> tuple[int, int]:
        """Of how many ranks below and above its own a rank has the records afterwards."""
        return self.schedule.reach(n, self.rounds(n, steps))


@dataclass(frozen=True)
class Local:
    """A loop that every rank runs by itself."""

    phase: str
    work: LocalWork


@dataclass(frozen=True)
class Barrier:
    """The ranks of a host wait for each other: dissemination, a new connection for each message."""

    phase: str
    tagged_apart: bool = False
    """Are sender and tag two messages, as in 2.22 and before?"""


Step: TypeAlias = Gather | Local | Barrier


class Front(Protocol):
    """What a framework does before the library's own initialization."""

    @property
    def name(self) -> str:
        """Whose it is: also the timer under which its phases stand."""

    @property
    def text(self) -> str:
        """What it does, in a line."""

    @property
    def server(self) -> str:
        """Which server it needs beside the formation's: "store"."""

    def leaders(self, nranks: int, nroots: int) -> list[int]:
        """Ranks that all others wait for: they are admitted first."""

    async def start(self, rank: Rank, job: Job) -> None:
        """One rank's part. What it keeps open goes to `rank.kept`."""


@dataclass(frozen=True)
class Plan:
    """A whole initialization."""

    name: str
    text: str
    """What it reproduces, in a line."""
    formation: Formation
    steps: tuple[Step, ...]
    listeners: tuple[str, ...] = ()
    """Opened once the ring has formed, beside the ring's, and held for the communicator's life."""
    p2p: str = RING
    """At which of its listeners a rank takes connections of point to point."""
    front: Front | None = None
    """What comes before all of it."""

    @property
    def servers(self) -> tuple[str, ...]:
        """Those that it needs, "root" and "store"."""
        before = () if self.front is None else (self.front.server,)
        return tuple(dict.fromkeys((*before, self.formation.server)))

    @property
    def gathers(self) -> tuple[Gather, ...]:
        """Its AllGathers, in their order."""
        return tuple(step for step in self.steps if isinstance(step, Gather))

    @property
    def locals(self) -> tuple[Local, ...]:
        """Its local work, in its order."""
        return tuple(step for step in self.steps if isinstance(step, Local))

    @property
    def published(self) -> tuple[str, ...]:
        """All the listeners of a rank that has formed."""
        return (RING, *self.listeners)

    @property
    def held_descriptors(self) -> int:
        """That a rank keeps."""
        return self.formation.formed_descriptors + len(self.listeners)

    def address_book(self, listener: str) -> tuple[int, int] | None:
        """Which AllGather, by its index in `gathers`, brings everybody's address of that listener,
        and where in its records; None if none does.
        """
        for index, gather in enumerate(self.gathers):
            for published in gather.addresses:
                if published.listener == listener:
                    return index, published.at
        return None

    def has_addresses(self, extent: Extent, steps: int | None) -> bool:
        """Does every rank know where the others of its host take point-to-point connections, after
        so many steps of the AllGathers?
        """
        book = self.address_book(self.p2p)
        if book is None:
            return False
        n, others = extent.nranks, min(extent.ranks_per_host, extent.nranks) - 1
        gather = self.gathers[book[0]]
        below, above = gather.knows(n, steps)
        whole = gather.rounds(n, steps) == gather.schedule.rounds(n)
        return whole or min(below, above) >= others


def host_of(rank: int, extent: Extent) -> range:
    """The ranks of `rank`'s host."""
    first = rank - rank % extent.ranks_per_host
    return range(first, min(first + extent.ranks_per_host, extent.nranks))


def under_timers(steps: tuple[Step, ...]) -> Iterator[tuple[str, list[Step]]]:
    """The steps in their order, by the timer that covers them: those in a row together."""
    row: list[Step] = []
    for step in steps:
        timer = step.phase.partition(".")[0]
        if row and timer != row[0].phase.partition(".")[0]:
            yield row[0].phase.partition(".")[0], row
            row = []
        row.append(step)
    if row:
        yield row[0].phase.partition(".")[0], row


def one_allgather(formation: Formation, schedule: Schedule, record_bytes: int, n: int) -> Plan:
    """A ring's formation and the AllGather that NCCL's bootstrap has first, by any schedule; before
    it, where the schedule has peers beyond the ring's two, one that gathers everybody's address.

    Records of 28 bytes are the ranks' ring addresses.
    """
    peers = schedule.peers(n)
    own_address = (Published(RING, 0),)
    gather = Gather(
        "bootstrap.allgather" if peers else "bootstrap.ring",
        schedule,
        record_bytes,
        own_address if record_bytes == ADDRESS_BYTES else (),
    )
    before = Gather(
        "bootstrap.addresses", RING_PIPELINED, ADDRESS_BYTES, own_address, limited=False
    )
    text = f"{formation.name}, then {schedule.name}"
    return Plan("", text, formation, (before, gather) if peers else (gather,))
