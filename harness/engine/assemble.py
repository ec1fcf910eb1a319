"""From what the processes reported to a result: sums and statistics. Measures nothing."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from emucoll.formation import FORMATIONS
from emucoll.formation.base import count_roots
from emucoll.plans.steps import REST, Barrier, Gather
from emucoll.trace import IDLE
from emucoll.wire.nccl import layout_of_size
from harness import planned
from harness.control import messages as m
from harness.control.controller import BringUp, Outcome, Placement
from harness.external.endpoints import external_servers
from harness.planned import extent_of, plan_of
from harness.results import schema
from harness.results.environment import Environment
from harness.results.recording import Recording
from harness.results.schema import (
    AllGather,
    Descriptors,
    Formation,
    Kind,
    Memory,
    Phase,
    RunResult,
    RunWarning,
    WorkByRole,
    WrongBlock,
    bandwidth,
)
from harness.spec import Spec
from harness.usage import peak_rss_bytes
from harness.work import Work, total

SATURATED = 0.85
"""Share of the cores' time, or of one core for a built-in server, above which the harness's own CPU
was the limit.
"""
LATENCY_BOUND = 0.5
"""Share of the cores' time below which a hop delay decides."""
SHOWN_WRONG = 16
"""Wrong blocks that a result names."""
OUTSIDE = "run"
"""`within` of the phase that lies outside a rank's own total."""
NOT_THEIR_OWN = ("admission", "start-skew")
"""What passes before a rank starts."""
Times = dict[str, npt.NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class Measured:
    """What only the engine itself can measure."""

    environment: Environment
    controller_cpu_s: float
    kernel_socket_bytes: int | None
    warnings: list[RunWarning]
    charges: dict[str, float]
    """By phase the seconds of local work that each rank was charged."""


def per_rank(spec: Spec, outcome: Outcome, placement: Placement) -> Times:
    """Per phase the wall time of every rank that ran here, and "total"; ranks in order. Empty when
    a worker did not finish.
    """
    workers = [outcome.finished.get(f"worker {index}") for index in range(len(placement.shares))]
    finished = [worker for worker in workers if worker is not None]
    if len(finished) < len(workers):
        return {}
    names = dict.fromkeys(name for worker in finished for name in worker.phases)
    zeros = [np.zeros(len(share)) for share in placement.shares]
    times = {
        name: np.concatenate(
            [
                np.frombuffer(worker.phases[name]) if name in worker.phases else zero
                for worker, zero in zip(finished, zeros, strict=True)
            ]
        )
        for name in names
    }
    times["total"] = np.concatenate([np.frombuffer(worker.totals) for worker in finished])
    here = np.ones(len(times["total"]), dtype=bool)
    here[list(spec.external_ranks)] = False
    return {name: each[here] for name, each in times.items()}


def recording(placement: Placement, outcome: Outcome) -> Recording | None:
    """Every span of every rank, and what processes did over time; None where nobody kept it."""
    names: dict[str, int] = {}
    parts: list[tuple[npt.NDArray[Any], ...]] = []
    for index, share in enumerate(placement.shares):
        worker = outcome.finished.get(f"worker {index}")
        if worker is None or worker.spans is None:
            return None
        spans = worker.spans
        known = np.array([names.setdefault(each, len(names)) for each in spans.names], np.uint16)
        parts.append(
            (
                np.frombuffer(spans.slots, np.int32) + np.int32(share.start),
                known[np.frombuffer(spans.phases, np.uint16)],
                np.frombuffer(spans.peers, np.int32),
                np.frombuffer(spans.begins, np.float64) - spans.began,
                np.frombuffer(spans.ends, np.float64) - spans.began,
            )
        )
    rank, phase, peer, begin, end = (np.concatenate(each) for each in zip(*parts, strict=True))
    reports: dict[str, m.Finished | m.ServerReport] = {**outcome.servers, **outcome.finished}
    zero = min(worker.started_at for worker in outcome.finished.values())
    series = {}
    for process, report in reports.items():
        if report.series:
            of_process = {name: np.array(each) for name, each in report.series.items()}
            of_process["t"] = of_process["t"] - zero
            series[process] = of_process
    return Recording(list(names), rank, phase, peer, begin, end, series)


def result(
    spec: Spec, placement: Placement, outcome: Outcome, measured: Measured
) -> tuple[RunResult, Times]:
    """The result of a run that came to its end, and every rank's times."""
    finished = list(outcome.finished.values())
    times = per_rank(spec, outcome, placement)
    total_s = max(worker.total_s for worker in finished)
    gathers = _allgathers(spec, finished)
    phases = _phases(times, finished, measured.charges)
    bring_ups = [*outcome.earlier, BringUp(outcome.formation_s, finished)]
    everybody = [worker for each in bring_ups for worker in each.finished]
    disputed = _disputed(spec, finished)
    wrong = len(disputed)
    wrong += sum(each.wrong for worker in everybody for each in _verified(worker))
    reports: list[m.Finished | m.ServerReport] = [*everybody, *outcome.servers.values()]
    everything = total(report.work for report in reports)
    all_total_s = sum(max(each.total_s for each in up.finished) for up in bring_ups)
    cores_s = all_total_s * measured.environment.cores
    busy = (everything.cpu_s or 0.0) / cores_s if cores_s else 0.0
    saturated = _saturated(bring_ups, outcome, measured, everything.cpu_s or 0.0, all_total_s)
    run = RunResult(
        kind="measured",
        spec=spec,
        environment=measured.environment,
        seed=spec.seed,
        ok=wrong == 0,
        warnings=[
            *measured.warnings,
            *warnings_of(spec, placement, outcome),
            *_regime(spec, saturated, busy),
        ],
        exit_code=0 if wrong == 0 else 1,
        nranks=spec.nranks,
        workers=len(placement.shares),
        servers=servers_of(spec, outcome),
        start_window=placement.window,
        total_s=total_s,
        mean_total_s=float(times["total"].mean()),
        formation=_formation(spec, outcome),
        allgathers=gathers,
        wrong=wrong,
        wrong_blocks=[*_wrong_blocks(spec, everybody), *disputed][:SHOWN_WRONG],
        restarts=[_bring_up(each) for each in bring_ups] if outcome.earlier else [],
        phases=phases,
        charged_s=sum(measured.charges.values()) if measured.charges else None,
        work=_work(outcome, measured, finished),
        memory=_memory(spec, outcome, measured, finished),
        groups=_groups(spec, finished),
        descriptors=Descriptors(
            held_per_rank=sum(worker.held_descriptors for worker in finished) / spec.ranks_here,
            peak_per_worker=max(worker.peak_descriptors for worker in finished),
        ),
        saturated=saturated,
    )
    return run, times


def _bring_up(bring_up: BringUp) -> schema.BringUp:
    finished = bring_up.finished
    work = total(worker.work for worker in finished)
    totals = np.concatenate([np.frombuffer(worker.totals) for worker in finished])
    return schema.BringUp(
        total_s=max(worker.total_s for worker in finished),
        formation_s=bring_up.formation_s,
        mean_total_s=float(totals.mean()),
        connections=work.connections,
        retries=work.retries,
        wrong=sum(each.wrong for worker in finished for each in _verified(worker)),
    )


def _disputed(spec: Spec, finished: list[m.Finished]) -> list[WrongBlock]:
    """Records of external ranks that did not come to all workers alike."""
    disputed = []
    for index, gather in enumerate(plan_of(spec).gathers):
        learned: dict[int, bytes] = {}
        for worker in finished:
            for block, data in worker.gathers[index].learned.items():
                if learned.setdefault(block, data) != data:
                    what = f"external rank {block}'s record is not the same everywhere"
                    disputed.append(
                        WrongBlock(rank=block, block=block, what=what, phase=gather.phase)
                    )
    return disputed


def _verified(worker: m.Finished) -> list[m.Gathered | m.GroupsUp]:
    """What a worker verified: its AllGathers in the plan's order, then each kind of group."""
    return [*worker.gathers, *worker.groups]


def _wrong_blocks(spec: Spec, finished: list[m.Finished]) -> list[WrongBlock]:
    """Those first that had travelled least: nearest to where they went wrong."""
    gathers = plan_of(spec).gathers
    named = [
        (index, wrong)
        for worker in finished
        for index, gathered in enumerate(_verified(worker))
        for wrong in gathered.wrong_blocks
    ]
    named.sort(key=lambda each: (each[0], each[1].step, each[1].rank))
    phases = [*(gather.phase for gather in gathers), *(f"groups.{k.name}" for k in spec.groups)]
    return [
        WrongBlock(**wrong._asdict(), phase=phases[index]) for index, wrong in named[:SHOWN_WRONG]
    ]


def _groups(spec: Spec, finished: list[m.Finished]) -> list[schema.Group]:
    """Each kind's, over all workers."""
    groups = []
    for index, kind in enumerate(spec.groups):
        here = [worker.groups[index] for worker in finished]
        began = [each.began_s for each in here if each.began_s is not None]
        groups.append(
            schema.Group(
                kind=kind.name,
                count=kind.count,
                size=kind.size,
                seconds=max(each.ended_s for each in here) - min(began, default=0.0),
                connections=sum(each.connections for each in here),
                requests=sum(each.requests for each in here),
                wrong=sum(each.wrong for each in here),
            )
        )
    return groups


def servers_of(spec: Spec, outcome: Outcome) -> dict[str, str]:
    """By role what served."""
    elsewhere = external_servers(spec)
    return {
        server: f"at {getattr(spec, server)}"
        if server in elsewhere
        else outcome.server_versions.get(server, "built-in")
        for server in planned.servers_of(spec)
    }


def _formation(spec: Spec, outcome: Outcome) -> Formation:
    seconds = outcome.formation_s
    return Formation(
        name=planned.formation_name(spec),
        seconds=seconds,
        ranks_per_s=spec.nranks / seconds if seconds else None,
        roots=count_roots(plan_of(spec).formation, spec.nranks, spec.roots) or None,
    )


def _allgathers(spec: Spec, finished: list[m.Finished]) -> list[AllGather]:
    """The spec's AllGathers, in their order."""
    gathers = plan_of(spec).gathers
    return [
        _allgather(spec, gather, [worker.gathers[index] for worker in finished], finished)
        for index, gather in enumerate(gathers)
    ]


def _allgather(
    spec: Spec, gather: Gather, gathered: list[m.Gathered], finished: list[m.Finished]
) -> AllGather:
    n, schedule = spec.nranks, gather.schedule
    seconds = max(each.ended_s for each in gathered) - min(each.began_s for each in gathered)
    transfers = sum(each.blocks for each in gathered)
    # Reads and writes are those of all that follows the formation.
    alone = len(plan_of(spec).steps) == 1 and not spec.groups
    reads = sum(worker.reads for worker in finished) if alone else None
    algbw, busbw = bandwidth(spec.ranks_here, gather.record_bytes, transfers, seconds)
    cut_through = (
        "cut-through: it coalesces blocks and does not exercise a cost per step; not what NCCL does"
    )
    return AllGather(
        name=schedule.name,
        phase=gather.phase,
        record_bytes=gather.record_bytes,
        seconds=seconds,
        steps=gather.rounds(n, spec.steps),
        of_steps=schedule.rounds(n),
        transfers=transfers,
        transfers_per_s=transfers / seconds if seconds else None,
        algbw=algbw,
        busbw=busbw,
        wrong=sum(each.wrong for each in gathered),
        flow=schedule.flow,
        frames=schedule.frames,
        reads=reads,
        writes=sum(worker.writes for worker in finished) if alone else None,
        blocks_per_read=transfers / reads if reads else None,
        note=cut_through if schedule.flow == "cut-through" else None,
    )


def _phases(times: Times, finished: list[m.Finished], charges: dict[str, float]) -> list[Phase]:
    """Each with the statistics of its ranks. One that holds charged time is charged as a whole."""
    cpu: dict[str, float] = {}
    for worker in finished:
        for name, seconds in worker.cpu_s.items():
            cpu[name] = cpu.get(name, 0.0) + seconds
    nranks = len(times["total"])
    for name, seconds in charges.items():
        cpu[name] = cpu.get(name, 0.0) + nranks * seconds
    phases = []
    top = np.zeros_like(times["total"])
    for name, each in times.items():
        if name == "total":
            continue
        parent, _, _ = name.rpartition(".")
        within = OUTSIDE if name in NOT_THEIR_OWN else parent or None
        if within is None:
            top = top + each
        phases.append(_phase(name, each, _cpu_of(name, cpu), within, _kind(name, charges)))
    rest_cpu_s = cpu.get(IDLE, 0.0) + _cpu_of(REST, cpu)
    phases.append(_phase(REST, times["total"] - top, rest_cpu_s, None, _kind(REST, charges)))
    loop = Phase(name="loop", cpu_s=cpu.get("loop", 0.0), within=OUTSIDE)
    return [*phases, loop]


def _cpu_of(name: str, cpu: dict[str, float]) -> float:
    """Its own and that of the phases within it."""
    return sum(
        seconds for each, seconds in cpu.items() if each == name or each.startswith(f"{name}.")
    )


def _kind(name: str, charges: dict[str, float]) -> Kind:
    charged = any(each == name or each.startswith(f"{name}.") for each in charges)
    return "charged" if charged else "measured"


def _phase(
    name: str, times: npt.NDArray[np.float64], cpu_s: float, within: str | None, kind: Kind
) -> Phase:
    p50, p99 = np.quantile(times, (0.5, 0.99))
    return Phase(
        name=name,
        mean_s=float(times.mean()),
        p50_s=float(p50),
        p99_s=float(p99),
        max_s=float(times.max()),
        cpu_s=cpu_s,
        kind=kind,
        within=within,
    )


def _work(outcome: Outcome, measured: Measured, finished: list[m.Finished]) -> WorkByRole:
    ranks = total(worker.work for worker in finished)
    controller = Work(
        cpu_s=measured.controller_cpu_s,
        peak_rss_bytes=peak_rss_bytes(),
    )
    servers = {name: report.work for name, report in outcome.servers.items()}
    return WorkByRole(
        ranks=ranks, root=servers.get("root"), store=servers.get("store"), controller=controller
    )


def _memory(spec: Spec, outcome: Outcome, measured: Measured, finished: list[m.Finished]) -> Memory:
    workers = total(worker.work for worker in finished).peak_rss_bytes or 0
    servers = total(server.work for server in outcome.servers.values()).peak_rss_bytes or 0
    own = peak_rss_bytes()
    return Memory(
        rss_bytes_per_rank=workers / spec.ranks_here,
        peak_rss_bytes=workers + servers + own,
        kernel_socket_bytes=measured.kernel_socket_bytes,
    )


def _saturated(
    bring_ups: list[BringUp], outcome: Outcome, measured: Measured, cpu_s: float, total_s: float
) -> bool:
    """Were the cores busy nearly all the time, or was a server of ours, which is slower than the
    real one?
    """
    if not total_s:
        return False
    if cpu_s / total_s > SATURATED * measured.environment.cores:
        return True
    ours = (
        report for name, report in outcome.servers.items() if name not in outcome.server_versions
    )
    busiest_s = max((report.work.cpu_s or 0.0 for report in ours), default=0.0)
    formation_s = sum(each.formation_s or 0.0 for each in bring_ups)
    return formation_s > 0 and busiest_s > SATURATED * formation_s


def _regime(spec: Spec, saturated: bool, busy: float) -> list[RunWarning]:
    """What bound the times, where the spec makes one expect something else. `busy`: share of the
    cores' time that was used.
    """
    if spec.hop_delay_s and busy > LATENCY_BOUND:
        text = (
            f"the cores were busy for {busy:.0%} of the time: above "
            f"{LATENCY_BOUND:.0%} the hop delay no longer decides how long it takes; take fewer "
            "ranks or a longer delay"
        )
        return [RunWarning(code="not-latency-bound", text=text)]
    both_ways = sorted(
        {
            gather.schedule.name
            for gather in plan_of(spec).gathers
            if min(gather.knows(spec.nranks, None)) > 0
        }
    )
    if both_ways and saturated and not spec.hop_delay_s:
        text = (
            f"{' and '.join(both_ways)} goes both ways, in half the steps, with the same work: on "
            "saturated cores that shows no gain; --hop-delay with few ranks does"
        )
        return [RunWarning(code="saturated-both-ways", text=text)]
    return []


def warnings_of(spec: Spec, placement: Placement, outcome: Outcome) -> list[RunWarning]:
    """What a reader must know of how the run went."""
    warnings = []
    if placement.window is not None:
        text = (
            f"{placement.window} ranks per worker were in formation at once; the connect storm of "
            f"{spec.nranks} ranks starting together was not emulated"
        )
        warnings.append(RunWarning(code="start-window", text=text))
    reports: list[m.Finished | m.ServerReport] = [
        *outcome.finished.values(),
        *outcome.servers.values(),
    ]
    count = sum(report.dropped_count for report in reports)
    if count:
        first = next(reason for report in reports for reason in report.dropped)
        strangers = "1 stranger was" if count == 1 else f"{count} strangers were"
        text = f"{strangers} turned away by ranks or servers: {first}"
        warnings.append(RunWarning(code="strangers-dropped", text=text))
    if outcome.strangers:
        text = f"{outcome.strangers} messages from strangers came to the controller: ignored"
        warnings.append(RunWarning(code="controller-strangers", text=text))
    if outcome.killed:
        text = f"{', '.join(outcome.killed)} did not stop when told to, and had to be killed"
        warnings.append(RunWarning(code="killed", text=text))
    other = _root_version(spec, outcome)
    if other is not None:
        warnings.append(RunWarning(code="root-version", text=other))
    real = ", ".join(outcome.server_versions.values())
    if spec.hop_delay_s and real:
        text = f"what {real} receives is not late: --hop-delay holds for emucoll's own processes"
        warnings.append(RunWarning(code="hop-delay-real-server", text=text))
    plan = plan_of(spec)
    rounds = max(
        (each.schedule.rounds(spec.nranks) for each in plan.gathers if each.limited), default=0
    )
    if spec.steps is not None and spec.steps < rounds:
        of_each = " of each AllGather" if len(plan.gathers) > 1 and spec.plan else ""
        text = f"{spec.steps} of {rounds} steps{of_each} were run; nothing is extrapolated"
        warnings.append(RunWarning(code="steps", text=text))
    elif spec.steps is not None and spec.steps > rounds > 0:
        text = f"--steps is {spec.steps}, and the longest AllGather has {rounds}: all were run"
        warnings.append(RunWarning(code="steps-above", text=text))
    has_barrier = any(isinstance(step, Barrier) for step in plan.steps)
    if has_barrier and not plan.has_addresses(extent_of(spec), spec.steps):
        text = (
            f"the barrier was left out: in {spec.steps} steps the addresses of a host's ranks "
            "do not come round"
        )
        warnings.append(RunWarning(code="no-barrier", text=text))
    return warnings


def _root_version(spec: Spec, outcome: Outcome) -> str | None:
    """That a real root is of other releases than the plan or the formation, if it is."""
    if outcome.check_in_bytes is None:
        return None
    version = outcome.server_versions.get("root", "").removeprefix("NCCL ")
    release = re.fullmatch(r"nccl-(.*?)(?:\+multiroot)?", spec.plan or "")
    if version and release is not None and release[1] != version:
        return (
            f"the root is NCCL {version}, and the plan NCCL {release[1]}'s: the check-in and its "
            f"answer are those of the root, all else is the plan's"
        )
    formation = plan_of(spec).formation
    ours = formation.check_in
    its = layout_of_size(outcome.check_in_bytes)
    if its.collects == ours.collects:
        return None
    how = "answers nobody before everybody has come" if its.collects else "answers eagerly"
    fitting = next(
        each.name
        for each in FORMATIONS.values()
        if each.server == "root" and each.check_in.collects == its.collects
    )
    return (
        f"the root is {outcome.server_versions['root']}, which {how}, while the ranks stagger and "
        f"retry as formation {planned.formation_name(spec)} does, like those of other releases: "
        f"formation {fitting} goes with this root"
    )
