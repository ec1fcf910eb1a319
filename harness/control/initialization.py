"""The plan, as the ranks of one worker run it: front, formation, AllGathers, local work, barrier,
groups, each under its own phase, every record verified.

What one rank does is a coroutine, `run`; what all of them share (tables, loops, addresses) is here
once a worker. It must not know the controller, nor when ranks are admitted.
"""

import contextlib
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np

from emucoll.collectives.driver import Collective, run
from emucoll.collectives.schedule import NEXT, PREV, Traffic
from emucoll.collectives.table import RecordTable
from emucoll.errors import UsageError
from emucoll.net.base import Address, Listener
from emucoll.net.delay import LateChannel
from emucoll.p2p import PointToPoint, RingPeers, barrier
from emucoll.plans.local import Data, compiled
from emucoll.plans.steps import (
    REST,
    RING,
    Barrier,
    Gather,
    Local,
    Step,
    host_of,
    under_timers,
)
from emucoll.rank import Job, Rank, Ring
from emucoll.wire.address import ADDRESS_BYTES, pack_address, unpack_address
from emucoll.wire.nccl import UniqueId
from harness.control.groups import Groups, Parent
from harness.control.inject import InjectedFault, RankFaults
from harness.control.messages import Gathered, GroupsUp, Setup
from harness.planned import extent_of, formation_name, locals_of, plan_of


@dataclass(slots=True)
class Call:
    """One AllGather of all the worker's ranks."""

    gather: Gather
    collective: Collective
    left: int
    """Ranks that are not through."""
    began_s: float = 0.0
    ended_s: float = 0.0

    def traffic(self) -> Traffic:
        """What each rank sends in it."""
        collective = self.collective
        return self.gather.schedule.traffic(
            collective.n, collective.rounds, self.gather.record_bytes
        )

    def report(self, ranks: int) -> Gathered:
        """What came of it, of all `ranks` that went through."""
        wrong = self.collective.wrong
        return Gathered(
            began_s=self.began_s,
            ended_s=self.ended_s,
            wrong=wrong.count,
            wrong_blocks=wrong.named,
            blocks=ranks * self.traffic().blocks,
            learned=self.collective.table.learned,
        )


class Initialization:
    """One plan for one worker's ranks."""

    def __init__(
        self,
        setup: Setup,
        ranks: list[Rank],
        faults: RankFaults,
        since_start_s: Callable[[], float],
        formed: Callable[[Rank], Awaitable[None]],
    ) -> None:
        """`formed` is awaited by each rank that has formed, until all ranks of the run have.

        Raises UsageError for local work that cannot be compiled.
        """
        self._setup = setup
        self._spec = setup.spec
        self.plan = plan_of(setup.spec)
        self._extent = extent_of(setup.spec)
        self._timers = list(under_timers(self.plan.steps))
        self._has_barrier = self.plan.has_addresses(self._extent, setup.spec.steps)
        self._tagged_apart = any(
            step.tagged_apart for step in self.plan.steps if isinstance(step, Barrier)
        )
        self._faults = faults
        self._since_start_s = since_start_s
        self._when_formed = formed
        self._loops = self._compile()
        self._calls: dict[str, Call] = {}
        self._p2p: dict[tuple[int, str], PointToPoint] = {}
        """By rank's slot and listener: one each, since whoever accepts keeps what comes early."""
        self._listeners: list[tuple[Listener, ...]] = [()] * len(ranks)
        """Of each rank that has formed, in the order of `Plan.published`."""
        self._groups = Groups(setup.spec, self.plan, ranks, since_start_s, self._work)
        self.rings: list[Ring | None] = [None] * len(ranks)
        self._job: Job | None = None

    def start(self, job: Job, group_ids: tuple[UniqueId, ...]) -> None:
        """Where the servers are is known."""
        self._job = job
        self._groups.start(group_ids)

    @property
    def job(self) -> Job:
        """The communicator of all ranks, once it has started."""
        assert self._job is not None
        return self._job

    # -- what all ranks share

    def _compile(self) -> dict[str, Data]:
        """By phase the data of the loops that ranks run themselves, which are compiled here."""
        own = [each for each in locals_of(self._spec) if each.phase not in self._setup.charges]
        for local in own:
            compiled(local.work)
        return {local.phase: local.work.data(self._extent) for local in own}

    def published(self) -> bytes:
        """The addresses of all ranks' listeners, 28 bytes each; zeros for external ranks."""
        nothing = bytes(ADDRESS_BYTES * len(self.plan.published))
        return b"".join(
            b"".join(pack_address(listener.address) for listener in listeners) or nothing
            for listeners in self._listeners
        )

    def make_tables(self, addresses: bytes | None, ranks: int) -> None:
        """What to verify against. `addresses`: what all workers' ranks have published, if records
        hold any; `ranks`: how many of this worker's take part.
        """
        spec, plan, n = self._spec, self.plan, self._spec.nranks
        here = range(self._setup.first, self._setup.first + self._setup.count)
        for index, gather in enumerate(plan.gathers):
            rounds = gather.rounds(n, spec.steps)
            reach = gather.schedule.reach(n, rounds)
            table = RecordTable.derived(n, gather.record_bytes, spec.seed, index, here, reach)
            for listener, at in gather.addresses:
                assert addresses is not None, "the controller has everybody's address"
                columns = np.frombuffer(addresses, dtype=np.uint8)
                columns = columns.reshape(n, len(plan.published), ADDRESS_BYTES)
                table.lay_over(columns[:, plan.published.index(listener)], at)
            table.unknown.update(spec.external_ranks)
            collective = Collective(gather.schedule, n, rounds, table)
            self._calls[gather.phase] = Call(gather, collective, ranks)

    def sent_bytes(self) -> int:
        """What one rank sends in its AllGathers."""
        return sum(call.traffic().sent_bytes for call in self._calls.values())

    def gathered(self, ranks: int) -> list[Gathered]:
        """What came of the AllGathers, in the plan's order."""
        return [call.report(ranks) for call in self._calls.values()]

    def first_wrong(self) -> str | None:
        """The first block that came wrong, if one has."""
        for call in self._calls.values():
            for each in call.collective.wrong.named[:1]:
                return f"rank {each.rank} got block {each.block} from {each.peer}: {each.what}"
        return None

    def groups_up(self) -> list[GroupsUp]:
        """What came of each kind of group."""
        return self._groups.report()

    # -- what one rank does

    async def run(self, rank: Rank) -> None:
        """The whole plan. Steps stand under the timers by which NCCL counts them; its bootstrap
        begins with the formation.
        """
        if self.plan.front is not None:
            with rank.span(self.plan.front.name):
                await self.plan.front.start(rank, self.job)
        timers = self._timers
        bootstrap: list[Step] = []
        if timers and timers[0][0] == "bootstrap":
            bootstrap, timers = timers[0][1], timers[1:]
        with rank.span("bootstrap"):
            ring = await self._form(rank)
            for step in bootstrap:
                with self._span(rank, step):
                    await self._do(rank, ring, step)
                self._done(step)
        for timer, steps in timers:
            with contextlib.nullcontext() if timer == REST else rank.span(timer):
                for step in steps:
                    with self._span(rank, step):
                        await self._do(rank, ring, step)
                    self._done(step)
        if self._spec.groups:
            with rank.span("groups"):
                p2p = self.plan.p2p
                ends = self._point_to_point(rank, p2p)
                parent = Parent(self.job, ring, ends, lambda peer: self._address(p2p, peer))
                await self._groups.bring_up(rank, parent)

    async def _form(self, rank: Rank) -> Ring:
        """Formation, the listeners that are opened after it, and the harness's barrier."""
        if self._faults.raises(rank.rank):
            raise InjectedFault(f"injected: rank {rank.rank} raises")
        ring = await self.plan.formation.form(rank, self.job)
        if not isinstance(ring, Ring):
            name = formation_name(self._spec)
            raise UsageError(f"formation {name} returned {ring!r}: expected a Ring")
        self.rings[rank.slot] = ring
        self._listeners[rank.slot] = (ring.listener,)
        if self.plan.listeners:
            with rank.span("bootstrap.listen"):
                more = tuple(rank.network.listen() for _ in self.plan.listeners)
            self._listeners[rank.slot] += more
        self._set_hops(rank.rank, ring)
        if not self._setup.keep_store:
            for connection in rank.kept:
                connection.close()
            rank.kept = ()
        await self._when_formed(rank)
        largest = max((gather.record_bytes for gather in self.plan.gathers), default=0)
        for channel in (ring.next, ring.prev):
            channel.bound = max(channel.bound, largest)
        return ring

    def _set_hops(self, rank: int, ring: Ring) -> None:
        """Neighbours on one emulated host are nearer."""
        spec = self._spec
        if spec.intra_host_delay_s is None:
            return
        for channel, peer in ((ring.next, rank + 1), (ring.prev, rank - 1)):
            same = rank // spec.ranks_per_host == peer % spec.nranks // spec.ranks_per_host
            if same and isinstance(channel, LateChannel):
                channel.delay_s = spec.intra_host_delay_s

    def _span(self, rank: Rank, step: Step) -> AbstractContextManager[None]:
        if isinstance(step, Local) or (isinstance(step, Barrier) and not self._has_barrier):
            return contextlib.nullcontext()  # it times itself, or is left out
        peer = (rank.rank - 1) % self._spec.nranks if isinstance(step, Gather) else None
        return rank.span(step.phase, peer)

    def _do(self, rank: Rank, ring: Ring, step: Step) -> Awaitable[object]:
        """A step, to be awaited at once. No coroutine itself: while an AllGather runs all ranks
        wait in here.
        """
        match step:
            case Gather():
                return self._gather(rank, ring, self._calls[step.phase])
            case Local():
                return self._work(rank, step)
            case Barrier():
                return self._barrier(rank)

    def _done(self, step: Step) -> None:
        """A rank is through with it."""
        if isinstance(step, Gather):
            call = self._calls[step.phase]
            call.left -= 1
            if not call.left:
                call.ended_s = self._since_start_s()

    async def _barrier(self, rank: Rank) -> None:
        if not self._has_barrier:
            return
        p2p, members = self.plan.p2p, host_of(rank.rank, self._extent)
        ends = self._point_to_point(rank, p2p)
        await barrier(rank, ends, members, lambda peer: self._address(p2p, peer))

    def _gather(self, rank: Rank, ring: Ring, call: Call) -> Awaitable[object]:
        if not call.began_s:
            call.began_s = self._since_start_s()
        lines = {NEXT: ring.next, PREV: ring.prev}
        peers: RingPeers | None = None
        is_last = call.gather is self.plan.gathers[-1]
        flips = self._faults.flips(rank.rank) if is_last else None
        if call.gather.schedule.peers(self._spec.nranks):
            peers = RingPeers(
                rank.rank,
                self._spec.nranks,
                self._point_to_point(rank, RING),
                lambda peer: self._address(RING, peer),
                self.plan.gathers.index(call.gather),
                flips,
            )
        elif flips is not None:
            lines[NEXT] = flips(ring.next)
        if self._setup.kill_at_first_block:
            lines[PREV] = self._faults.killing(ring.prev)
        return run(rank, lines, call.collective, peers)

    async def _work(self, rank: Rank, local: Local) -> None:
        """Its own loops, or the time that they are charged."""
        charged_s = self._setup.charges.get(local.phase)
        if charged_s is None:
            with rank.span(local.phase):
                local.work.run(self._loops[local.phase], rank.rank, self._extent)
            return
        wall = rank.trace.wall[rank.trace.phase(local.phase)]
        before = wall[rank.slot]
        with rank.span(local.phase):
            await rank.clock.sleep(charged_s)
        # Not how late a busy process woke it: neither here nor in what this is part of.
        late_s = wall[rank.slot] - before - charged_s
        wall[rank.slot] = before + charged_s
        rank.excused_s += late_s
        span = rank.youngest
        while span is not None:
            span.excuse(late_s)
            span = span.outer

    def _point_to_point(self, rank: Rank, name: str) -> PointToPoint:
        """A rank's at its listener `name`, in the communicator of all ranks."""
        ends = self._p2p.get((rank.slot, name))
        if ends is None:
            listener = self._listeners[rank.slot][self.plan.published.index(name)]
            ends = PointToPoint(rank, self.job, listener, self._tagged_apart)
            self._p2p[rank.slot, name] = ends
        return ends

    def _address(self, listener: str, rank: int) -> Address:
        """Where a rank listens, as an AllGather has brought it, byte for byte."""
        book = self.plan.address_book(listener)
        assert book is not None, "an AllGather before has brought the addresses"
        index, at = book
        record = self._calls[self.plan.gathers[index].phase].collective.table.record(rank)
        return unpack_address(record[at : at + ADDRESS_BYTES])
