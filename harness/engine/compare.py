"""From operands to a comparison: reads the logs, line by line, and lays them beside the run.

A new kind of pair is another branch of `compare`. What could not be decided is an error in the
result, with what was found beside it; what could not be read is a UsageError.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from emucoll.errors import UsageError
from emucoll.plans import PLANS
from harness.analysis.beside import comparable, rows_of
from harness.analysis.init_log import InitLog
from harness.analysis.init_phases import complaints_said, describe
from harness.external.nccl_log import Counts, LogReader
from harness.results.operands import Given, lines_of
from harness.results.schema import (
    CompareResult,
    LogCommunicator,
    LogFile,
    Operand,
    RunError,
    RunResult,
    RunWarning,
)
from harness.skew import format_skew

SHOWN_FILES = 1000
_HOW = "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP,ENV NCCL_DEBUG_FILE=nccl.%h.%p"
_NCCL_FORMATIONS = "nccl-"
"""How the names of those begin that go through a root, as NCCL's do."""


@dataclass(slots=True)
class Logs:
    """All logs, read."""

    files: list[LogFile] = field(default_factory=list)
    communicators: list[LogCommunicator] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    shared_threads: int = 0


def compare(given: Given) -> CompareResult:
    """The logs beside the run; described alone where there is no run. Raises UsageError."""
    logs = read_logs(given.logs)
    run = given.run
    if run is not None and not run.phases:
        raise UsageError(
            f"the run in {given.run_name!r} failed and has no phases\nrun it again with the same "
            "flags"
        )
    matching = [] if run is None else comparable(run, logs.communicators)
    error = _undecided(run, logs, matching)
    return CompareResult(
        kind=None if run is None else run.kind,
        spec=None if run is None else run.spec,
        environment=None if run is None else run.environment,
        seed=None if run is None else run.seed,
        ok=error is None,
        warnings=[
            *_of_run(run),
            *([] if run is None else _other_release(run, logs)),
            *_of_logs(logs),
        ],
        error=error,
        operands=_operands(given, logs),
        rows=[row for each in matching for row in rows_of(run, each)] if run is not None else [],
        saturated=None if run is None else run.saturated,
        files=logs.files[:SHOWN_FILES],
        file_count=len(logs.files),
        versions=logs.versions,
        communicators=logs.communicators,
        findings=logs.findings,
    )


def read_logs(paths: Sequence[Path]) -> Logs:
    """Every file, one line at a time. Raises UsageError if none has a line of NCCL."""
    log = InitLog()
    files = []
    for source, path in enumerate(paths):
        reader = LogReader()
        for line in lines_of(path):
            for record in reader.feed(line):
                log.add(source, record)
        files.append(_file(path, reader.counts))
    lines = sum(file.lines for file in files)
    if not any(file.nccl_lines for file in files):
        raise UsageError(
            f"no line of NCCL in {_count(len(files), 'file')} of {_count(lines, 'line')}: "
            f"{_some(file.name for file in files)}\n"
            f"a real job writes them with {_HOW} in its environment (docs/commands/compare.md)"
        )
    communicators = describe(log.finish())
    findings = complaints_said(log.complaints)
    if (more := log.complaint_count - len(log.complaints)) > 0:
        findings.append(f"{more} more WARN lines")
    return Logs(files, communicators, log.versions(), findings, log.shared_threads)


def _file(path: Path, counts: Counts) -> LogFile:
    return LogFile(name=str(path), **asdict(counts))


def _operands(given: Given, logs: Logs) -> list[Operand]:
    operands = []
    run = given.run
    if run is not None and given.run_name is not None:
        formation = "" if run.formation is None else f", formation {run.formation.name}"
        plan = "" if run.spec is None or run.spec.plan is None else f", plan {run.spec.plan}"
        text = f"nranks {run.nranks}{plan}{formation}, {run.kind}"
        operands.append(Operand(role="base", kind="run", names=[given.run_name], text=text))
    lines = sum(file.lines for file in logs.files)
    ours = sum(file.nccl_lines for file in logs.files)
    text = f"{_count(len(logs.files), 'file')}, {_count(lines, 'line')}, {ours:,} of NCCL"
    operands.append(Operand(role="candidate", kind="nccl-log", names=given.names, text=text))
    return operands


# -- what could not be decided


def _undecided(
    run: RunResult | None, logs: Logs, matching: Sequence[LogCommunicator]
) -> RunError | None:
    if not any(each.phases for each in logs.communicators):
        return _no_times(logs)
    if run is None or matching:
        return None
    timed = [each for each in logs.communicators if each.phases]
    if any(each.nranks == run.nranks for each in timed):
        return RunError(
            what=f"the logs' communicators of {run.nranks} ranks were split from others",
            evidence=_sizes(timed),
            cause="a run emulates ncclCommInitRank; a split has other steps, and no bootstrap line",
            next="give the log of the job's first communicator",
        )
    sizes = sorted({each.nranks for each in timed if each.nranks and not each.is_split})
    if not sizes:
        return RunError(
            what=f"no communicator of {run.nranks} ranks in the logs",
            evidence=_sizes(timed),
            cause="no line says how many ranks took part, or all were split from others",
            next="keep the Init START, COMPLETE and timings lines: NCCL_DEBUG_SUBSYS with INIT",
        )
    return RunError(
        what=f"the run has {run.nranks} ranks, the logs' communicators have "
        f"{', '.join(map(str, sizes[:8]))}",
        evidence=_sizes(timed),
        cause="times of different n do not compare",
        next=f"emucoll run -np {sizes[-1]} --plan {plan_for(logs.versions)} --out DIR, and compare "
        "DIR",
    )


def plan_for(versions: Mapping[str, int]) -> str:
    """The plan of the minor release that wrote most of the logs, or of the last before it."""
    plans = {_release(name): name for name in PLANS if name.startswith(_NCCL_FORMATIONS)}
    written = max(versions, key=lambda version: versions[version], default="")
    release = _release(written)
    same = [each for each in plans if each[:2] == release[:2]]
    before = [each for each in plans if each <= release]
    return plans[max(same or before or list(plans))]


def _release(text: str) -> tuple[int, ...]:
    """The first number of dots in it."""
    found = re.search(r"\d+(?:\.\d+)+", text)
    return tuple(map(int, found[0].split("."))) if found else ()


def _no_times(logs: Logs) -> RunError:
    found = [f"{_count(sum(f.init_lines for f in logs.files), 'Init START or COMPLETE line')}"]
    found.append(f"versions: {_versions(logs.versions)}")
    torn = sum(file.torn for file in logs.files)
    if torn:
        found.append(f"{torn} torn lines")
    damaged = sum(file.damaged for file in logs.files)
    if damaged:
        found.append(f"{_count(damaged, 'timings line')} whose parts do not fit or are in doubt")
    return RunError(
        what="the logs hold lines of NCCL, and no timings line that is whole",
        evidence="; ".join(found),
        cause="NCCL before 2.22 prints none; NCCL_DEBUG_SUBSYS leaves INIT and BOOTSTRAP out; the "
        "job ended before its initialization did; or the log was cut",
        next=f"run the job with NCCL 2.23 or later and {_HOW}",
    )


def _sizes(communicators: Sequence[LogCommunicator]) -> str:
    words = [
        f"communicator {each.index}: "
        f"{'unknown size' if each.nranks is None else f'{each.nranks} ranks'}"
        f"{' (split)' if each.is_split else ''}, {each.seen} seen"
        for each in communicators[:8]
    ]
    more = len(communicators) - 8
    return "; ".join(words) + (f"; {more} more" if more > 0 else "")


# -- what a reader must know


def _of_run(run: RunResult | None) -> list[RunWarning]:
    if run is None:
        return []
    warnings = []
    if run.kind == "measured":
        cores = "the host's" if run.environment is None else f"{run.environment.cores}"
        text = (
            f"the run's seconds are wall time of {run.nranks} ranks on {cores} cores, not a "
            "cluster's: compare shares first, and seconds as orders of magnitude"
        )
        warnings.append(RunWarning(code="loopback-time", text=text))
    if run.saturated:
        text = (
            "the run was saturated: emucoll's own CPU was the limit, and every verdict is noise; "
            "fewer ranks or more cores leave room"
        )
        warnings.append(RunWarning(code="saturated", text=text))
    if conditions := _conditions(run):
        text = f"the run had {', '.join(conditions)}: its times have that in them"
        warnings.append(RunWarning(code="run-conditions", text=text))
    name = None if run.formation is None else run.formation.name
    if name is None or not name.startswith(_NCCL_FORMATIONS):
        text = (
            f"the run formed its ring by {name}, NCCL forms it through a root: only bootstrap and "
            "bootstrap.ring mean the same; --formation nccl-root has NCCL's steps, --plan "
            "nccl-2.27.7 and others a release's whole init"
        )
        warnings.append(RunWarning(code="other-formation", text=text))
    return warnings


def _other_release(run: RunResult, logs: Logs) -> list[RunWarning]:
    """That the run's plan is of another minor release than most of the logs."""
    plan = None if run.spec is None else run.spec.plan
    if plan is None or not plan.startswith(_NCCL_FORMATIONS) or not logs.versions:
        return []
    wanted = plan_for(logs.versions)
    if _release(wanted)[:2] == _release(plan)[:2]:
        return []
    text = (
        f"the run is of plan {plan}, the logs are of {_versions(logs.versions)}: plan "
        f"{wanted} is nearer"
    )
    return [RunWarning(code="other-release", text=text)]


def _conditions(run: RunResult) -> list[str]:
    """What makes a run last as a plain one would not."""
    spec = run.spec
    if spec is None:
        return []
    said = [] if spec.start_skew is None else [f"start skew {format_skew(spec.start_skew)}"]
    if spec.hop_delay_s:
        said.append(f"a hop delay of {spec.hop_delay_s:g} s")
    if run.restarts:
        said.append(f"{_count(spec.restarts, 'restart')}, of which the last is compared")
    if spec.steps is not None:
        said.append(f"the first {_count(spec.steps, 'step')} of its AllGathers alone")
    if spec.inject:
        said.append(f"{_count(len(spec.inject), 'injected fault')}")
    if spec.external_ranks:
        said.append(f"{_count(len(spec.external_ranks), 'external rank')}")
    return said


def _of_logs(logs: Logs) -> list[RunWarning]:
    warnings = []
    if len(logs.versions) > 1:
        text = (
            f"found {_versions(logs.versions)}; one version for all ranks is missing, and phases "
            "of different versions differ; see which library each rank loads, or give each job's "
            "logs alone"
        )
        warnings.append(RunWarning(code="mixed-versions", text=text))
    mixed = [each.index for each in logs.communicators if _mixes_forms(each)]
    if mixed:
        text = (
            f"in {_count(len(mixed), 'communicator')} (first {mixed[0]}) only a part of the ranks "
            "has the phase alloc: Init lines of NCCL 2.22 and of later versions stand side by side"
        )
        warnings.append(RunWarning(code="mixed-forms", text=text))
    torn = sum(file.torn for file in logs.files)
    if torn:
        joined = sum(file.rejoined for file in logs.files)
        text = (
            f"{_count(torn, 'line')} torn, {joined} of them put together again; of the others "
            "counts what stands whole before the tear; a file per rank (NCCL_DEBUG_FILE) keeps "
            "lines whole"
        )
        warnings.append(RunWarning(code="torn-lines", text=text))
    damaged = sum(file.damaged for file in logs.files)
    if damaged:
        text = (
            f"the parts of {_count(damaged, 'timings line')} left out: they do not fit the total, "
            "or may be the end of another torn line; a file per rank (NCCL_DEBUG_FILE) prevents it"
        )
        warnings.append(RunWarning(code="damaged-lines", text=text))
    if logs.shared_threads:
        text = (
            f"{_count(logs.shared_threads, 'thread name')} (host, process and thread id) found in "
            "several processes: their Bootstrap lines have no rank; give a file per process, or "
            "let the launcher mark its lines"
        )
        warnings.append(RunWarning(code="shared-threads", text=text))
    pending = sum(each.incomplete for each in logs.communicators)
    if pending:
        text = (
            f"found {_count(pending, 'initialization')} that started, missing their completion: "
            "the log is truncated, or they failed or hang; give the whole log, or look at these "
            "ranks"
        )
        warnings.append(RunWarning(code="incomplete", text=text))
    cut = [each for each in logs.communicators if each.phases and not _has_init(each)]
    if cut:
        text = (
            f"{_count(len(cut), 'communicator')} (first {cut[0].index}) with Bootstrap timings and "
            "no Init timings: the log is cut, or NCCL_DEBUG_SUBSYS leaves INIT out"
        )
        warnings.append(RunWarning(code="no-init-timings", text=text))
    empty = [file.name for file in logs.files if not file.nccl_lines]
    if empty:
        text = f"no line of NCCL in {_count(len(empty), 'file')}: {_some(empty)}"
        warnings.append(RunWarning(code="no-nccl-lines", text=text))
    return warnings


def _has_init(communicator: LogCommunicator) -> bool:
    return any(
        phase.name in ("rest", "topo", "graphs", "allgathers", "kernels")
        for phase in communicator.phases
    )


def _mixes_forms(communicator: LogCommunicator) -> bool:
    ranks = {phase.name: phase.ranks for phase in communicator.phases}
    return 0 < ranks.get("alloc", 0) < ranks.get("kernels", 0)


def _versions(versions: dict[str, int]) -> str:
    words = [f"{name} ({_count(count, 'process')})" for name, count in versions.items()]
    return ", ".join(words) or "none named"


def _some(names: Iterable[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return ", ".join(map(repr, shown[:3])) + more


def _count(number: int, what: str) -> str:
    if number == 1:
        return f"1 {what}"
    return f"{number:,} {what}{'es' if what.endswith('s') else 's'}"
