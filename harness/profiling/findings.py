"""From evidence to findings: what will dominate at the target, the worst first.

CPU that was measured is carried to the target by its growth law, seconds of virtual time are played
there. Where the first comes to more than the second has for the same phase, it counts: virtual time
knows messages, and not what code computes. What is carried far is known between bounds: only what
the lower one shows is a finding.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import log
from statistics import median
from typing import Any

from harness.analysis.growth import CONSTANT, Exponent, Extrapolated, Growth, growth
from harness.analysis.laws import FEWEST_SIZES, NOT_ENOUGH, NOTHING, law_of
from harness.profiling.cluster import SERVING, Blame
from harness.profiling.functions import hottest
from harness.profiling.known import known
from harness.profiling.measure import Metric, Series
from harness.profiling.spec import ProfileSpec
from harness.results.profile import Finding
from harness.results.samples import Sampled

NONE_FITS = "none fits"
LEAST_SHARE = 0.01
"""Of the time at the target: what takes less is no finding."""
MEASURED_MORE = 1.5
"""So many times what virtual time has for it has to be measured to count in its place."""
MOST_BYTES_PER_RANK = float(1 << 30)
MOST_CONNECTIONS_PER_RANK = 65_536.0
"""What a rank may take of these before a job cannot start: findings are ranked by their share of
it, as those of time are by theirs.
"""
UNITS = {"cpu": "s", "wait": "s", "memory": "B"}


@dataclass(frozen=True)
class Timed:
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


@dataclass(frozen=True)
class Evidence:
    """All that was found out."""

    spec: ProfileSpec
    series: Series
    timed: Sequence[Timed]
    blames: dict[int, Blame]
    places: dict[str, str] = field(default_factory=dict)
    """Where in the code phases are."""
    sampled: Sequence[Sampled] = ()

    @property
    def at_target(self) -> Blame:
        """Where the time of the target goes."""
        return self.blames[self.spec.target]


def ranked(evidence: Evidence) -> list[Finding]:
    """The worst at the target first. Shares are of what virtual time has for the whole, and of the
    CPU beside it that was measured to be more.
    """
    grown = {metric: growth_of(by_size) for metric, by_size in evidence.series.items()}
    there = {
        metric: said
        for metric, each in grown.items()
        if (said := each.at(evidence.spec.target)) is not None
    }
    more = _more_than_simulated(evidence, there)
    whole_s = evidence.at_target.total_s + sum(more.values())
    weighed: list[tuple[float, Finding]] = []
    for metric in more:
        if (least := there[metric].low / whole_s) > LEAST_SHARE:
            share = there[metric].value / whole_s
            finding = _of_measured(evidence, metric, grown[metric], there[metric], share)
            weighed.append((least, finding))
    for metric, said in there.items():
        limit = _limit(metric)
        if limit is None or not _is_more_than_each(grown[metric]):
            continue
        weight = said.low / evidence.spec.target / limit
        if weight > LEAST_SHARE:
            weighed.append((weight, _of_measured(evidence, metric, grown[metric], said, None)))
    counted = {metric[:2] for metric in more}
    for each in evidence.timed:
        share = each.seconds[evidence.spec.target] / whole_s
        if share >= LEAST_SHARE and (each.entity, each.phase) not in counted:
            weighed.append((share, _of_time(evidence, each, share)))
    return [finding for _, finding in sorted(weighed, key=lambda one: -one[0])]


def _more_than_simulated(
    evidence: Evidence, there: Mapping[Metric, Extrapolated]
) -> dict[Metric, float]:
    """CPU that was measured to be more, at the target, than virtual time has for the same phase: by
    how much, in seconds.
    """
    target, total_s = evidence.spec.target, evidence.at_target.total_s
    simulated_s = {(each.entity, each.phase): each.seconds[target] for each in evidence.timed}
    found = {}
    for metric, said in there.items():
        has_s = simulated_s.get(metric[:2], 0.0)
        is_more = said.low > max(MEASURED_MORE * has_s, LEAST_SHARE * total_s)
        if metric.resource == "cpu" and is_more:
            found[metric] = said.value - has_s
    return found


def fastest_growing(findings: Sequence[Finding]) -> Finding | None:
    """What overtakes the verdict at some larger size; None: nothing does."""
    known_ones = [each for each in findings if each.exponent is not None]
    fastest = max(known_ones, key=lambda each: each.exponent or 0.0, default=None)
    if fastest is None or fastest is findings[0] or findings[0].exponent is None:
        return None
    assert fastest.low is not None and findings[0].high is not None
    return fastest if fastest.low > findings[0].high else None


def growth_of(by_size: dict[int, list[float]]) -> Growth:
    """How a measured figure grows."""
    return growth(list(by_size), list(by_size.values()))


def _limit(metric: Metric) -> float | None:
    """Of one rank; None where there is none."""
    if metric.entity != "rank":
        return None
    limits = {"memory": MOST_BYTES_PER_RANK, "connections": MOST_CONNECTIONS_PER_RANK}
    return limits.get(metric.resource)


def _is_more_than_each(grown: Growth) -> bool:
    """Does what all ranks take grow faster than their number?"""
    return grown.exponent is not None and grown.exponent.low > 1.0 and grown.exponent.value > 1.4


def _of_measured(
    evidence: Evidence, metric: Metric, grown: Growth, there: Extrapolated, share: float | None
) -> Finding:
    by_size = evidence.series[metric]
    largest = max(by_size)
    return _finding(
        evidence,
        entity=metric.entity,
        phase=metric.phase,
        resource=metric.resource,
        law=grown.fits[0].law if grown.fits else NONE_FITS,
        laws=[fit.law for fit in grown.fits],
        exponent=grown.exponent,
        at_target=there.value,
        at_target_low=there.low,
        at_target_high=there.high,
        share_at_target=share,
        kind="measured",
        before=(largest, median(by_size[largest])),
    )


def _of_time(evidence: Evidence, each: Timed, share: float) -> Finding:
    largest = max(evidence.spec.n)
    law = law_over_sizes(each)
    return _finding(
        evidence,
        entity=_whose(evidence, each),
        phase=each.phase,
        resource=each.resource,
        law=law,
        laws=[law],
        exponent=slopes(each),
        at_target=each.seconds[evidence.spec.target],
        share_at_target=share,
        share=each.seconds[largest] / evidence.blames[largest].total_s,
        kind="simulated",
        before=(largest, each.seconds[largest]),
        what=max(each.whats, key=lambda what: each.whats[what]),
    )


def _whose(evidence: Evidence, each: Timed) -> str:
    """The role, or the one rank that it is at every size."""
    key = (each.entity, each.phase)
    names = {blamed.alone.get(key) for blamed in evidence.blames.values()}
    (name, *others) = names
    return each.entity if others or name is None else name


def _finding(
    evidence: Evidence,
    *,
    entity: str,
    phase: str,
    resource: Any,
    law: str,
    exponent: Exponent | None,
    at_target: float,
    share_at_target: float | None,
    before: tuple[int, float],
    what: str | None = None,
    **rest: Any,
) -> Finding:
    is_one = entity not in ("rank", "root", "store")
    likely = None if is_one else known(entity, phase, resource, what)
    if is_one:
        whose = f"of {entity} alone"
    elif entity == "rank":
        whose = "of all ranks" if UNITS.get(resource) != "s" else "of a rank"
    else:
        whose = f"of the {entity}"
    if what == "sleep":
        how = "asleep"
    elif resource == "cpu":
        how = "CPU"
    else:
        how = resource if resource != "wait" else f"waiting ({what})"
    unit = UNITS.get(resource, "")
    text = (
        f"{phase if likely is None else f'{likely.name} ({phase})'}, {how} {whose}: "
        f"{_amount(before[1], unit)} at {before[0]} ranks, {_grows(law, exponent)}, "
        f"{_amount(at_target, unit)} at {evidence.spec.target}"
    )
    low, high = rest.get("at_target_low"), rest.get("at_target_high")
    if low is not None and high is not None:
        text += f" [{_amount(low, unit)}, {_amount(high, unit)}]"
    if share_at_target is not None:
        text += f", {share_at_target:.0%} of the whole"
    if likely is not None:
        text += f". Avoided by {likely.fix}"
    location = _location(evidence, entity, phase)
    if location is not None:
        text += f". See {location}"
    return Finding(
        entity=entity,
        phase=phase,
        resource=resource,
        law=law,
        **as_range(exponent),
        at_target=at_target,
        share_at_target=share_at_target,
        location=location,
        known_fix=None if likely is None else likely.fix,
        text=text,
        **rest,
    )


def _location(evidence: Evidence, entity: str, phase: str) -> str | None:
    """Where a phase of ranks begins; what a server does most."""
    if phase in evidence.places:
        return evidence.places[phase]
    return hottest(evidence.sampled, entity, None) if phase == SERVING else None


def _grows(law: str, exponent: Exponent | None) -> str:
    if law == CONSTANT:
        return "does not grow"
    is_law = law not in (NONE_FITS, NOT_ENOUGH, NOTHING)
    grows = f"grows as {law}" if is_law else "grows by none of the laws"
    return grows if exponent is None else f"{grows} [{exponent.low:.2f}, {exponent.high:.2f}]"


def as_range(exponent: Exponent | None) -> dict[str, Any]:
    """As findings and figures have it."""
    if exponent is None:
        return {}
    return {"exponent": exponent.value, "low": exponent.low, "high": exponent.high}


def _amount(value: float, unit: str) -> str:
    if unit == "B":
        return f"{value / 2**20:.3g} MiB"
    return f"{value:.3g} {unit}".rstrip()


def law_over_sizes(each: Timed) -> str:
    """Of the largest sizes at which there is any of it: below a threshold there may be none."""
    known_at = [(n, seconds) for n, seconds in sorted(each.seconds.items()) if seconds > 0]
    sizes, seconds = zip(*known_at[-FEWEST_SIZES:], strict=True) if known_at else ((), ())
    law = law_of(sizes, seconds).text
    return CONSTANT if law == "1" else law


def slopes(each: Timed) -> Exponent | None:
    """Between the target and each of the three sizes before it at which there is any of it: the
    last one's, the least and the largest.
    """
    points = [(n, seconds) for n, seconds in sorted(each.seconds.items()) if seconds > 0][-4:]
    if len(points) < 2:
        return None
    n, seconds = points[-1]
    found = [log(seconds / before) / log(n / fewer) + 0.0 for fewer, before in points[:-1]]
    return Exponent(found[-1], min(found), max(found))
