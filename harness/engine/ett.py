"""From an EttSpec to effective training time: the closed forms at each size, what each change is
worth there, and failures played beside them.

Nothing runs here: every number is `projected`. Raises UsageError.
"""

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from emucoll.training.isolation import (
    Isolation,
    isolated_best_interval_s,
    isolated_effective,
    isolated_first_order,
    isolated_parts,
    isolated_young_interval_s,
)
from emucoll.training.model import (
    Job,
    Parts,
    best_interval_s,
    daly_period_s,
    effective,
    first_order,
    parts,
    refined_period_s,
    young_interval_s,
    young_period_s,
)
from emucoll.training.montecarlo import jobs_effective, play, play_isolated
from emucoll.training.rates import mtbf_s, nodes_of
from harness.control.loops import LOOP
from harness.profile import Profile, Value
from harness.results.environment import read_environment
from harness.results.schema import EttResult, RunWarning
from harness.results.training import (
    Curve,
    EttParts,
    EttPoint,
    Input,
    Intervals,
    Simulated,
    Without,
    Worth,
)
from harness.training.inputs import Inputs, make_inputs
from harness.training.profile import load_profile
from harness.training.spec import EttSpec, check

JOBS = 1_000
"""Jobs that are played for `low` and `high`."""
DRAWS = 200
"""Draws of what the profile gives ranges of, for these."""
LOW, HIGH = 0.05, 0.95
CURVE_POINTS = 80
CURVES_FROM = 1_024
FIRST_ORDER_HOLDS = 0.3
"""Of the time between failures, what a failure may cost before the first order is 5 % off."""

_SHORTER = (("half", 0.5), ("none", 0.0))


@dataclass(frozen=True, kw_only=True)
class Case:
    """A job with or without isolation, and the interval that was asked for; None: the best."""

    job: Job
    isolation: Isolation | None
    interval_s: float | None
    shortest_interval_s: float = 0.0
    """What the storage keeps up with."""

    def interval(self) -> float:
        """Work between two writes."""
        if self.interval_s is not None:
            return self.interval_s
        if self.isolation is None:
            best = best_interval_s(self.job.mtbf_s, self.job.write_s)
        else:
            best = isolated_best_interval_s(self.job, self.isolation)
        return max(best, self.shortest_interval_s)

    def ett(self) -> float:
        """The exact form."""
        if self.isolation is None:
            return effective(self.job, self.interval())
        return isolated_effective(self.job, self.isolation, self.interval())

    def parts(self) -> Parts:
        """Where the time goes."""
        if self.isolation is None:
            return parts(self.job, self.interval())
        return isolated_parts(self.job, self.isolation, self.interval())

    def first_order(self) -> float:
        """To first order, at the interval that is best to first order where none is asked for."""
        interval = self.interval_s
        if self.isolation is None:
            if interval is None:
                interval = young_interval_s(self.job.mtbf_s, self.job.write_s)
            return first_order(self.job, max(interval, self.shortest_interval_s))
        if interval is None:
            interval = isolated_young_interval_s(self.job, self.isolation)
        return isolated_first_order(
            self.job, self.isolation, max(interval, self.shortest_interval_s)
        )


def init_s(plan: str, cluster: str, n: int) -> float:
    """How long `plan` takes to initialize `n` ranks on `cluster`, as `emucoll project` says. Raises
    UsageError, Undecided.
    """
    from harness.projection.engine import init_s as projected_s  # numba and scipy

    return projected_s(plan, cluster, n)


@lru_cache(maxsize=4096)
def _init_s(plan: str, cluster: str, n: int) -> float:
    """A projection takes long, and is asked for by every draw of the other inputs."""
    return init_s(plan, cluster, n)


def calculate(spec: EttSpec) -> EttResult:
    """Effective training time at every size. Raises UsageError."""
    check(spec)
    profile = None if spec.profile is None else load_profile(spec.profile)
    inputs = make_inputs(spec, profile)
    points = [
        _point(spec, inputs, profile, n, plan)
        for n in inputs.sizes
        for plan in spec.plan or (None,)
    ]
    return EttResult(
        kind="projected",
        spec=spec,
        environment=read_environment(LOOP),
        seed=spec.seed,
        ok=True,
        warnings=_warnings(spec, inputs, profile, points),
        profile=None if profile is None else profile.text,
        inputs=[*inputs.listed, *_inits(spec, inputs)],
        causes=_causes(profile),
        points=points,
    )


def _inits(spec: EttSpec, inputs: Inputs) -> list[Input]:
    """What plans take to initialize, as inputs."""
    return [
        Input(
            name=f"init, {plan}, {n} ranks",
            value=_init_s(plan, spec.cluster, n),
            unit="s",
            origin="calculated",
            because=f"emucoll project --plan {plan} -np {n} --cluster {spec.cluster}",
        )
        for n in inputs.sizes
        for plan in spec.plan
        if spec.cluster is not None
    ]


def curves_of(spec: EttSpec) -> list[Curve]:
    """Over n, to twice the largest size (with plans: at the sizes themselves), with and without
    isolation.

    Raises UsageError.
    """
    check(spec)
    inputs = make_inputs(spec, None if spec.profile is None else load_profile(spec.profile))
    replicas = inputs.replicas
    first = max(replicas, min(CURVES_FROM, *inputs.sizes) if inputs.sizes else CURVES_FROM)
    last = max(2 * max(inputs.sizes), first)
    grid = sorted(inputs.sizes)
    if not spec.plan:  # each size of a plan is a projection of its own
        grid = sorted({*map(int, np.geomspace(first, last, CURVE_POINTS)), *grid})
    curves = []
    for plan in spec.plan or (None,):
        of_plan = "" if plan is None else f"{plan}, "
        for ways, name in ((replicas, f"isolation, {replicas} replicas"), (None, "no isolation")):
            sizes = [n for n in grid if ways is None or n >= ways]
            cases = [case_of(spec, inputs, n, plan, ways) for n in sizes]
            curves.append(
                Curve(
                    name=of_plan + name,
                    n=sizes,
                    ett=[case.ett() for case in cases],
                    dashed=ways is None,
                )
            )
    return curves


def case_of(spec: EttSpec, inputs: Inputs, n: int, plan: str | None, replicas: int | None) -> Case:
    """The job at `n`, isolated where `replicas` is a number."""
    init, replica_init = inputs.init_s, None
    if plan is not None and spec.cluster is not None:
        init = _init_s(plan, spec.cluster, n)
        if replicas is not None:
            replica_init = _init_s(plan, spec.cluster, max(1, n // replicas))
    job = Job(
        mtbf_s=mtbf_s(nodes_of(n, inputs.gpus_per_node), inputs.per_1000_node_days),
        write_s=inputs.write_s,
        detection_s=inputs.detection_s,
        restart_s=inputs.restart_s,
        init_s=init,
    )
    isolation = None
    if replicas is not None:
        isolation = Isolation(
            replicas=replicas,
            stall_s=inputs.stall_s,
            confined_share=inputs.confined_share,
            init_s=replica_init,
        )
    shortest = max(0.0, inputs.shortest_period_s - inputs.write_s)
    return Case(
        job=job, isolation=isolation, interval_s=inputs.interval_s, shortest_interval_s=shortest
    )


def _point(
    spec: EttSpec, inputs: Inputs, profile: Profile | None, n: int, plan: str | None
) -> EttPoint:
    case = case_of(spec, inputs, n, plan, spec.isolation)
    ett = case.ett()
    # A generator of its own for each size, so that one size's numbers do not hang on the others.
    draws = np.random.default_rng([spec.seed, n, 0 if plan is None else spec.plan.index(plan)])
    low, high = _spread(spec, profile, case, n, plan, draws)
    job = case.job
    alone = None if case.isolation is None else replace(case, isolation=None)
    return EttPoint(
        n=n,
        plan=plan,
        isolation=spec.isolation,
        ett=ett,
        # Jobs so short that most see no failure all lie above the mean.
        low=min(low, ett),
        high=max(high, ett),
        first_order=case.first_order(),
        checkpoint_interval_s=_finite(case.interval()),
        parts=EttParts(**vars(case.parts())),
        nodes=nodes_of(n, inputs.gpus_per_node),
        mtbf_s=_finite(job.mtbf_s),
        checkpoint_write_s=job.write_s,
        init_s=job.init_s,
        job_length_s=inputs.job_length_s,
        failures=inputs.job_length_s / job.mtbf_s,
        intervals=_intervals(job),
        without_isolation=None
        if alone is None
        else Without(
            ett=alone.ett(),
            first_order=alone.first_order(),
            checkpoint_interval_s=_finite(alone.interval()),
        ),
        worth=_worth(spec, inputs, case, n, plan),
        monte_carlo=_simulated(spec, case, profile, draws),
    )


def _spread(
    spec: EttSpec,
    profile: Profile | None,
    case: Case,
    n: int,
    plan: str | None,
    draws: np.random.Generator,
) -> tuple[float, float]:
    """Between which 90 % of jobs lie: by chance, and by what the profile gives as ranges. The
    interval stays as it is: it is chosen before anybody knows.
    """
    values = [] if profile is None else profile.values.values()
    times = DRAWS if any(value.low < value.high for value in values) else 1
    shares = []
    for _ in range(times):
        inputs = make_inputs(spec, profile, lambda value: _drawn(value, draws))
        drawn = case_of(spec, inputs, n, plan, spec.isolation)
        shares.append(
            jobs_effective(
                drawn.job,
                case.interval(),
                inputs.job_length_s,
                draws,
                jobs=JOBS // times,
                isolation=drawn.isolation,
                counted=inputs.counted,
            )
        )
    low, high = np.quantile(np.concatenate(shares), [LOW, HIGH])
    return float(low), float(high)


def _drawn(value: Value, draws: np.random.Generator) -> float:
    """One from its range, most likely near the value itself."""
    if value.low == value.high:
        return value.value
    return float(draws.triangular(value.low, value.value, value.high))


def _causes(profile: Profile | None) -> dict[str, int]:
    value = None if profile is None else profile.values.get("failures.causes")
    return {} if value is None else dict(value.counts)


def _simulated(
    spec: EttSpec, case: Case, profile: Profile | None, draws: np.random.Generator
) -> Simulated | None:
    if not spec.monte_carlo or math.isinf(case.job.mtbf_s):
        return None
    if case.isolation is None:
        played = play(case.job, case.interval(), spec.monte_carlo, draws)
    else:
        played = play_isolated(case.job, case.isolation, case.interval(), spec.monte_carlo, draws)
    causes = _causes(profile)
    if causes:
        counts = np.array(list(causes.values()), dtype=float)
        drawn = draws.multinomial(played.failures, counts / counts.sum())
        causes = dict(zip(causes, map(int, drawn), strict=True))
    return Simulated(
        failures=played.failures, ett=played.effective, error=played.error, causes=causes
    )


def _intervals(job: Job) -> Intervals:
    if math.isinf(job.mtbf_s):
        return Intervals()
    return Intervals(
        young_s=young_period_s(job.mtbf_s, job.write_s),
        daly_s=daly_period_s(job),
        refined_s=refined_period_s(job),
        best_s=best_interval_s(job.mtbf_s, job.write_s) + job.write_s,
    )


def _worth(spec: EttSpec, inputs: Inputs, case: Case, n: int, plan: str | None) -> list[Worth]:
    """What each change would save, the best first."""
    job, changes = case.job, []

    def add(change: str, text: str, changed: Case) -> None:
        ett, now = changed.ett(), case.ett()
        hours = n * inputs.job_length_s / 3600
        saved = hours * (1.0 - now / ett) if ett > 0 else 0.0
        changes.append(Worth(change=change, text=text, ett=ett, gpu_hours_saved=saved))

    for field, what in (
        ("init_s", "initialization"),
        ("write_s", "checkpoint write"),
        ("detection_s", "detection"),
        ("restart_s", "restart"),
    ):
        seconds = getattr(job, field)
        if seconds == 0:
            continue
        name = field.removesuffix("_s")
        for ending, factor in _SHORTER:
            changed = replace(case, job=replace(job, **{field: seconds * factor}))
            if field == "init_s" and case.isolation is not None and case.isolation.init_s:
                alone = replace(case.isolation, init_s=case.isolation.init_s * factor)
                changed = replace(changed, isolation=alone)
            text = f"{what} {seconds:.3g} s -> {seconds * factor:.3g} s"
            add(f"{name}-{ending}", text, changed)
    if case.interval_s is not None:
        best = replace(case, interval_s=None)
        at = "none" if math.isinf(best.interval()) else f"{best.interval():.4g} s"
        text = f"checkpoint interval {case.interval_s:.4g} s -> {at}, the best"
        add("interval-best", text, best)
    if case.isolation is not None:
        stall = case.isolation.stall_s
        for ending, factor in _SHORTER if stall else ():
            shorter = replace(case.isolation, stall_s=stall * factor)
            text = f"stall {stall:.3g} s -> {stall * factor:.3g} s"
            add(f"stall-{ending}", text, replace(case, isolation=shorter))
        text = f"no isolation: a failure stops all {case.isolation.replicas} replicas"
        add("no-isolation", text, replace(case, isolation=None))
    elif n >= inputs.replicas and math.isfinite(job.mtbf_s):
        isolated = case_of(spec, inputs, n, plan, inputs.replicas)
        text = (
            f"isolation to one replica of {inputs.replicas} (stall {inputs.stall_s:.3g} s, "
            f"{inputs.confined_share:.3g} of failures confined)"
        )
        add("isolation", text, isolated)
    return sorted(changes, key=lambda each: -each.gpu_hours_saved)


def _warnings(
    spec: EttSpec, inputs: Inputs, profile: Profile | None, points: list[EttPoint]
) -> list[RunWarning]:
    warnings = []
    if inputs.per_1000_node_days == 0:
        text = (
            "no failures: neither --failures-per-1000-node-days nor a profile gives a rate, so "
            "that nothing is lost but writes"
        )
        warnings.append(RunWarning(code="no-failures", text=text))
    far = [point.n for point in points if _lost(point, inputs) > FIRST_ORDER_HOLDS]
    if far:
        text = (
            f"at {_list(far)} GPUs a failure costs more than {FIRST_ORDER_HOLDS:.0%} of the time "
            "to the next one: first_order is off by more than 5 % there, ett is exact"
        )
        warnings.append(RunWarning(code="first-order", text=text))
    known = None if profile is None else profile.values.get("n")
    others = [point.n for point in points if known is not None and point.n != known.value]
    if others and known is not None:
        text = (
            f"at {_list(others)} GPUs: the profile is of {known.value:.0f}; each node is taken to "
            "fail as often, and all times to be the same, initialization too"
        )
        warnings.append(RunWarning(code="other-size", text=text))
    off = [point.n for point in points if _apart(point)]
    if off:
        text = (
            f"at {_list(off)} GPUs the Monte Carlo run is more than 1 % off the closed form; play "
            "more failures (--monte-carlo), and report it if that does not help"
        )
        warnings.append(RunWarning(code="monte-carlo", text=text))
    return warnings


def _lost(point: EttPoint, inputs: Inputs) -> float:
    """Of the time between failures, what one costs where it stops the whole job."""
    if point.mtbf_s is None:
        return 0.0
    interval = point.checkpoint_interval_s or 0.0
    if point.without_isolation is not None:
        interval = point.without_isolation.checkpoint_interval_s or 0.0
    down = inputs.detection_s + inputs.restart_s + point.init_s
    return (down + interval / 2) / point.mtbf_s


def _apart(point: EttPoint) -> bool:
    played = point.monte_carlo
    if played is None or played.failures < 10_000:
        return False
    return abs(played.ett - point.ett) > 0.01 * point.ett + 4 * played.error


def _list(sizes: list[int]) -> str:
    shown = ", ".join(map(str, sizes[:5]))
    return shown if len(sizes) <= 5 else f"{shown} and {len(sizes) - 5} more"


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
