"""Calibrate, run what the calibration has not seen, and lay the model's word beside it: in turns,
so that what disturbs the machine for a while falls on both.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from harness.control.loops import LOOP
from harness.engine.calibrate import Measuring, RunFailed, Silent, Sizes
from harness.engine.costs import RING, costs_of, over_repeats
from harness.engine.loopback import run
from harness.engine.others import Others
from harness.hosts import find_host
from harness.planned import plan_of
from harness.projection.ground import allgather_part, formation_part
from harness.report.progress import Progress
from harness.results.environment import read_environment
from harness.results.schema import RunError, RunResult, RunWarning
from harness.results.validation import PublishedRow, RatioPoint, ValidatedPoint, ValidateResult
from harness.spec import Spec
from harness.validation import model
from harness.validation.model import CPU, STEP, WALL
from harness.validation.published import compare_published, contradictions
from harness.validation.spec import (
    EMULATION,
    LATENCY_BOUND,
    Regime,
    ValidateSpec,
    check,
    held_out,
)

MOST_BUSY = 0.5
"""Of the cores' time: a run that uses more is not bound by latency."""
OTHERS_BUSY = 0.1
RATIO_BASE = "ring"


@dataclass
class _Case:
    """One kind of run, and what its repeats took."""

    regime: Regime
    gathers: bool
    spec: Spec
    measured: list[dict[str, float]] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)


def validate(spec: ValidateSpec, progress: Progress, sizes: Sizes | None = None) -> ValidateResult:
    """Do it all. Raises UsageError, RunFailed, HarnessError."""
    check(spec)
    environment = read_environment(LOOP)
    if spec.published:
        rows = compare_published(lambda what, share: progress.step(what, share, "", None))
        return ValidateResult(
            kind="projected",
            spec=spec,
            environment=environment,
            ok=True,
            warnings=[*_outside(rows), *_contradictions()],
            published=rows,
        )
    host = None if spec.calibration is None else find_host(spec.calibration)
    cases = [_Case(*each) for each in held_out(spec)]
    measuring = Measuring(sizes or Sizes()) if host is None else None
    others = Others()
    calibrations: list[Mapping[str, float]] = []
    if host is not None:
        calibrations.append({name: each.value for name, each in host.measured.items()})
    for index in range(spec.repeat):
        size = None
        for number, case in enumerate(cases):
            done = (index + number / len(cases)) / spec.repeat
            told = f"repeat {index + 1} of {spec.repeat}: "
            if measuring is not None and size != (case.regime, case.spec.nranks):
                progress.step("validating", done, f"{told}calibration", None)
                calibrations += [costs_of(each) for each in measuring.repeats(1, Silent())]
            size = case.regime, case.spec.nranks
            progress.step("validating", done, told + _in_words(case.spec), None)
            _measure(case)
    points = [point for case in cases for point in _points(case, calibrations, environment.cores)]
    warnings = _warnings(points, others.share())
    differs = None if host is None else host.differs_from(environment)
    if differs is not None:
        warnings.append(RunWarning(code="other-machine", text=differs))
    undecided = [each.text for each in warnings if each.code in ("busy", "not-latency-bound")]
    error = None
    if undecided:
        error = RunError(
            what="it could not be decided whether the model is right",
            evidence="; ".join(undecided),
            next="again, when nothing else runs",
        )
    return ValidateResult(
        kind="measured",
        spec=spec,
        environment=environment,
        seed=cases[0].spec.seed if cases else None,
        ok=error is None,
        warnings=warnings,
        error=error,
        calibration=spec.calibration,
        points=points,
        ratios=_ratios(points),
        decided=error is None,
    )


def _outside(rows: Sequence[PublishedRow]) -> list[RunWarning]:
    outside = [f"{row.system} at {row.n}" for row in rows if not (row.inside or row.fitted)]
    if not outside:
        return []
    text = (
        f"outside of the projection's interval: {', '.join(outside)}; docs/fidelity.md says what "
        "is missing, and how large it must be"
    )
    return [RunWarning(code="outside", text=text)]


def _contradictions() -> list[RunWarning]:
    return [RunWarning(code="contradiction", text=text) for text in contradictions()]


def _in_words(spec: Spec) -> str:
    late = f", messages {spec.hop_delay_s * 1e3:g} ms late" if spec.hop_delay_s else ""
    return f"{spec.formation}, {spec.allgather}, {spec.nranks} ranks{late}"


def _measure(case: _Case) -> None:
    result = run(case.spec, Silent())
    if not result.ok:
        raise RunFailed(result)
    assert result.environment is not None
    cores_s = (result.total_s or 0.0) * result.environment.cores
    work = result.work
    cpu_s = sum(each.cpu_s or 0.0 for each in (work.ranks, work.root, work.store) if each)
    case.busy.append(cpu_s / cores_s if cores_s else 0.0)
    if case.regime == LATENCY_BOUND:
        case.measured.append(model.latency_bound_times(result, case.gathers))
    else:
        case.measured.append(_emulated(result, case.gathers))


def _emulated(result: RunResult, gathers: bool) -> dict[str, float]:
    """CPU and seconds of what the run is for."""
    cpu = {phase.name: phase.cpu_s or 0.0 for phase in result.phases}
    if gathers:
        gather = result.allgathers[-1]
        return {CPU: cpu[gather.phase or RING], WALL: gather.seconds or 0.0}
    assert result.formation is not None
    gathering_s = sum(cpu.get(name, 0.0) for name in model.NOT_FORMING)
    ranks_s = cpu["bootstrap"] + cpu.get("loop", 0.0) - gathering_s
    servers = (result.work.root, result.work.store)
    servers_s = sum(each.cpu_s or 0.0 for each in servers if each is not None)
    return {CPU: ranks_s + servers_s, WALL: result.formation.seconds or 0.0}


def _predict(
    case: _Case, calibrations: Sequence[Mapping[str, float]], cores: int
) -> dict[str, float]:
    """By what is told of the case. What each calibration says, in the middle: its costs belong
    together, since some are what others leave.
    """
    spec = case.spec
    if case.regime == LATENCY_BOUND:
        middle = {name: each.value for name, each in over_repeats(calibrations).items()}
        return model.latency_bound(spec, middle, case.gathers)
    if case.gathers:
        said = [model.emulated_allgather(spec, costs, cores) for costs in calibrations]
    else:
        counts = model.count(spec)
        said = [model.emulated_formation(spec, counts, costs, cores) for costs in calibrations]
    return {what: median(each[what] for each in said) for what in said[0]}


def _points(
    case: _Case, calibrations: Sequence[Mapping[str, float]], cores: int
) -> list[ValidatedPoint]:
    spec, predicted, points = case.spec, _predict(case, calibrations, cores), []
    plan = plan_of(spec)
    for phase in case.measured[0]:
        measured = [each[phase] for each in case.measured if phase in each]
        if phase not in predicted or len(measured) < len(case.measured):
            continue  # about as long as the shortest that is told
        middle = median(measured)
        points.append(
            ValidatedPoint(
                regime=case.regime,
                formation=None if case.gathers else formation_part(plan.formation),
                allgather=allgather_part(plan.gathers[-1].schedule) if case.gathers else None,
                n=spec.nranks,
                phase=phase,
                predicted_s=predicted[phase],
                measured_s=middle,
                spread=(max(measured) - min(measured)) / middle if middle else 0.0,
                error=(predicted[phase] - middle) / middle if middle else 0.0,
                repeats=len(measured),
                cores_busy=median(case.busy),
            )
        )
    return points


def _ratios(points: Sequence[ValidatedPoint]) -> list[RatioPoint]:
    """Of a step of the rings that follow NCCL's."""
    steps = {(each.allgather, each.n): each for each in points if each.phase == STEP}
    found = []
    for (allgather, n), each in steps.items():
        base = steps.get((RATIO_BASE, n))
        if base is None or allgather is None or not allgather.startswith("ring-bidir"):
            continue
        predicted = each.predicted_s / base.predicted_s
        measured = each.measured_s / base.measured_s
        found.append(
            RatioPoint(
                n=n,
                allgather=allgather,
                base=RATIO_BASE,
                predicted=predicted,
                measured=measured,
                error=(predicted - measured) / measured,
            )
        )
    return found


def _warnings(points: Sequence[ValidatedPoint], others: float) -> list[RunWarning]:
    warnings = []
    if others > OTHERS_BUSY:
        text = (
            f"other processes took {others:.0%} of the cores' time meanwhile: what was measured "
            "is not this machine's alone; again when nothing else runs"
        )
        warnings.append(RunWarning(code="busy", text=text))
    busy = [
        f"{each.formation or each.allgather} at {each.n}"
        for each in points
        if each.regime == LATENCY_BOUND and (each.cores_busy or 0.0) > MOST_BUSY
    ]
    if busy:
        text = (
            f"the cores were busy for more than half of the time: {', '.join(dict.fromkeys(busy))}"
        )
        warnings.append(RunWarning(code="not-latency-bound", text=text))
    if not any(each.regime == EMULATION and each.phase in (CPU, WALL) for each in points):
        return warnings
    text = (
        "seconds of the regime `emulation` are those of ranks that share these cores, and say "
        "nothing of a cluster's"
    )
    return [*warnings, RunWarning(code="emulation", text=text)]
