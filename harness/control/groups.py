"""A worker's part in process groups: the communicators of every kind, brought up one kind after the
other by the ranks that it has.

The rank that brings up a group is the one that is there, under another number: its spans, counters
and connections are the group's meanwhile.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace

import numpy as np

from emucoll.collectives.driver import Collective, run
from emucoll.collectives.schedule import NEXT, PREV
from emucoll.collectives.table import RecordTable, derived_records
from emucoll.formation.base import Formation
from emucoll.formation.split import SPLIT_INFO_BYTES, form_split, split_magic
from emucoll.net.base import Address, Listener
from emucoll.net.counters import Counting
from emucoll.p2p import PointToPoint
from emucoll.plans.steps import Gather, Local, Plan
from emucoll.rank import Job, Rank, Ring
from emucoll.trace import Trace
from emucoll.wire.nccl import UniqueId
from emucoll.wrong import Wrong
from harness.control.messages import GroupsUp
from harness.groups import GroupKind, Membership
from harness.planned import group_formation, split_colors, split_sorts
from harness.spec import Spec

_FIRST_CALL = 1000
"""Of the records of groups; those of other AllGathers have lower numbers."""
_CALLS_A_KIND = 100
_NAMED = 16
"""Wrong blocks that a kind names."""


@dataclass(frozen=True, slots=True)
class Parent:
    """What a rank has of the communicator of all ranks."""

    job: Job
    ring: Ring
    p2p: PointToPoint
    addresses: Callable[[int], Address]
    """Where each of its ranks takes point-to-point connections."""


@dataclass(slots=True)
class _Kind:
    """One kind of group, as far as this worker's ranks are in it."""

    kind: GroupKind
    number: int
    trace: Trace
    network: Counting
    places: dict[int, Membership]
    first_id: int
    """Of its groups' unique ids among those of all kinds."""
    sort: Local | None
    colors: Collective | None
    """The AllGather over all ranks with which a split begins."""
    jobs: dict[int, Job] = field(default_factory=dict)
    collectives: dict[tuple[int, int], Collective] = field(default_factory=dict)
    """By group and AllGather."""
    began_s: float | None = None
    ended_s: float = 0.0

    @property
    def name(self) -> str:
        """What the user calls it."""
        return self.kind.name

    def report(self) -> GroupsUp:
        """What came of it."""
        named = [] if self.colors is None else self.colors.wrong.named[:]
        wrong = 0 if self.colors is None else self.colors.wrong.count
        for (index, _), collective in self.collectives.items():
            wrong += collective.wrong.count
            members = self.kind.members(index)
            named += [
                Wrong(members[each.rank], members[each.block], each.what, members[each.peer],
                      each.step)
                for each in collective.wrong.named
            ]  # fmt: skip
        return GroupsUp(
            began_s=self.began_s,
            ended_s=self.ended_s,
            connections=self.network.connects,
            requests=self.trace.requests,
            retries=self.trace.retries,
            wrong=wrong,
            wrong_blocks=named[:_NAMED],
        )


class Groups:
    """All kinds of groups of one spec, for one worker's ranks."""

    def __init__(
        self,
        spec: Spec,
        plan: Plan,
        ranks: list[Rank],
        since_start_s: Callable[[], float],
        work: Callable[[Rank, Local], Awaitable[None]],
    ) -> None:
        """`work` runs a rank's local work."""
        self._spec = spec
        self._plan = plan
        self._formation: Formation | None = group_formation(spec, plan)
        self._since_start_s = since_start_s
        self._work = work
        self._ids: tuple[UniqueId, ...] = ()
        self._kept: list[Ring | Listener] = []
        sorts = split_sorts(spec)
        here, first_id = range(ranks[0].rank, ranks[-1].rank + 1), 0
        self._kinds: list[_Kind] = []
        for number, kind in enumerate(spec.groups):
            splits = spec.group_init == "split"
            self._kinds.append(
                _Kind(
                    kind=kind,
                    number=number,
                    trace=ranks[0].trace.within(f"groups.{kind.name}."),
                    network=Counting(ranks[0].network),
                    places=kind.places(here),
                    first_id=first_id,
                    sort=sorts[number] if splits else None,
                    colors=self._colors_of(kind) if splits else None,
                )
            )
            first_id += kind.count

    def _colors_of(self, kind: GroupKind) -> Collective:
        n, schedule = self._spec.nranks, self._plan.gathers[0].schedule
        table = RecordTable.derived(n, SPLIT_INFO_BYTES, 0, 0, range(n), (n, n))
        table.lay_over(split_colors(kind, n).view(np.uint8), 0)
        return Collective(schedule, n, schedule.rounds(n), table)

    def start(self, ids: tuple[UniqueId, ...]) -> None:
        """`ids`: of all groups' roots, kind by kind; none where groups have no root."""
        self._ids = ids

    async def bring_up(self, rank: Rank, parent: Parent) -> None:
        """All of one rank's groups."""
        for kind in self._kinds:
            if kind.began_s is None:
                kind.began_s = self._since_start_s()
            with rank.span(f"groups.{kind.name}"):
                await self._bring_up(rank, parent, kind)
            kind.ended_s = self._since_start_s()

    async def _bring_up(self, rank: Rank, parent: Parent, kind: _Kind) -> None:
        place = kind.places.get(rank.rank)
        if kind.colors is not None:
            assert kind.sort is not None
            with rank.span(f"groups.{kind.name}.colors", peer=(rank.rank - 1) % parent.job.nranks):
                lines = {NEXT: parent.ring.next, PREV: parent.ring.prev}
                await run(rank, lines, kind.colors)
            await self._work(rank, kind.sort)
        if place is None:
            return
        job = self._job(kind, place, parent.job)
        with rank.member(place.position, place.members, kind.trace, kind.network):
            if self._formation is not None:
                ring = await self._formation.form(rank, job)
            else:
                ring = await form_split(rank, job, place.members, parent.p2p, parent.addresses)
            with rank.span("listen"):
                self._kept += (rank.network.listen() for _ in self._plan.listeners)
            self._kept.append(ring)
            for index, gather in enumerate(self._plan.gathers):
                await self._gather(rank, ring, gather, self._collective(kind, place, index))

    async def _gather(self, rank: Rank, ring: Ring, gather: Gather, collective: Collective) -> None:
        for channel in (ring.next, ring.prev):
            channel.bound = max(channel.bound, gather.record_bytes)
        with rank.span(gather.phase, peer=(rank.rank - 1) % collective.n):
            await run(rank, {NEXT: ring.next, PREV: ring.prev}, collective)

    def _job(self, kind: _Kind, place: Membership, parent: Job) -> Job:
        """The group's communicator, the same for all of its ranks here."""
        job = kind.jobs.get(place.group)
        if job is None:
            at = kind.first_id + place.group
            roots = self._ids[at : at + 1]
            magic = roots[0].magic if roots else split_magic(parent.magic, kind.number)
            job = kind.jobs[place.group] = replace(
                parent,
                nranks=len(place.members),
                magic=magic,
                comm=f"{parent.comm}-{kind.name}-{place.group}",
                roots=roots,
            )
        return job

    def _collective(self, kind: _Kind, place: Membership, index: int) -> Collective:
        """An AllGather of a group, verified against what its ranks derive from their numbers in
        the whole.
        """
        collective = kind.collectives.get((place.group, index))
        if collective is None:
            gather, n = self._plan.gathers[index], len(place.members)
            call = _FIRST_CALL + _CALLS_A_KIND * kind.number + index
            ranks = np.array(place.members, dtype=np.int64)[::-1]
            rows = derived_records(ranks, self._spec.seed, call, gather.record_bytes)
            table = RecordTable(n, gather.record_bytes, bytearray(rows.tobytes()))
            rounds = gather.rounds(n, self._spec.steps)
            collective = Collective(gather.schedule, n, rounds, table)
            kind.collectives[place.group, index] = collective
        return collective

    def report(self) -> list[GroupsUp]:
        """What came of each kind, in the spec's order."""
        return [kind.report() for kind in self._kinds]
