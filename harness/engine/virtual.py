"""A run in virtual time: the same ranks, roots and stores on a modelled cluster, in this process.

Every rank, root and store is a process of its own there, with a CPU of its own. What they did goes
the way of a measured run's reports to a result, whose numbers are all `simulated`.
"""

import asyncio
import gc
import hashlib
import random
import time
from array import array
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import msgspec
import numpy as np

from emucoll.errors import Deadlock, EmucollError, HarnessError, UsageError
from emucoll.formation.base import count_roots
from emucoll.net.base import Address
from emucoll.rank import Job, Rank
from emucoll.servers.root import RootServer
from emucoll.servers.root_state import CollectingRootState, RootState
from emucoll.servers.store import StoreServer
from emucoll.sim.faults import Links
from emucoll.sim.loop import VirtualLoop
from emucoll.sim.network import Serial, VirtualNetwork, VirtualWorld
from emucoll.sim.path import Path
from emucoll.sim.rounds import Noise, wires
from emucoll.spans import SpanLog, peer_number
from emucoll.trace import IDLE, Timed, Unmetered
from emucoll.wire.nccl import UniqueId, root_ranks
from harness.clusters import Setting, find_cluster, in_order
from harness.control import messages as m
from harness.control.controller import RANK_WEIGHTS, Outcome, Placement
from harness.control.forgotten import forgotten_awaits
from harness.control.inject import RankFaults
from harness.control.lifecycle import Stage, Trouble, Weight
from harness.control.ranks import NEVER_STARTED, START_SKEW, rank_failed, spans_of
from harness.control.skew import skew_s
from harness.engine import assemble
from harness.engine.diagnose import diagnose, wrong_data
from harness.engine.loopback import keep
from harness.engine.played import PlayedInitialization, plays
from harness.engine.refuse import refuse_impossible
from harness.jitter import Jitter
from harness.network_faults import HostFault, LinkFault, rule_of
from harness.planned import extent_of, group_roots, locals_of, plan_of
from harness.profile import names
from harness.results.environment import read_environment
from harness.results.schema import Memory, RunResult, RunWarning, Simulation, WorkByRole
from harness.results.storage import check_writable
from harness.spec import RankFault, ServerKill, Spec, WorkerKill, format_injection
from harness.usage import cpu_s, peak_rss_bytes
from harness.work import Work

CRASHED = "crashed"
STUCK_KEYS = 8
NOISE_DRAWS = 1 << 20
"""In the pool of which rounds read their noise."""


class VirtualRun:
    """One bring-up of a spec on a cluster."""

    def __init__(self, spec: Spec, setting: Setting, path: Path | None = None) -> None:
        """Nothing has happened yet. `path` records what everybody waits for."""
        self.spec = spec
        self.setting = setting
        self.loop = VirtualLoop(weak_s=min(60.0, spec.deadline_s))
        draws = random.Random(f"jitter {spec.seed}")
        jitter = partial(setting.jitter.draw, draws) if setting.jitter else None
        nhosts = int(setting.hosts.max()) + 1
        faults = [each for each in spec.inject if isinstance(each, HostFault | LinkFault)]
        rules = [rule for fault in faults if (rule := rule_of(fault, nhosts)) is not None]
        losses = random.Random(f"loss {spec.seed}")
        links = Links(rules, losses.random) if rules else None
        self.world = VirtualWorld(self.loop, setting.costs, jitter, links, path)
        self._slow_hosts = {
            each.host: each.factor or 1.0
            for each in faults
            if isinstance(each, HostFault) and each.what == "slow"
        }
        self.plan = plan_of(spec)
        self.trace = Unmetered(spec.nranks, self.loop.time)
        if spec.is_recorded:
            self.trace.spans = SpanLog(spec.nranks)
        if path is not None:
            self.trace.moved = partial(self._moved, path)
        self.faults = RankFaults(spec, self.plan)
        self.wiring = wires(setting.hosts, setting.costs)
        self.noise = _noise(spec.seed, setting.jitter) if setting.jitter else None
        self.outcome = Outcome(stage=Stage.FORMING)
        self.charges = charges_of(spec, setting)
        self.ranks: list[Rank] = []
        self.networks: list[VirtualNetwork] = []
        self.totals = array("d", bytes(8 * spec.nranks))
        self.formed = self.done = 0
        self.last_done: int | None = None
        """The rank that was done last."""
        self.roots: list[RootServer] = []
        self.root_networks: list[VirtualNetwork] = []
        self.store: StoreServer | None = None
        self.store_network: VirtualNetwork | None = None
        self._tasks: list[tuple[Rank, asyncio.Task[None]]] = []
        self._serving: list[asyncio.Task[None]] = []
        self._broken: asyncio.Future[None] | None = None

    def run(self) -> Outcome:
        """To its end, whatever end."""
        with (
            _rare_collection(),
            forgotten_awaits(self._forgot),
            asyncio.Runner(loop_factory=lambda: self.loop) as runner,
        ):
            try:
                runner.run(self._run())
            except Deadlock as error:
                self._deadlocked(error)
        return self.outcome

    async def _run(self) -> None:
        spec = self.spec
        draws = random.Random(f"virtual {spec.seed}")
        jitter = random.Random(spec.seed * 1_000_003)
        shared = {rank: Serial() for ranks in self.setting.sharing for rank in ranks[:1]}
        for ranks in self.setting.sharing:
            shared |= dict.fromkeys(ranks, shared[ranks[0]])
        for r, host in enumerate(self.setting.hosts.tolist()):
            slow = self.faults.slow(r) * self._slow_hosts.get(host, 1.0)
            network = self.world.network(host, shared.get(r) or Serial(slow))
            self.networks.append(network)
            self.ranks.append(Rank(r, r, network, self.world.clock, self.trace, jitter))
        job = self._start_servers(draws)
        initialization = PlayedInitialization(self, job)
        self._broken = self.loop.create_future()
        for rank in self._in_order():
            if not self._never_starts(rank):
                task = asyncio.create_task(self._run_rank(rank, initialization))
                self._tasks.append((rank, task))
                self._crash_later(rank, task)
        tasks = [task for _, task in self._tasks]
        everybody: asyncio.Future[Any] = asyncio.gather(*tasks, return_exceptions=True)
        ends: set[asyncio.Future[Any]] = {everybody, self._broken}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if self.done < spec.nranks and not self._broken.done():
                await self._broken  # one is missing: a deadlock, or what its waiting leads to
            if self._broken.done():
                return
            self.outcome.finished["worker 0"] = self._finished(initialization)
        finally:
            for task in (*tasks, *self._serving):
                task.cancel()
            await asyncio.gather(*tasks, *self._serving, everybody, return_exceptions=True)
            self._report_servers()

    def _in_order(self) -> list[Rank]:
        """As a worker starts them: those first that all others wait for."""
        if self.plan.front is None:
            return self.ranks
        nroots = max(1, len(self.roots) - len(group_roots(self.spec)))
        leaders = set(self.plan.front.leaders(self.spec.nranks, nroots))
        return sorted(self.ranks, key=lambda rank: rank.rank not in leaders)

    def _never_starts(self, rank: Rank) -> bool:
        never = self.faults.never_starts(rank.rank)
        if never:
            rank.phase = self.trace.phase(NEVER_STARTED)
        return never

    # -- servers

    def _start_servers(self, draws: random.Random) -> Job:
        spec, formation = self.spec, self.plan.formation
        n, layout = spec.nranks, formation.check_in
        nroots = count_roots(formation, n, spec.roots)
        ids = [
            self._start_root(draws, n, iroot, nroots, root_ranks(n, nroots, iroot).start)
            for iroot in range(nroots)
        ]
        self.group_ids = tuple(self._start_root(draws, size, 0, 1, 0) for size in group_roots(spec))
        needs_store = "store" in self.plan.servers or spec.group_init == "ncclx"
        store = self._start_store() if needs_store else None
        return Job(
            nranks=n,
            magic=ids[0].magic if ids else draws.getrandbits(64),
            comm=f"{draws.getrandbits(32):08x}",
            store=store,
            roots=tuple(ids),
            check_in=layout if ids or self.group_ids else None,
            uid_stagger_rate=spec.uid_stagger_rate,
            uid_stagger_threshold=spec.uid_stagger_threshold,
            handshake_s=spec.handshake_s,
            deadline_s=spec.deadline_s,
        )

    def _start_root(
        self, draws: random.Random, nranks: int, iroot: int, nroots: int, owner: int
    ) -> UniqueId:
        """Beside the rank that made its id, in a thread with a core of its own."""
        layout = self.plan.formation.check_in
        network = self.world.network(int(self.setting.hosts[owner]))
        state: RootState | CollectingRootState = RootState(nranks, iroot, nroots)
        if layout.collects:
            state = CollectingRootState(nranks)
        magic = draws.getrandbits(64)
        root = RootServer(network, self.world.clock, state, magic, layout, self.spec.handshake_s)
        listener = network.listen()
        self.roots.append(root)
        self.root_networks.append(network)
        self._serve(root.serve(listener, self.spec.deadline_s), "root")
        return UniqueId(magic, listener.address)

    def _start_store(self) -> Address:
        """On a host of its own."""
        network = self.world.network(host=-1)
        listener = network.listen()
        self.store, self.store_network = (
            StoreServer(self.world.clock, self.spec.handshake_s),
            network,
        )
        self._serve(self.store.serve(listener), "store")
        return listener.address

    def _serve(self, serving: Awaitable[None], name: str) -> None:
        async def guarded() -> None:
            try:
                await serving
            except EmucollError as error:
                if self.outcome.trouble is None:
                    text = f"the {name} failed: {error}"
                    self._fail(Trouble(Weight.BROKEN, HarnessError(text)))

        self._serving.append(asyncio.create_task(guarded()))

    # -- ranks

    async def _run_rank(self, rank: Rank, initialization: PlayedInitialization) -> None:
        late_s = skew_s(self.spec.start_skew, rank.rank, self.spec.seed)
        if late_s:
            with rank.span(START_SKEW):
                await self.world.clock.sleep(late_s)
        rank.phase = self.trace.phase(IDLE)
        began = self.loop.time()
        try:
            await initialization.run(rank)
        except Exception as error:
            self._rank_failed(rank, error)
            return
        self.totals[rank.slot] = self.loop.time() - began
        self.done += 1
        self.last_done = rank.rank

    def _moved(self, path: Path, rank: Timed) -> None:
        network = self.networks[rank.slot]
        name = self.trace.names[rank.phase]
        now = self.loop.time()
        path.enter(network.number, name, now, network.cpu.done_s(now))

    def _forgot(self, error: UsageError) -> None:
        """A coroutine was not awaited: the running rank's, if one runs."""
        running = asyncio.current_task(self.loop)
        for rank, task in self._tasks:
            if task is running:
                self._rank_failed(rank, error)

    def _rank_failed(self, rank: Rank, error: Exception) -> None:
        if self.outcome.trouble is None:
            failed = rank_failed(rank, error)
            self._fail(Trouble(RANK_WEIGHTS[failed.kind], ("worker 0", failed)))

    def _crash_later(self, rank: Rank, task: "asyncio.Task[None]") -> None:
        """If it is injected to: its process ends, and the kernel resets its connections."""

        def crash(_: None) -> None:
            if not task.done():
                task.cancel()
                rank.phase, rank.peer = self.trace.phase(CRASHED), None
                self.networks[rank.slot].close()

        for fault in self.spec.inject:
            if isinstance(fault, RankFault) and fault.what == "crash" and fault.rank == rank.rank:
                self.loop.at(fault.at_s or 0.0, crash)

    async def when_formed(self, rank: Rank) -> None:
        """One more has formed. It goes on at once, as NCCL's do."""
        self.formed += 1
        if self.formed == self.spec.nranks:
            self.outcome.formation_s = self.loop.time()
            self.outcome.stage = Stage.GATHERING

    def _fail(self, trouble: Trouble) -> None:
        self.outcome.trouble = trouble
        if self._broken is not None and not self._broken.done():
            self._broken.set_result(None)

    def _deadlocked(self, error: Deadlock) -> None:
        """Who waits for whom when nothing is under way any more."""
        self.outcome.waiting["worker 0"] = m.WaitingRanks(
            first=0,
            names=self.trace.names,
            phases=array("H", (rank.phase for rank in self.ranks)).tobytes(),
            peers=array("q", (peer_number(rank.peer) for rank in self.ranks)).tobytes(),
        )
        if self.store is not None:
            self.outcome.stuck_keys = self.store.state.stuck_waits()[:STUCK_KEYS]
        self.outcome.trouble = Trouble(Weight.DEADLINE, error)

    def name_of(self, process: int) -> str:
        """`rank 7`, `root 0` or `store`, by its number in the world."""
        if process < self.spec.nranks:
            return f"rank {process}"
        for number, network in enumerate(self.root_networks):
            if network.number == process:
                return f"root {number}"
        return "store"

    # -- what came of it

    def _finished(self, initialization: PlayedInitialization) -> m.Finished:
        trace, n = self.trace, self.spec.nranks
        groups = initialization.groups_up()
        skip: tuple[str, ...] = (IDLE, "loop", NEVER_STARTED)
        if self.spec.start_skew is None:
            skip = (*skip, START_SKEW)
        return m.Finished(
            total_s=self.loop.time(),
            gathers=initialization.gathered(n),
            groups=groups,
            phases={
                name: wall.tobytes()
                for name, wall in zip(trace.names, trace.wall, strict=True)
                if name not in skip
            },
            totals=self.totals.tobytes(),
            cpu_s={},
            work=self._work(
                self.networks,
                trace.retries + sum(each.retries for each in groups),
                trace.requests + sum(each.requests for each in groups),
                initialization.played_messages,
                initialization.played_bytes,
            ),
            reads=0,
            writes=0,
            peak_descriptors=max(network.peak_descriptors for network in self.networks),
            held_descriptors=sum(network.held_descriptors for network in self.networks),
            dropped=list(trace.dropped),
            dropped_count=trace.dropped.in_all,
            spans=None if trace.spans is None else spans_of(trace, trace.spans, 0.0),
        )

    def _work(
        self,
        networks: list[VirtualNetwork],
        retries: int,
        requests: int | None,
        messages: int = 0,
        sent_bytes: int = 0,
    ) -> Work:
        counters = [network.counters for network in networks]
        return Work(
            messages=messages + sum(each.messages for each in counters),
            bytes=sent_bytes + sum(each.bytes_sent for each in counters),
            connections=sum(each.connects for each in counters),
            retries=retries,
            requests=requests,
            cpu_s=sum(network.cpu.busy_s for network in networks),
        )

    def _report_servers(self) -> None:
        if self.roots:
            retries = sum(root.retries for root in self.roots)
            work = self._work(self.root_networks, retries, None)
            connections = sum(root.connections for root in self.roots)
            dropped = [reason for root in self.roots for reason in root.dropped]
            self.outcome.servers["root"] = m.ServerReport(
                work=msgspec.structs.replace(work, connections=connections),
                dropped=dropped[:100],
                dropped_count=sum(root.dropped.in_all for root in self.roots),
            )
        if self.store is not None and self.store_network is not None:
            self.outcome.servers["store"] = m.ServerReport(
                work=msgspec.structs.replace(
                    self._work([self.store_network], 0, self.store.state.requests),
                    connections=self.store.connections,
                ),
                dropped=list(self.store.dropped),
                dropped_count=self.store.dropped.in_all,
            )

    def digest(self) -> str:
        """Of every rank's time in every phase, and of what was sent: equal for equal runs."""
        digest = hashlib.blake2b(digest_size=16)
        for name, wall in zip(self.trace.names, self.trace.wall, strict=True):
            digest.update(name.encode() + b"\0" + wall.tobytes())
        digest.update(self.totals.tobytes())
        for network in self.world.networks:
            counters = network.counters
            sent = (counters.messages, counters.bytes_sent, counters.connects, network.cpu.busy_s)
            digest.update(repr(sent).encode())
        digest.update(repr((self.loop.events, self.loop.time())).encode())
        return digest.hexdigest()


@contextmanager
def _rare_collection() -> Iterator[None]:
    """Of cycles, which few of millions of objects are in: a quarter of the time went into looking
    for them.
    """
    before = gc.get_threshold()
    gc.set_threshold(50_000, 20, 1000)
    try:
        yield
    finally:
        gc.set_threshold(*before)


def _noise(seed: int, jitter: Jitter) -> Noise:
    draws = np.random.default_rng(seed)
    pool = jitter.pool(draws, NOISE_DRAWS)
    return Noise(pool, lambda below, count: draws.integers(below, size=count))


def charges_of(spec: Spec, setting: Setting) -> dict[str, float]:
    """By phase how long a rank's local work takes."""
    extent = extent_of(spec)
    return {
        local.phase: local.work.iterations(extent)
        * local.work.calls(extent)
        * setting.loops_s.get(local.work.name, setting.iteration_s)
        for local in locals_of(spec)
    }


def refuse_impossible_there(spec: Spec) -> None:
    """Raise UsageError for what there is not in virtual time."""
    if spec.cluster is None:
        raise UsageError(f"--world virtual: --cluster is missing: {', '.join(names('clusters'))}")
    real = {
        f"--root {spec.root}": spec.root != "builtin",
        f"--store {spec.store}": spec.store != "builtin",
        "--external-ranks": bool(spec.external_ranks),
        "--workers": spec.workers is not None,
        "--start-window": spec.start_window is not None,
        "--hop-delay": bool(spec.hop_delay_s),
        "--ip 6": spec.ip == "6",
        "--restarts": bool(spec.restarts),
        "--inject": any(isinstance(each, ServerKill | WorkerKill) for each in spec.inject),
    }
    for flag, given in real.items():
        if given:
            raise UsageError(
                f"{flag} is of real processes and sockets: leave it out, or --world virtual"
            )


def run(spec: Spec) -> RunResult:
    """Run it. Raises UsageError for what cannot be run; all else is in the result."""
    refuse_impossible_there(spec)
    assert spec.cluster is not None
    cluster = find_cluster(spec.cluster, spec.nranks)
    refuse_impossible(spec)
    return run_in(spec, cluster.setting(in_order(spec.nranks, spec.ranks_per_host)))


def run_in(spec: Spec, setting: Setting) -> RunResult:
    """Run it there. Raises UsageError for a folder that cannot be written to."""
    if spec.out is not None:
        check_writable(spec.out)
    began, cpu_before_s = time.monotonic(), cpu_s()
    virtual = VirtualRun(spec, setting)
    outcome = virtual.run()
    simulation = Simulation(
        seconds=time.monotonic() - began,
        cpu_s=cpu_s() - cpu_before_s,
        peak_rss_bytes=peak_rss_bytes(),
        events=virtual.loop.events,
    )
    placement = Placement((range(spec.nranks),), None)
    environment = msgspec.structs.replace(read_environment("virtual"), loop="virtual")
    if outcome.trouble is not None:
        error, exit_code = diagnose(spec, outcome)
        failed = RunResult(
            kind="simulated",
            spec=spec,
            environment=environment,
            seed=spec.seed,
            ok=False,
            error=error,
            exit_code=exit_code,
            nranks=spec.nranks,
            warnings=assemble.warnings_of(spec, placement, outcome),
            trace_hash=virtual.digest(),
            simulation=simulation,
        )
        if spec.out is not None:
            keep(failed, {}, None, spec.out)
        return failed
    measured = assemble.Measured(
        environment=environment,
        controller_cpu_s=0.0,
        kernel_socket_bytes=None,
        warnings=[],
        charges=virtual.charges,
    )
    result, times = assemble.result(spec, placement, outcome, measured)
    result.simulation = simulation
    _simulated(result, virtual)
    if not result.ok:
        result.error = wrong_data(result, placement)
    if spec.out is not None:
        keep(result, times, assemble.recording(placement, outcome), spec.out)
    return result


def _too_late(spec: Spec, total_s: float) -> list[RunWarning]:
    """Faults that did not happen."""
    warnings = []
    for fault in spec.inject:
        at_s = fault.cut_from_s if isinstance(fault, LinkFault) else getattr(fault, "at_s", None)
        if at_s is not None and at_s >= total_s:
            text = f"--inject {format_injection(fault)}: all was over after {total_s:g} s"
            warnings.append(RunWarning(code="fault-too-late", text=text))
    return warnings


def _simulated(result: RunResult, virtual: VirtualRun) -> None:
    """Every number of it is simulated, and what this process took is none of it."""
    spec = virtual.spec
    played = {
        gather.phase for gather in virtual.plan.gathers if plays(spec, virtual.setting, gather)
    }
    note = "played in rounds, all ranks at once: no block was sent, and so none verified"
    result.kind, result.trace_hash = "simulated", virtual.digest()
    result.workers, result.saturated, result.memory = None, None, Memory()
    result.phases = [
        msgspec.structs.replace(phase, kind="simulated", cpu_s=None)
        for phase in result.phases
        if phase.name != "loop"
    ]
    result.allgathers = [
        msgspec.structs.replace(gather, wrong=None, note=note, reads=None, writes=None)
        if gather.phase in played
        else msgspec.structs.replace(gather, reads=None, writes=None)
        for gather in result.allgathers
    ]
    of_this_machine = ("saturated-both-ways", "not-latency-bound")
    warnings = [each for each in result.warnings if each.code not in of_this_machine]
    result.warnings = [*warnings, *_too_late(spec, result.total_s or 0.0)]
    work = result.work
    result.work = WorkByRole(ranks=work.ranks, root=work.root, store=work.store)
