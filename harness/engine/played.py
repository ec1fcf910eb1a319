"""A plan as the ranks of virtual time run it: AllGathers of many transfers are played in rounds.

Ranks that reach one park; their arrival times go as one vector to the rounds, and each resumes when
it would have been through. So do the ranks of a host at their barrier, if no two runs of it differ
by chance (see `harness.engine.barriers`). All else is as a worker's ranks do it. It must not know
how a run begins or what becomes of its result.
"""

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

import numpy as np

from emucoll.collectives.driver import Collective
from emucoll.collectives.table import RecordTable
from emucoll.net.base import Address
from emucoll.plans.steps import Gather, host_of
from emucoll.rank import Job, Rank, Ring
from emucoll.sim.rounds import play
from emucoll.wire.address import pack_address
from harness.clusters import Setting
from harness.control import messages as m
from harness.control.initialization import Call, Initialization
from harness.engine.barriers import PlayedBarriers
from harness.spec import Spec

if TYPE_CHECKING:
    from harness.engine.virtual import VirtualRun


class PlayedInitialization(Initialization):
    """The plan as ranks run it, but for AllGathers of many transfers, in which they park: their
    arrival times go as one vector to rounds, and each resumes when it would have been through.
    """

    def __init__(self, run: "VirtualRun", job: Job) -> None:
        """Ready to start."""
        self._run = run
        self.played_messages = self.played_bytes = 0
        self._parked: dict[str, _Parked] = {}
        setup = m.Setup(
            spec=run.spec,
            first=0,
            count=run.spec.nranks,
            source="",
            window=None,
            magic=job.magic,
            comm=job.comm,
            report_check_ins=False,
            kill_at_first_block=False,
            folder="",
            keep_store=True,
            attempt=0,
            charges=run.charges,
        )
        super().__init__(setup, run.ranks, run.faults, run.loop.time, self._formed)
        self._plays = {
            gather.phase: plays(run.spec, run.setting, gather) for gather in self.plan.gathers
        }
        self.start(job, run.group_ids)
        self._make_tables()
        self._barriers: PlayedBarriers | None = None
        world = run.world
        if any(self._plays.values()) and not (world.jitter or world.links or run.spec.inject):
            self._barriers = PlayedBarriers(run.loop, world.costs, job, self._tagged_apart)

    def _make_tables(self) -> None:
        """As for a worker of all ranks; addresses follow as ranks form."""
        spec, n = self._spec, self._spec.nranks
        for index, gather in enumerate(self.plan.gathers):
            rounds, size = gather.rounds(n, spec.steps), gather.record_bytes
            if self._plays[gather.phase]:
                table = RecordTable(n, size, bytearray())
            else:
                table = RecordTable.derived(n, size, spec.seed, index, range(n), (n, n))
            collective = Collective(gather.schedule, n, rounds, table)
            self._calls[gather.phase] = Call(gather, collective, n)

    async def _formed(self, rank: Rank) -> None:
        listeners = self._listeners[rank.slot]
        for gather in self.plan.gathers:
            if not self._plays[gather.phase]:
                table = self._calls[gather.phase].collective.table
                for name, at in gather.addresses:
                    listener = listeners[self.plan.published.index(name)]
                    table.put(rank.rank, at, pack_address(listener.address))
        await self._run.when_formed(rank)

    def _gather(self, rank: Rank, ring: Ring, call: Call) -> Awaitable[object]:
        if self._plays[call.gather.phase]:
            return self._park(rank, call)
        return super()._gather(rank, ring, call)

    async def _barrier(self, rank: Rank) -> None:
        if self._barriers is None or not self._has_barrier:
            await super()._barrier(rank)
            return
        members = host_of(rank.rank, self._extent)
        await self._barriers.reach(rank, self._run.networks[rank.slot], members)

    def _park(self, rank: Rank, call: Call) -> Awaitable[None]:
        phase, loop = call.gather.phase, self._run.loop
        parked = self._parked.setdefault(phase, _Parked(self._spec.nranks))
        call.began_s = call.began_s or loop.time()
        future: asyncio.Future[None] = loop.create_future()
        parked.starts[rank.slot] = loop.time()
        parked.waiting[rank.slot] = future
        if len(parked.waiting) == self._spec.nranks:
            del self._parked[phase]
            self._play(call.gather, parked)
        return future

    def _play(self, gather: Gather, parked: "_Parked") -> None:
        run, n = self._run, self._spec.nranks
        rounds = gather.rounds(n, self._spec.steps)
        costs = run.world.costs
        played = play(
            gather.schedule,
            rounds,
            gather.record_bytes,
            parked.starts,
            costs,
            run.wiring,
            run.noise,
            {slot: each.cpu.slow for slot, each in enumerate(run.networks) if each.cpu.slow != 1},
        )
        self.played_messages += played.messages
        self.played_bytes += played.bytes
        cpu_s = played.messages / n * (costs.send_s + costs.recv_s)
        now = run.loop.time()
        path = run.world.path
        last, last_piece = int(parked.starts.argmax()), None
        if path is not None:
            network = run.networks[last]
            last_piece = path.close(network.number, now, network.cpu.done_s(now))
        for slot, future in parked.waiting.items():
            # With few steps a rank may have been through before the last came: it is let go now.
            finish = max(now, float(played.finish[slot]))
            cpu = run.networks[slot].cpu
            cpu.free_at, cpu.busy_s = finish, cpu.busy_s + cpu_s
            if path is not None:
                did = path.goes_on(last_piece, run.networks[last].number, ((finish, "steps"),))
                path.woken(run.networks[slot].number, did, cpu.busy_s)
            run.loop.at(finish, future.set_result)

    def _address(self, listener: str, rank: int) -> Address:
        """All ranks are here."""
        return self._listeners[rank][self.plan.published.index(listener)].address


class _Parked:
    """Ranks that have reached an AllGather which is played in rounds."""

    def __init__(self, n: int) -> None:
        """None yet."""
        self.starts = np.zeros(n)
        self.waiting: dict[int, asyncio.Future[None]] = {}


def plays(spec: Spec, setting: Setting, gather: Gather) -> bool:
    """Is this AllGather played in rounds, and not event by event? Rounds give every rank a CPU."""
    n = spec.nranks
    if setting.sharing or gather.schedule.peers(n):
        return False
    return n * gather.rounds(n, spec.steps) > setting.played_above
