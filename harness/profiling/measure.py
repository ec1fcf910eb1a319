"""What runs here take: CPU, memory, connections, messages, by who takes it, at each size."""

from collections.abc import Callable
from typing import Literal, NamedTuple, TypeAlias

from emucoll.formation.base import count_roots
from harness.engine.calibrate import RunFailed, Silent
from harness.engine.loopback import run
from harness.planned import plan_of
from harness.profiling.cluster import SERVING
from harness.profiling.known import names_of
from harness.profiling.spec import ProfileSpec
from harness.results.schema import RunResult
from harness.spec import Spec
from harness.work import Work

Resource: TypeAlias = Literal["cpu", "memory", "connections", "bytes", "requests"]
WHOLE = "all"
"""The phase of what is not told by phase."""
_HARNESS = ("bootstrap.barrier", "admission", "start-skew", "loop")
"""Phases of emucoll's own."""


class Metric(NamedTuple):
    """What is measured: CPU in seconds of one rank or server; all else of all ranks together."""

    entity: str
    phase: str
    resource: Resource


Series: TypeAlias = dict[Metric, dict[int, list[float]]]
"""By metric and size, one value a repeat."""


class Measured(NamedTuple):
    """All runs."""

    series: Series
    totals_s: dict[int, float]
    """How long the last run of each size took."""
    saturated: list[int]
    """Sizes at which the cores, or a server of ours, were busy nearly all the time."""


def measure(spec: ProfileSpec, progress: Callable[[str, float], None]) -> Measured:
    """Run all sizes in turns. Raises RunFailed."""
    series: Series = {}
    totals_s: dict[int, float] = {}
    saturated: set[int] = set()
    total, done = spec.repeat * sum(spec.n), 0
    for repeat in range(spec.repeat):
        for n in spec.n:
            progress(f"repeat {repeat + 1} of {spec.repeat}: {n} ranks", done / total)
            of_run = spec.run_of(n)
            result = run(of_run, Silent())
            if not result.ok:
                raise RunFailed(result)
            for metric, value in values_of(of_run, result).items():
                series.setdefault(metric, {}).setdefault(n, []).append(value)
            totals_s[n] = result.total_s or 0.0
            if result.saturated:
                saturated.add(n)
            done += n
    return Measured(beyond_thresholds(spec, series), totals_s, sorted(saturated))


def beyond_thresholds(spec: ProfileSpec, series: Series) -> Series:
    """Without the sizes that are on another side of a known threshold than the target: no law is
    carried across one. Below some number of ranks nobody staggers, or there is one root.
    """
    regimes = {n: _regime(spec, n) for n in (*spec.n, spec.target)}
    there = regimes[spec.target]
    found: Series = {}
    for metric, by_size in series.items():
        names = [
            name
            for name, (entity, phase) in _THRESHOLDS.items()
            if entity == metric.entity and metric.phase.startswith(phase)
        ]
        kept = {
            n: values
            for n, values in by_size.items()
            if all(regimes[n][name] == there[name] for name in names)
        }
        if kept:
            found[metric] = kept
    return found


_THRESHOLDS = {
    "staggers": ("rank", "bootstrap.delay"),
    "several roots": ("store", ""),
    "several ids": ("rank", "pytorch"),
}
"""What of a metric's entity, in phases that begin so, is another thing below a threshold."""


def _regime(spec: ProfileSpec, n: int) -> dict[str, bool]:
    plan = plan_of(spec.run_of(n))
    formation = plan.formation
    nroots = count_roots(formation, n, spec.roots)
    owned = -(-n // max(1, nroots))
    of_run = spec.run_of(n)
    last_s = formation.stagger_s(
        owned - 1, owned, of_run.uid_stagger_threshold, of_run.uid_stagger_rate
    )
    several = nroots > 1
    return {"staggers": last_s > 0, "several roots": several, "several ids": several}


def values_of(spec: Spec, result: RunResult) -> dict[Metric, float]:
    """What one run took. CPU of an AllGather of which some steps were run is that of all."""
    n, plan = spec.nranks, plan_of(spec)
    names = names_of(plan)
    steps = {
        gather.phase: gather.schedule.rounds(n) / max(1, gather.rounds(n, spec.steps))
        for gather in plan.gathers
    }
    values: dict[Metric, float] = {}
    inner: dict[str | None, float] = {}
    for phase in result.phases:
        inner[phase.within] = inner.get(phase.within, 0.0) + (phase.cpu_s or 0.0)
    local = {each.phase for each in plan.locals}
    for phase in result.phases:
        if phase.name in _HARNESS:
            continue
        if phase.name in local and phase.kind == "charged" and phase.mean_s is not None:
            values[Metric("rank", phase.name, "cpu")] = phase.mean_s  # one rank's, timed
        elif phase.cpu_s is not None:
            own_s = phase.cpu_s - inner.get(phase.name, 0.0)
            metric = Metric("rank", names.get(phase.name, phase.name), "cpu")
            whole_s = own_s / n * steps.get(phase.name, 1.0)
            values[metric] = values.get(metric, 0.0) + whole_s
    memory = result.memory.rss_bytes_per_rank
    if memory is not None:
        values[Metric("rank", WHOLE, "memory")] = memory * n
    if result.work.ranks is not None:
        values |= _counts("rank", result.work.ranks)
    for entity, work in (("root", result.work.root), ("store", result.work.store)):
        if work is not None:
            values |= _counts(entity, work)
            if work.cpu_s is not None:
                values[Metric(entity, SERVING, "cpu")] = work.cpu_s
            if work.peak_rss_bytes is not None:
                values[Metric(entity, WHOLE, "memory")] = float(work.peak_rss_bytes)
    return values


def _counts(entity: str, work: Work) -> dict[Metric, float]:
    counts: dict[Resource, int | None] = {
        "connections": work.connections,
        "requests": work.requests,
    }
    return {
        Metric(entity, WHOLE, resource): float(count)
        for resource, count in counts.items()
        if count is not None
    }
