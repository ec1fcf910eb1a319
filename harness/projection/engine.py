"""From a ProjectSpec to a result: every plan at every size in virtual time, and how much of it the
cluster's uncertain values could change.

The sizes asked for are simulated as they are. For the interval the same plans are simulated at
DRAWN_AT ranks with values drawn from their ranges, and each phase of the larger sizes is taken to
change by the same factor as there: what a phase is made of (steps, serial servers, loops) is the
same at both. Every number is `projected`.
"""

import math
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from emucoll.loading import find_plan
from harness.analysis.laws import law_of
from harness.clusters import Cluster, Hosts, Setting, find_cluster, in_order
from harness.control.loops import LOOP
from harness.profile import Value
from harness.projection.ground import find_ground, parts_of
from harness.projection.published import published_points
from harness.projection.simulate import Simulators, Task, Times, simulate
from harness.projection.spec import ProjectSpec, check, hosts_of
from harness.results.environment import read_environment
from harness.results.projection import (
    Ground,
    ProjectedPhase,
    ProjectedPlan,
    ProjectResult,
    Sensitivity,
    SpeedUp,
)
from harness.results.schema import RunWarning
from harness.results.training import Input
from harness.spec import Spec

DRAWN_AT = 2048
"""Ranks at which drawn values are simulated."""
LAW_SIZES = (512, 1024, 2048, 4096, 8192)
"""Below the largest that is asked for, these are simulated too, for the laws."""
ENOUGH_SIZES = 5
LOW, HIGH = 0.05, 0.95
DEADLINE_S = 1e9
_NUDGE = 0.02
"""By how much a value is changed to see what that does."""
_SHOWN_ELASTICITY = 0.01
_LEAST_SHARE = 1e-6
"""Of the total: a part with less has no factor that means anything."""

Array = npt.NDArray[np.float64]


def spec_of(plan: str, n: int, spec: ProjectSpec, cluster: Cluster) -> Spec:
    """The run that shows what `plan` takes with `n` ranks."""
    return Spec(
        nranks=n,
        plan=plan,
        formation=find_plan(plan).formation.name,
        allgather=None,
        record_bytes=None,
        channels=spec.channels,
        ranks_per_host=cluster.gpus_per_host,
        seed=spec.seed,
        deadline_s=DEADLINE_S,
        handshake_s=DEADLINE_S,
        world="virtual",
        cluster=spec.cluster,
    )


def init_s(plan: str, cluster: str, n: int) -> float:
    """How long `plan` takes to initialize `n` ranks on `cluster`, in seconds. Raises UsageError,
    Undecided.
    """
    return _init_s(plan, cluster, n)


@lru_cache(maxsize=4096)
def _init_s(plan: str, name: str, n: int) -> float:
    spec = ProjectSpec(plan=(plan,), n=(n,), cluster=name, draws=0)
    check(spec)
    find_ground(spec)
    cluster = find_cluster(name, n)
    setting = setting_of(cluster, in_order(n, cluster.gpus_per_host))
    return simulate(Task(spec_of(plan, n, spec, cluster), setting)).total_s


def setting_of(cluster: Cluster, hosts: Hosts) -> Setting:
    """All AllGathers in rounds."""
    return replace(cluster.setting(hosts), played_above=0)


@dataclass(frozen=True)
class Drawn:
    """What draws make of one plan at DRAWN_AT: one entry a draw, factors of the centre's."""

    factors: dict[str, Array]
    """By part (see `parts`)."""


def project(
    spec: ProjectSpec, progress: Callable[[str, float], None] = lambda *_: None
) -> ProjectResult:
    """Project. `progress` hears what is done and how much of it, 0 to 1. Raises UsageError,
    Undecided.
    """
    check(spec)
    cluster = find_cluster(spec.cluster, max(spec.n))
    grounds = find_ground(spec)
    hosts_of(spec.rank_order, max(spec.n), cluster, spec.seed)  # before anything takes long
    sizes = _sizes(spec)
    with Simulators() as simulators:
        simulated = _Simulated(spec, cluster, simulators, progress)
        centres = simulated.sizes(sizes)
        drawn = simulated.draws() if spec.draws else {}
        sensitivities = simulated.sensitivities(centres) if spec.draws else []
    plans = [
        _projected(spec, plan, n, sizes, centres, drawn.get(plan), grounds)
        for plan in spec.plan
        for n in spec.n
    ]
    return ProjectResult(
        kind="projected",
        spec=spec,
        environment=read_environment(LOOP),
        seed=spec.seed,
        ok=True,
        warnings=_warnings(spec, cluster, grounds),
        cluster=cluster.profile.text,
        inputs=inputs_of(cluster),
        plans=plans,
        speed_ups=_speed_ups(spec, centres, drawn),
        sensitivities=sensitivities,
        grounds=grounds,
        published=published_points(spec.plan),
    )


def _sizes(spec: ProjectSpec) -> list[int]:
    """Those asked for, and as many below as a law needs."""
    largest = max(spec.n)
    sizes = {*spec.n, *(n for n in LAW_SIZES if n < largest)}
    part = largest // 2
    while len(sizes) < ENOUGH_SIZES and part > 1:
        sizes.add(part)
        part //= 2
    return sorted(sizes)


@dataclass(frozen=True)
class _Simulated:
    """What has to be simulated for a projection."""

    spec: ProjectSpec
    cluster: Cluster
    simulators: Simulators
    progress: Callable[[str, float], None]

    def sizes(self, sizes: Sequence[int]) -> dict[tuple[str, int], Times]:
        """By plan and size. The largest first, so that no core has one of those left at the end."""
        wanted = [(plan, n) for n in sorted(sizes, reverse=True) for plan in self.spec.plan]
        tasks = [self._task(plan, n, self.cluster) for plan, n in wanted]
        shares = np.cumsum([n for _, n in wanted]) / sum(n for _, n in wanted)
        times = self.simulators.all(
            tasks, lambda count: self.progress("sizes", float(shares[count - 1]))
        )
        return dict(zip(wanted, times, strict=True))

    def draws(self) -> dict[str, Drawn]:
        """By plan, of the cluster's uncertain values."""
        return self._at_few("draws", drawn_clusters(self.cluster, self.spec.draws, self.spec.seed))

    def sensitivities(self, centres: dict[tuple[str, int], Times]) -> list[Sensitivity]:
        """Of each plan's total at the largest size, carried there as the draws are."""
        values, largest = self.cluster.profile.values, max(self.spec.n)
        uncertain = [key for key, value in values.items() if _is_uncertain(key, value)]
        nudged = []
        for key in uncertain:
            value = values[key]._replace(value=values[key].value * (1 + _NUDGE))
            nudged.append(with_values(self.cluster, {**values, key: value}))
        found = []
        for plan, changed in self._at_few("sensitivities", nudged).items():
            centre = centres[plan, largest]
            totals = total_spread(centre, changed)
            assert totals is not None
            for key, total_s in zip(uncertain, totals, strict=True):
                elasticity = math.log(float(total_s) / centre.total_s) / math.log(1 + _NUDGE)
                if abs(elasticity) >= _SHOWN_ELASTICITY:
                    found.append(
                        Sensitivity(plan=plan, n=largest, value=key, elasticity=elasticity)
                    )
        return found

    def _at_few(self, what: str, changed: Sequence[Cluster]) -> dict[str, Drawn]:
        """By plan what each changed cluster makes of it at DRAWN_AT."""
        n = min(DRAWN_AT, max(self.spec.n))
        clusters = [self.cluster, *changed]
        tasks = [self._task(plan, n, each) for plan in self.spec.plan for each in clusters]
        times = self.simulators.all(tasks, lambda count: self.progress(what, count / len(tasks)))
        found = {}
        for number, plan in enumerate(self.spec.plan):
            of_plan = times[number * len(clusters) : (number + 1) * len(clusters)]
            found[plan] = factors_of(of_plan[0], of_plan[1:])
        return found

    def _task(self, plan: str, n: int, cluster: Cluster) -> Task:
        hosts = hosts_of(self.spec.rank_order, n, self.cluster, self.spec.seed)
        return Task(spec_of(plan, n, self.spec, cluster), setting_of(cluster, hosts))


def _is_uncertain(key: str, value: Value) -> bool:
    return value.low < value.high and key.partition(".")[0] in (
        "latency",
        "cpu",
        "network",
        "loops",
    )


def drawn_clusters(cluster: Cluster, draws: int, seed: int) -> list[Cluster]:
    """The cluster with every uncertain value drawn from its range (see `quantile`), each by itself.

    A Latin hypercube: of k draws of one value one lies in each k-th of its distribution, so that
    few draws already show both ends.
    """
    numbers = random.Random(f"project {seed}")
    drawn = {
        key: [quantile(value, where) for where in _strata(draws, numbers)]
        for key, value in cluster.profile.values.items()
        if _is_uncertain(key, value)
    }
    return [
        with_values(cluster, {**cluster.profile.values, **dict(zip(drawn, each, strict=True))})
        for each in zip(*drawn.values(), strict=True)
    ] or [cluster] * draws  # the second where no value is uncertain


def _strata(count: int, numbers: random.Random) -> list[float]:
    """`count` numbers from 0 to 1, one in each `count`-th, in random order."""
    order = list(range(count))
    numbers.shuffle(order)
    return [(each + numbers.random()) / count for each in order]


def quantile(value: Value, where: float) -> Value:
    """What lies at `where`, 0 to 1, of an uncertain value's distribution: half of it on either side
    of the value itself, uniform there on a logarithmic scale (a linear one where the range reaches
    0). A range to one side only has half of its distribution at the value.
    """
    low, high = (value.low, value.value) if where < 0.5 else (value.value, value.high)
    part = 2 * where - (where >= 0.5)
    found = low * (high / low) ** part if low > 0 else low + (high - low) * part
    return value._replace(value=found)


def with_values(cluster: Cluster, values: dict[str, Value]) -> Cluster:
    """The same with other values."""
    return replace(cluster, profile=cluster.profile._replace(values=values))


def factors_of(centre: Times, drawn: Sequence[Times]) -> Drawn:
    """By how much each draw changes each part of the centre."""
    names, of_draws = parts(centre), [parts(each) for each in drawn]
    least_s = _LEAST_SHARE * centre.total_s
    factors = {}
    for name, seconds in names.items():
        values = np.array([each.get(name, 0.0) for each in of_draws])
        factors[name] = values / seconds if seconds > least_s else np.ones(len(drawn))
    return Drawn(factors)


def parts(times: Times) -> dict[str, float]:
    """Phases without phases within, and of those that have some what these leave, under the name of
    the whole: they add up to the mean of the ranks' totals.
    """
    within: dict[str, float] = {}
    for name, outer in times.within.items():
        if outer is not None:
            within[outer] = within.get(outer, 0.0) + times.phases[name]
    return {name: seconds - within.get(name, 0.0) for name, seconds in times.phases.items()}


def _projected(
    spec: ProjectSpec,
    plan: str,
    n: int,
    sizes: Sequence[int],
    centres: dict[tuple[str, int], Times],
    drawn: Drawn | None,
    grounds: Sequence[Ground],
) -> ProjectedPlan:
    times = centres[plan, n]
    known = [size for size in sizes if size <= max(spec.n)]
    phases = []
    for name, outer in times.within.items():
        low, high = _interval(_spread(times, drawn, name))
        law = law_of(known, [centres[plan, size].phases.get(name, 0.0) for size in known])
        phases.append(
            ProjectedPhase(
                name=name,
                seconds=times.phases[name],
                low_s=low,
                high_s=high,
                law=law.text,
                within=outer,
            )
        )
    low, high = _interval(total_spread(times, drawn))
    held_out = [each.error for each in grounds if each.part in parts_of(plan)]
    return ProjectedPlan(
        name=plan,
        n=n,
        total_s=times.total_s,
        low_s=low,
        high_s=high,
        held_out_error=max(held_out) if held_out else None,
        largest_phase=max(_leaves(times), key=lambda name: times.phases[name]),
        phases=phases,
    )


def _leaves(times: Times) -> list[str]:
    outer = set(times.within.values())
    return [name for name in times.phases if name not in outer]


def _spread(times: Times, drawn: Drawn | None, phase: str) -> Array | None:
    """One phase's seconds in every draw, its parts' included."""
    if drawn is None:
        return None
    return _sum(
        seconds * drawn.factors[name]
        for name, seconds in parts(times).items()
        if name in drawn.factors and (name == phase or name.startswith(f"{phase}."))
    )


def total_spread(times: Times, drawn: Drawn | None) -> Array | None:
    """The whole in every draw."""
    if drawn is None:
        return None
    here = parts(times)
    mean_s = sum(here.values())
    whole = _sum(
        seconds * drawn.factors[name] for name, seconds in here.items() if name in drawn.factors
    )
    return whole * (times.total_s / mean_s) if mean_s else whole


def _sum(arrays: Iterable[Array]) -> Array:
    total: Array = np.zeros(1)
    for each in arrays:
        total = total + each
    return total


def _interval(values: Array | None) -> tuple[float | None, float | None]:
    if values is None:
        return None, None
    low, high = np.quantile(values, (LOW, HIGH))
    return float(low), float(high)


def _speed_ups(
    spec: ProjectSpec, centres: dict[tuple[str, int], Times], drawn: dict[str, Drawn]
) -> list[SpeedUp]:
    """Of each plan against the slowest of its size. The same draws stand behind both."""
    found = []
    for n in spec.n if len(spec.plan) > 1 else ():
        base = max(spec.plan, key=lambda plan: centres[plan, n].total_s)
        for plan in spec.plan:
            if plan == base:
                continue
            low = high = None
            if drawn:
                ours, theirs = (
                    total_spread(centres[each, n], drawn[each]) for each in (plan, base)
                )
                assert ours is not None and theirs is not None
                low, high = _interval(theirs / ours)
            ratio = centres[base, n].total_s / centres[plan, n].total_s
            found.append(SpeedUp(plan=plan, base=base, n=n, ratio=ratio, low=low, high=high))
    return found


def inputs_of(cluster: Cluster) -> list[Input]:
    """Its values, each with its range and where it is from."""
    return [_input(key, value) for key, value in cluster.profile.values.items()]


def _input(key: str, value: Value) -> Input:
    return Input(
        name=key,
        value=value.value,
        low=value.low,
        high=value.high,
        unit=None,
        origin="profile",
        because=value.why if value.source is not None else f"assumed: {value.why}",
    )


def _warnings(spec: ProjectSpec, cluster: Cluster, grounds: Sequence[Ground]) -> list[RunWarning]:
    """What lies outside of what was checked."""
    warnings = []
    largest = max((each.largest_n for each in grounds), default=0)
    if max(spec.n) > largest:
        text = (
            f"the model was checked against runs of at most {largest} ranks whose messages were "
            f"milliseconds late; {max(spec.n)} ranks, latencies of microseconds, barriers, loops "
            "and what a framework does in front lie outside of that"
        )
        warnings.append(RunWarning(code="extrapolated", text=text))
    assumed = [key for key, value in cluster.profile.values.items() if value.source is None]
    if assumed:
        text = f"assumed, not measured, of {spec.cluster}: {', '.join(assumed)}"
        warnings.append(RunWarning(code="assumed", text=text))
    return warnings
