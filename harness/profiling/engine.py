"""From a ProfileSpec to a verdict: what will dominate at the target.

Two kinds of evidence. Runs here, over real sockets, show what is consumed (CPU by phase and role,
memory, connections, requests); a growth law carries that to the target. Virtual time shows where
the time of a cluster goes, along the critical path, at the same sizes and at the target itself; no
law is carried there. Where CPU that was measured comes to more at the target than virtual time has
for the same phase, it counts: virtual time knows messages, and not what code computes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log
from statistics import median
from time import process_time
from typing import Any

from harness.analysis.growth import CONSTANT, Exponent, Growth, growth
from harness.analysis.laws import FEWEST_SIZES, NOT_ENOUGH, NOTHING, law_of
from harness.clusters import Cluster, find_cluster
from harness.control.loops import LOOP
from harness.planned import plan_of
from harness.profiling.cluster import Blame, blame
from harness.profiling.known import known, names_of
from harness.profiling.measure import Metric, Series, measure
from harness.profiling.spec import ProfileSpec, check_profile
from harness.projection.engine import inputs_of
from harness.results.environment import read_environment
from harness.results.profile import Finding, Growing, Link, ProfileResult
from harness.results.schema import RunError, RunWarning

NONE_FITS = "none fits"
STRIDE = 4
SHORTEST_S = 3.0
"""Of CPU, from which a slope can be told."""
MOST_PLAYING_S = 900.0
"""Of CPU: a target that would take more is not played."""
LEAST_SHARE = 0.01
"""Of the time at the target: what takes less is no finding."""
MEASURED_MORE = 1.5
"""So many times what virtual time has for it has to be measured to count in its place."""
MOST_BYTES_PER_RANK = float(1 << 30)
MOST_CONNECTIONS_PER_RANK = 65_536.0
"""What a rank may take of these before a job cannot start: findings are ranked by their share of
it, as those of time are by theirs.
"""
_UNITS = {"cpu": "s", "wait": "s", "memory": "B"}
_LONG_STRETCH = 0.005
"""Of the whole: shorter ones of the critical path are put together."""


@dataclass(frozen=True)
class _Timed:
    """A part of a cluster's time over the sizes, in seconds."""

    entity: str
    phase: str
    seconds: dict[int, float]
    whats: dict[str, float]
    """At the target, of what."""

    @property
    def resource(self) -> str:
        """What most of it is."""
        return "cpu" if self.whats.get("cpu", 0.0) > sum(self.whats.values()) / 2 else "wait"


def profile(
    spec: ProfileSpec, progress: Callable[[str, float], None] = lambda *_: None
) -> ProfileResult:
    """Profile. `progress` hears what is done, and how much of it. Raises UsageError, HarnessError,
    RunFailed.
    """
    check_profile(spec)
    cluster = find_cluster(spec.cluster, spec.target)
    environment = read_environment(LOOP)
    series = measure(spec, progress)
    blames = _play(spec, cluster, progress)
    timed = _timed(spec, blames)
    is_played = bool(blames[spec.target].chain)
    findings = _ranked(spec, series, timed, blames)
    verdict = findings[0] if findings else None
    error = None
    if verdict is None:
        error = RunError(
            what="nothing can be said of what dominates at the target",
            next="more sizes, or more repeats",
        )
    return ProfileResult(
        kind="measured",
        spec=spec,
        environment=environment,
        seed=spec.seed,
        ok=error is None,
        error=error,
        warnings=_warnings(spec, is_played),
        verdict=verdict,
        findings=findings,
        figures=[*_simulated_figures(timed, spec, is_played), *_measured_figures(series, spec)],
        critical_path=_links(blames[spec.target]),
        total_at_target_s=blames[spec.target].total_s,
        cluster=cluster.profile.text,
        inputs=inputs_of(cluster),
    )


def _play(
    spec: ProfileSpec, cluster: Cluster, progress: Callable[[str, float], None]
) -> dict[int, Blame]:
    """All sizes in virtual time, and the target, unless the code of the ranks computes for so long
    that it cannot be played: then what the two largest sizes say of it.
    """
    sizes = [*sorted(spec.n), *_between(max(spec.n), spec.target)]
    blames: dict[int, Blame] = {}
    took_s: list[float] = []
    for n in sizes:
        if n > max(spec.n) and _expected_s(sizes[: len(took_s)], took_s, n) > MOST_PLAYING_S:
            blames[spec.target] = carried(blames, spec.target)
            break
        progress(f"virtual time: {n} ranks", sum(blames) / sum(sizes))
        began = process_time()
        blames[n] = blame(spec, n, cluster)
        took_s.append(process_time() - began)
    return blames


def _between(largest: int, target: int) -> list[int]:
    """Sizes on the way to the target, and the target: each has four times as many ranks as the one
    before, so that they take a third of its time.
    """
    found = [target]
    while found[0] // STRIDE > largest:
        found.insert(0, found[0] // STRIDE)
    return [n for n in found if n > largest]


def _expected_s(sizes: Sequence[int], took_s: Sequence[float], n: int) -> float:
    """Of CPU, to play `n` ranks, from what the two largest so far took."""
    if len(sizes) < 2 or took_s[-1] < SHORTEST_S:
        return 0.0
    fewer, last = sizes[-2:]
    slope = max(1.0, log(took_s[-1] / took_s[-2]) / log(last / fewer))
    return float(took_s[-1] * (n / last) ** slope)


def carried(blames: dict[int, Blame], n: int) -> Blame:
    """What would be at `n`, if each part went on growing as between the two largest sizes."""
    fewer, last = sorted(blames)[-2:]
    parts = {}
    for part, seconds in blames[last].parts.items():
        before = blames[fewer].parts.get(part, 0.0)
        slope = log(seconds / before) / log(last / fewer) if before else 1.0
        parts[part] = seconds * (n / last) ** slope
    return Blame(sum(parts.values()), parts, [])


def _timed(spec: ProfileSpec, blames: dict[int, Blame]) -> list[_Timed]:
    """Parts of the critical path, all AllGathers' steps as one."""
    names = names_of(plan_of(spec.run_of(spec.n[0])))
    found: dict[tuple[str, str], _Timed] = {}
    for n, each in blames.items():
        for part, seconds in each.parts.items():
            phase = names.get(part.phase, part.phase)
            key = part.entity, phase
            timed = found.setdefault(key, _Timed(*key, dict.fromkeys(blames, 0.0), {}))
            timed.seconds[n] += seconds
            if n == spec.target:
                timed.whats[part.what] = timed.whats.get(part.what, 0.0) + seconds
    return list(found.values())


# -- findings


def _ranked(
    spec: ProfileSpec, series: Series, timed: Sequence[_Timed], blames: dict[int, Blame]
) -> list[Finding]:
    """The worst at the target first."""
    total_s = blames[spec.target].total_s
    by_part = {(each.entity, each.phase): each for each in timed}
    weighed: list[tuple[float, Finding]] = []
    counted: set[tuple[str, str]] = set()
    for metric, by_size in series.items():
        grown = _grown(by_size)
        at_target = _at_target(grown, by_size, spec.target)
        if at_target is None:
            continue
        if metric.resource == "cpu":
            part = by_part.get((metric.entity, metric.phase))
            simulated_s = 0.0 if part is None else part.seconds[spec.target]
            whole_s = total_s + at_target - simulated_s
            if at_target > MEASURED_MORE * simulated_s and at_target > LEAST_SHARE * whole_s:
                counted.add((metric.entity, metric.phase))
                share = at_target / whole_s
                finding = _of_measured(metric, grown, by_size, at_target, share, spec)
                weighed.append((share, finding))
        elif (limit := _limit(metric)) is not None and _is_more_than_each(grown):
            weight = at_target / spec.target / limit
            if weight > LEAST_SHARE:
                finding = _of_measured(metric, grown, by_size, at_target, None, spec)
                weighed.append((weight, finding))
    for each in timed:
        share = each.seconds[spec.target] / total_s
        if share >= LEAST_SHARE and (each.entity, each.phase) not in counted:
            weighed.append((share, _of_time(each, share, blames, spec)))
    return [finding for _, finding in sorted(weighed, key=lambda one: -one[0])]


def _limit(metric: Metric) -> float | None:
    """Of one rank; None where there is none."""
    if metric.entity != "rank":
        return None
    limits = {"memory": MOST_BYTES_PER_RANK, "connections": MOST_CONNECTIONS_PER_RANK}
    return limits.get(metric.resource)


def _is_more_than_each(grown: Growth) -> bool:
    """Does what all ranks take grow faster than their number?"""
    return grown.exponent is not None and grown.exponent.low > 1.0 and grown.exponent.value > 1.4


def _grown(by_size: dict[int, list[float]]) -> Growth:
    return growth(list(by_size), list(by_size.values()))


def _at_target(grown: Growth, by_size: dict[int, list[float]], target: int) -> float | None:
    """What the law says; without one, what the exponent says from the largest size on."""
    if grown.fits:
        return grown.fits[0].at(target)
    if grown.exponent is None:
        return None
    largest = max(by_size)
    return float(median(by_size[largest]) * (target / largest) ** grown.exponent.value)


def _of_measured(
    metric: Metric,
    grown: Growth,
    by_size: dict[int, list[float]],
    at_target: float,
    share: float | None,
    spec: ProfileSpec,
) -> Finding:
    law = grown.fits[0].law if grown.fits else NONE_FITS
    value = median(by_size[max(by_size)])
    return _finding(
        entity=metric.entity,
        phase=metric.phase,
        resource=metric.resource,
        law=law,
        laws=[fit.law for fit in grown.fits],
        exponent=grown.exponent,
        at_target=at_target,
        share_at_target=share,
        kind="measured",
        before=(max(by_size), value),
        spec=spec,
    )


def _of_time(each: _Timed, share: float, blames: dict[int, Blame], spec: ProfileSpec) -> Finding:
    largest = max(spec.n)
    law = _law(each)
    return _finding(
        entity=each.entity,
        phase=each.phase,
        resource=each.resource,
        law=law,
        laws=[law],
        exponent=_slopes(each),
        at_target=each.seconds[spec.target],
        share_at_target=share,
        share=each.seconds[largest] / blames[largest].total_s,
        kind="simulated",
        before=(largest, each.seconds[largest]),
        what=max(each.whats, key=lambda what: each.whats[what]),
        spec=spec,
    )


def _finding(
    *,
    entity: str,
    phase: str,
    resource: Any,
    law: str,
    exponent: Exponent | None,
    at_target: float,
    share_at_target: float | None,
    before: tuple[int, float],
    spec: ProfileSpec,
    what: str | None = None,
    **rest: Any,
) -> Finding:
    likely = known(entity, phase, resource, what)
    each = "of all ranks" if _UNITS.get(resource) != "s" else "of a rank"
    whose = each if entity == "rank" else f"of the {entity}"
    if what == "sleep":
        how = "asleep"
    elif resource == "cpu":
        how = "CPU"
    else:
        how = resource if resource != "wait" else f"waiting ({what})"
    unit = _UNITS.get(resource, "")
    is_law = law not in (NONE_FITS, NOT_ENOUGH, NOTHING)
    grows = f"grows as {law}" if is_law else "grows by none of the laws"
    if exponent is not None:
        grows += f" [{exponent.low:.2f}, {exponent.high:.2f}]"
    text = (
        f"{phase if likely is None else f'{likely.name} ({phase})'}, {how} {whose}: "
        f"{_amount(before[1], unit)} at {before[0]} ranks, {grows}, "
        f"{_amount(at_target, unit)} at {spec.target}"
    )
    if share_at_target is not None:
        text += f", {share_at_target:.0%} of the whole"
    if likely is not None:
        text += f". Avoided by {likely.fix}"
    return Finding(
        entity=entity,
        phase=phase,
        resource=resource,
        law=law,
        **_range(exponent),
        at_target=at_target,
        share_at_target=share_at_target,
        known_fix=None if likely is None else likely.fix,
        text=text,
        **rest,
    )


def _range(exponent: Exponent | None) -> dict[str, Any]:
    """As findings and figures have it."""
    if exponent is None:
        return {}
    return {"exponent": exponent.value, "low": exponent.low, "high": exponent.high}


def _amount(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value / 2**20:.3g} MiB"
    return f"{value:.3g} {unit}".rstrip()


# -- figures


def _law(each: _Timed) -> str:
    """Of the largest sizes at which there is any of it: below a threshold there may be none."""
    known_at = [(n, seconds) for n, seconds in sorted(each.seconds.items()) if seconds > 0]
    sizes, seconds = zip(*known_at[-FEWEST_SIZES:], strict=True) if known_at else ((), ())
    law = law_of(sizes, seconds).text
    return CONSTANT if law == "1" else law


def _slopes(each: _Timed) -> Exponent | None:
    """Between the target and each of the three sizes before it at which there is any of it: the
    last one's, the least and the largest.
    """
    points = [(n, seconds) for n, seconds in sorted(each.seconds.items()) if seconds > 0][-4:]
    if len(points) < 2:
        return None
    n, seconds = points[-1]
    slopes = [log(seconds / before) / log(n / fewer) + 0.0 for fewer, before in points[:-1]]
    return Exponent(slopes[-1], min(slopes), max(slopes))


def _simulated_figures(
    timed: Sequence[_Timed], spec: ProfileSpec, is_played: bool
) -> list[Growing]:
    found = []
    for each in timed:
        exponent = _slopes(each)
        found.append(
            Growing(
                entity=each.entity,
                phase=each.phase,
                resource=each.resource,
                kind="simulated",
                unit="s",
                sizes=sorted(each.seconds),
                values=[each.seconds[n] for n in sorted(each.seconds)],
                law=_law(each),
                **_range(exponent),
                at_target=each.seconds[spec.target],
                simulated_at_target=is_played,
            )
        )
    return found


def _measured_figures(series: Series, spec: ProfileSpec) -> list[Growing]:
    found = []
    for metric, by_size in series.items():
        grown = _grown(by_size)
        exponent = grown.exponent
        found.append(
            Growing(
                entity=metric.entity,
                phase=metric.phase,
                resource=metric.resource,
                kind="measured",
                unit=_UNITS.get(metric.resource, ""),
                sizes=sorted(by_size),
                values=[median(by_size[n]) for n in sorted(by_size)],
                law=grown.fits[0].law if grown.fits else grown.answer,
                **_range(exponent),
                at_target=_at_target(grown, by_size, spec.target),
            )
        )
    return found


def _links(blamed: Blame) -> list[Link]:
    """The critical path, its short stretches put together."""
    least_s = _LONG_STRETCH * blamed.total_s
    links: list[Link] = []
    for each in blamed.chain:
        last = links[-1] if links else None
        if each.until_s - each.from_s >= least_s:
            links.append(Link(**each._asdict()))
        elif last is not None and last.what == "short":
            links[-1] = Link(
                who=last.who if last.who == each.who else "several",
                phase=last.phase if last.phase == each.phase else "several",
                what="short",
                from_s=last.from_s,
                until_s=each.until_s,
            )
        else:
            links.append(Link(**{**each._asdict(), "what": "short"}))
    return links


def _warnings(spec: ProfileSpec, is_played: bool) -> list[RunWarning]:
    text = (
        f"seconds at {spec.target} are those of {spec.cluster} in virtual time, whose costs are "
        "mostly assumptions; CPU was measured here, of Python's code where libnccl or torch would "
        "run C++"
    )
    warnings = [RunWarning(code="projected", text=text)]
    if not is_played:
        text = (
            f"{spec.target} ranks were not played in virtual time: their code computes for too "
            "long; what it says of them is carried on from the two largest sizes"
        )
        warnings.append(RunWarning(code="target-not-played", text=text))
    return warnings
