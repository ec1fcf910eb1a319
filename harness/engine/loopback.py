"""Spec -> result over real TCP on this machine: preflight, controller, assembly or diagnosis,
storage.
"""

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import msgspec

from emucoll.collectives.driver import PEER_CHUNK_BYTES
from emucoll.errors import PreflightRefused, UsageError
from emucoll.formation.base import count_roots
from emucoll.formation.split import SPLIT_INFO_BYTES
from emucoll.plans.steps import Barrier, Gather
from harness.control.controller import Controller, Outcome, Placement
from harness.control.lifecycle import Stage
from harness.control.loops import LOOP, raise_descriptor_limit
from harness.engine import assemble
from harness.engine.diagnose import diagnose, wrong_data
from harness.engine.kernel import KernelMemory
from harness.engine.local import charges, estimate_s, is_charged
from harness.engine.refuse import refuse_impossible, refuse_missing_worker
from harness.external.endpoints import external_servers
from harness.planned import group_roots, plan_of, servers_of
from harness.preflight.arithmetic import Demand, Layout, fit, refusal
from harness.preflight.case import Costs, Gathering, Server
from harness.preflight.machine import Machine, read_machine
from harness.report.progress import Progress
from harness.results.environment import Environment, read_environment
from harness.results.recording import Recording, packed_recording
from harness.results.schema import RunError, RunResult, RunWarning
from harness.results.storage import (
    Pids,
    Rendezvous,
    check_writable,
    remove_rendezvous,
    save,
    save_pids,
    save_rendezvous,
)
from harness.skew import last_start_s
from harness.spec import Spec
from harness.usage import cpu_s


def demand(spec: Spec, machine: Machine) -> Demand:
    """What a spec asks of the machine."""
    initialization, n = plan_of(spec), spec.nranks
    formation = initialization.formation
    store, root = (name in servers_of(spec) for name in ("store", "root"))
    elsewhere = external_servers(spec)
    # A group's ring, and the listeners beside it; one more while a root answers.
    kinds, listeners = len(spec.groups), len(initialization.listeners)
    formed = formation.formed_descriptors + listeners
    keeps_store = keeps_its_store(spec, machine)
    peers = max((len(each.schedule.peers(n)) for each in initialization.gathers), default=0)
    barrier_rounds = _barrier_rounds(spec)
    nroots = count_roots(formation, n, spec.roots)
    owned = -(-n // max(1, nroots))
    stagger_s = formation.stagger_s(
        owned - 1, owned, spec.uid_stagger_threshold, spec.uid_stagger_rate
    )
    least_s, expected_s = last_start_s(spec.start_skew)
    return Demand(
        nranks=spec.nranks,
        gathers=(
            *(_gathering(each, n, spec.steps) for each in initialization.gathers),
            *_groups_gatherings(spec),
        ),
        # With peers, a message out at a time, and perhaps one from each that is ahead.
        formed_descriptors=formed * (1 + kinds)
        + keeps_store
        + max(peers and 1 + peers, 2 * (barrier_rounds > 0)),
        unformed_descriptors=formation.unformed_descriptors + (initialization.front is not None),
        listeners_per_rank=(formation.listeners + listeners) * (1 + kinds),
        p2p_connections_per_rank=barrier_rounds + 2 * kinds,
        group_roots=len(group_roots(spec)),
        uses_store=_uses(store, "store" in elsewhere),
        uses_root=_uses(root, "root" in elsewhere),
        nroots=spec.roots if formation.ranks_per_root else nroots,
        ranks_per_root=formation.ranks_per_root,
        threads_per_root=int(spec.root.startswith("libnccl")),
        store_descriptors_per_unformed_rank=1 if store else 0,
        windowable=formation.windowable,
        local_s=estimate_s(spec, machine.cores_allowed or machine.cores_online or 1),
        bring_ups=spec.restarts + 1,
        stagger_s=stagger_s,
        least_skew_s=least_s,
        skew_s=expected_s,
        latency_s=_latency_s(spec),
        ipv6=spec.ip == "6",
        workers=spec.workers,
        window=spec.start_window,
    )


def _uses(needed: bool, is_external: bool) -> Server:
    if not needed:
        return "none"
    return "external" if is_external else "builtin"


def _gathering(gather: Gather, n: int, steps: int | None) -> Gathering:
    """What one AllGather asks of the machine."""
    schedule, rounds = gather.schedule, gather.rounds(n, steps)
    traffic = schedule.traffic(n, rounds, 1)
    return Gathering(
        record_bytes=gather.record_bytes,
        blocks=traffic.blocks if rounds < schedule.rounds(n) else None,
        piece_bytes=PEER_CHUNK_BYTES if schedule.peers(n) else None,
        cut_through=schedule.flow == "cut-through",
        messages_per_block=traffic.messages / traffic.blocks if traffic.blocks else 1.0,
    )


def _groups_gatherings(spec: Spec) -> Iterator[Gathering]:
    """What the AllGathers of process groups ask: all groups of a kind at once."""
    plan = plan_of(spec)
    for kind in spec.groups:
        if spec.group_init == "split":
            colors = Gather("", plan.gathers[0].schedule, SPLIT_INFO_BYTES)
            yield _gathering(colors, spec.nranks, None)
        for gather in plan.gathers:
            ours = _gathering(gather, kind.size, spec.steps)
            blocks = kind.size - 1 if ours.blocks is None else ours.blocks
            yield replace(ours, blocks=blocks)


def _barrier_rounds(spec: Spec) -> int:
    """Messages that a rank sends in its host's barrier, each on a connection of its own."""
    if not any(isinstance(step, Barrier) for step in plan_of(spec).steps):
        return 0
    return (min(spec.ranks_per_host, spec.nranks) - 1).bit_length()


FORMATION_HOPS = 3
"""Messages that wait for each other while a ring forms, at least: check-in, answer, hello."""


def _latency_s(spec: Spec) -> float:
    """How long ranks wait for late messages at least, whatever the machine."""
    if not spec.hop_delay_s:
        return 0.0
    n, far_s = spec.nranks, spec.hop_delay_s
    near_s = far_s if spec.intra_host_delay_s is None else spec.intra_host_delay_s
    seconds = FORMATION_HOPS * near_s + _barrier_rounds(spec) * near_s
    for gather in plan_of(spec).gathers:
        hops = gather.hops(n, spec.steps)
        # On its way from neighbour to neighbour a record leaves a host so often; else who knows.
        along_the_ring = n > spec.ranks_per_host and not gather.schedule.peers(n)
        far = hops // spec.ranks_per_host if along_the_ring else 0
        seconds += far * far_s + (hops - far) * near_s
    return seconds


def past_deadline(spec: Spec, layout: Layout) -> RunWarning | None:
    """A warning, if not even the shortest that this could take is within the deadline."""
    low_s = layout.estimates.low_s
    if low_s <= spec.deadline_s:
        return None
    text = f"this takes {low_s:.0f} s or more, and --deadline is {spec.deadline_s:g} s"
    return RunWarning(code="deadline", text=text)


def lay_out(spec: Spec, machine: Machine | None = None) -> Layout:
    """How the run would be laid out on this machine."""
    raise_descriptor_limit()
    machine = machine or read_machine()
    return fit(demand(spec, machine), machine)


def keeps_its_store(spec: Spec, machine: Machine) -> bool:
    """Can all ranks keep the connection to the store that the plan's front opens? The store needs a
    descriptor for each.
    """
    if plan_of(spec).front is None:
        return False
    free = machine.nofile_hard
    return free is None or spec.nranks + Costs().reserve_descriptors <= free


def place(layout: Layout) -> Placement:
    """Contiguous shares of the ranks."""
    shares, first = [], 0
    for count in layout.ranks_per_worker:
        shares.append(range(first, first + count))
        first += count
    holds_back = layout.window is not None and layout.window < max(map(len, shares))
    return Placement(tuple(shares), layout.window if holds_back else None)


def run(
    spec: Spec, progress: Progress, on_pids: Callable[[dict[str, int]], None] = lambda _: None
) -> RunResult:
    """Run it. `on_pids` hears the ids of its processes, by name, before any rank starts.

    Raises UsageError (PreflightRefused among them) for what cannot be run; all else is in the
    result.
    """
    refuse_impossible(spec)
    machine = read_machine()
    layout = lay_out(spec, machine)
    if not layout.fits:
        raise PreflightRefused(refusal(layout))
    refuse_missing_worker(spec, layout)
    if spec.out is not None:
        check_writable(spec.out)
    environment = read_environment(LOOP)
    warnings = [
        RunWarning(code=limit.name, text=f"{limit.because}; {limit.remedy}")
        for limit in layout.warnings
    ]
    too_long = past_deadline(spec, layout)
    if too_long is not None:
        progress.note(too_long.text)
        warnings.append(too_long)
    placement = place(layout)
    if is_charged(spec):
        progress.note("timing one rank's local work, which all ranks are charged")
    charged = charges(spec)
    kernel = KernelMemory()
    before = cpu_s()
    watch = _Watch(spec, layout, progress, kernel, on_pids)
    keep_store = keeps_its_store(spec, machine)
    if plan_of(spec).front is not None and not keep_store:
        text = (
            f"ranks close their connection to the store once formed, which PyTorch keeps: the "
            f"store cannot hold {spec.nranks} of them with {machine.nofile_hard} descriptors"
        )
        warnings.append(RunWarning(code="store-not-kept", text=text))
    controller = Controller(
        spec, placement, watch.update, watch.pids, watch.rendezvous, charged, keep_store
    )
    outcome = asyncio.run(controller.run())
    kernel.sample()
    measured = assemble.Measured(
        environment=_with_loop(environment, outcome),
        controller_cpu_s=cpu_s() - before,
        kernel_socket_bytes=kernel.peak_bytes,
        warnings=warnings,
        charges=charged,
    )
    if spec.out is not None:
        remove_rendezvous(spec.out)
    result, times = _conclude(spec, placement, outcome, measured)
    if spec.out is not None:
        keep(result, times, assemble.recording(placement, outcome), spec.out)
    return result


def keep(
    result: RunResult, times: assemble.Times, recording: Recording | None, directory: str
) -> None:
    """Keep it; where that fails the result says so, for it may have taken minutes."""
    try:
        packed = None if recording is None else packed_recording(recording)
        save(result, times, directory, packed)
    except UsageError as error:
        result.warnings = [*result.warnings, RunWarning(code="not-saved", text=str(error))]
        if result.ok:
            result.ok, result.exit_code = False, 2
            result.error = RunError(what=str(error), next="the numbers are in this document alone")


def _conclude(
    spec: Spec, placement: Placement, outcome: Outcome, measured: assemble.Measured
) -> tuple[RunResult, assemble.Times]:
    if outcome.trouble is None:
        run, times = assemble.result(spec, placement, outcome, measured)
        if not run.ok:
            run.error = wrong_data(run, placement)
        return run, times
    error, exit_code = diagnose(spec, outcome)
    failed = RunResult(
        kind="measured",
        spec=spec,
        environment=measured.environment,
        seed=spec.seed,
        ok=False,
        warnings=measured.warnings + assemble.warnings_of(spec, placement, outcome),
        error=error,
        exit_code=exit_code,
        nranks=spec.nranks,
        workers=len(placement.shares),
        servers=assemble.servers_of(spec, outcome),
        start_window=placement.window,
    )
    return failed, {}


def _with_loop(environment: Environment, outcome: Outcome) -> Environment:
    return (
        environment
        if outcome.loop is None
        else msgspec.structs.replace(environment, loop=outcome.loop)
    )


SHOWN_EXTERNAL = 16
"""External ranks whose environment is printed; all are in rendezvous.json."""


class _Watch:
    """What the controller calls while the run is on: progress, process ids, kernel memory."""

    def __init__(
        self,
        spec: Spec,
        layout: Layout,
        progress: Progress,
        kernel: KernelMemory,
        on_pids: Callable[[dict[str, int]], None],
    ) -> None:
        self._spec = spec
        self._on_pids = on_pids
        self._layout = layout
        self._progress = progress
        self._kernel = kernel
        self._stage: Stage | None = None
        self._since = time.monotonic()
        self._sampled = 0.0

    def pids(self, pids: dict[str, int]) -> None:
        """Tell the process ids, on stderr and in the output folder."""
        text = ", ".join(f"{name} {pid}" for name, pid in pids.items())
        self._progress.note(f"process ids: {text}")
        self._on_pids(pids)
        if self._spec.out is not None:
            workers = [pid for name, pid in pids.items() if name.startswith("worker")]
            own = os.getpid()
            save_pids(
                Pids(
                    controller=own,
                    root=pids.get("root"),
                    store=pids.get("store"),
                    workers=workers,
                ),
                self._spec.out,
            )

    def rendezvous(self, rendezvous: Rendezvous) -> None:
        """Tell external ranks where the others are, on stderr and in the output folder."""
        where = [f"store {rendezvous.store}"] if rendezvous.store else []
        where += [f"root {root}" for root in rendezvous.roots]
        self._progress.note(
            f"external ranks {', '.join(map(str, rendezvous.external_ranks[:16]))} of "
            f"{rendezvous.nranks} may come: {', '.join(where[:4])}, magic {rendezvous.magic}, "
            f"communicator {rendezvous.comm}"
        )
        for unique_id in rendezvous.unique_ids[:1]:
            self._progress.note(f"unique id {unique_id}")
        for environment in rendezvous.environment[:SHOWN_EXTERNAL]:
            words = (f"{name}={value}" for name, value in sorted(environment.items()))
            self._progress.note(" ".join(words))
        if self._spec.out is not None:
            save_rendezvous(rendezvous, self._spec.out)

    def update(self, controller: Controller) -> None:
        """After a progress message, or after a while without one."""
        now = time.monotonic()
        stage = controller.lifecycle.stage
        if now - self._sampled > 0.5 or stage is not self._stage:
            self._sampled = now
            self._kernel.sample()
        if stage is not self._stage:
            self._stage, self._since = stage, now
        reports = controller.outcome.progress.values()
        counts: dict[str, int] = {}
        for report in reports:
            for name, count in report.phases.items():
                counts[name] = counts.get(name, 0) + count
        forming = stage is Stage.FORMING
        done = sum(each.formed for each in reports) / self._spec.nranks
        if not forming:
            done = sum(each.share for each in reports) / self._layout.workers
        self._progress.update(
            counts,
            self._spec.nranks,
            stage.value,
            done,
            self._time_left_s(now - self._since, done, forming),
        )

    def _time_left_s(self, elapsed_s: float, done: float, forming: bool) -> float | None:
        """From how this stage goes; the AllGather's part, until it has begun, from the estimate."""
        estimates = self._layout.estimates
        if done < 0.02:
            estimated_s = (estimates.formation_s if forming else 0.0) + estimates.allgather_s
            return estimated_s if elapsed_s <= estimated_s + 1.0 else None
        left_s = elapsed_s * (1.0 - done) / done
        return left_s + (estimates.allgather_s if forming else 0.0)
