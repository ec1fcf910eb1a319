"""From a ProfileSpec to a verdict: what will dominate at the target.

Three kinds of evidence. Runs here, over real sockets, show what is consumed (CPU by phase and role,
memory, connections, requests); a growth law carries that to the target. Samples of such runs show
in which functions. Virtual time shows where the time of a cluster goes, along the critical path, at
the same sizes and at the target itself; no law is carried there.
"""

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import log
from statistics import median
from time import process_time
from typing import Any

import psutil

from harness.analysis.growth import Growth, growth
from harness.clusters import Cluster, find_cluster
from harness.control.loops import LOOP
from harness.planned import plan_of
from harness.profiling.cluster import Blame, blame
from harness.profiling.findings import (
    UNITS,
    Evidence,
    Timed,
    as_range,
    fastest_growing,
    growth_of,
    law_over_sizes,
    ranked,
    slopes,
)
from harness.profiling.functions import own_times
from harness.profiling.known import names_of
from harness.profiling.links import links
from harness.profiling.measure import Series, measure
from harness.profiling.places import of_plan
from harness.profiling.sampling import sample
from harness.profiling.spec import ProfileSpec, check_profile
from harness.projection.engine import inputs_of
from harness.results.environment import read_environment
from harness.results.profile import Growing, ProfileResult
from harness.results.samples import Sampled, Samples, save_samples
from harness.results.schema import RunError, RunWarning
from harness.usage import peak_rss_bytes

STRIDE = 4
SHORTEST_S = 3.0
"""Of CPU, from which a slope can be told."""
LEAST_GROWN_BYTES = 256e6
MOST_OF_MEMORY = 0.5
"""Of what is free; and what a process must have grown by for a slope to be told."""
_TOLD = 10.0
"""A figure whose upper bound at the target is so many times its lower one is not carried there."""
MOST_PLAYING_S = 300.0
"""Of CPU: a target that would take more is not played."""


def profile(
    spec: ProfileSpec, progress: Callable[[str, float], None] = lambda *_: None
) -> ProfileResult:
    """Profile. `progress` hears what is done, and how much of it. Raises UsageError, HarnessError,
    RunFailed.
    """
    check_profile(spec)
    cluster = find_cluster(spec.cluster, spec.target)
    environment = read_environment(LOOP)
    measured = measure(spec, progress)
    series = measured.series
    sampled, warnings = sample(spec, measured.totals_s, progress) if spec.sample else ([], [])
    warnings += _saturated(measured.saturated)
    if spec.out is not None and sampled:
        save_samples(Samples(sampled=sampled), os.fspath(spec.out))
    evidence = replace(simulated(spec, progress), series=series, sampled=sampled)
    blames = evidence.blames
    is_played = bool(blames[spec.target].chain)
    findings = ranked(evidence)
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
        warnings=[*_warnings(spec, is_played), *warnings],
        verdict=verdict,
        fastest_growing=fastest_growing(findings),
        findings=findings,
        figures=[
            *_simulated_figures(evidence, is_played),
            *_measured_figures(series, spec),
            *_function_figures(sampled, spec),
        ],
        critical_path=links(blames[spec.target].chain, blames[spec.target].total_s),
        total_at_target_s=blames[spec.target].total_s,
        cluster=cluster.profile.text,
        inputs=inputs_of(cluster),
    )


def simulated(
    spec: ProfileSpec, progress: Callable[[str, float], None] = lambda *_: None
) -> Evidence:
    """What virtual time shows, alone. Raises UsageError, HarnessError."""
    places = of_plan(plan_of(spec.run_of(spec.n[0])))
    cluster = find_cluster(spec.cluster, spec.target)
    blames = _play(spec, cluster, places, progress)
    return Evidence(spec, {}, _timed(spec, blames), blames, places)


def _play(
    spec: ProfileSpec,
    cluster: Cluster,
    places: dict[str, str],
    progress: Callable[[str, float], None],
) -> dict[int, Blame]:
    """All sizes in virtual time, and the target, unless the code of the ranks computes for so long,
    or keeps so much, that it cannot be played: then what the two largest sizes say of it. `places`
    is told where phases begin.
    """
    sizes = [*sorted(spec.n), *_between(max(spec.n), spec.target)]
    blames: dict[int, Blame] = {}
    took_s: list[float] = []
    grew: list[float] = []
    free, before = psutil.virtual_memory().available, peak_rss_bytes()
    for n in sizes:
        played = sizes[: len(took_s)]
        is_too_long = _expected(played, took_s, n, SHORTEST_S) > MOST_PLAYING_S
        is_too_large = _expected(played, grew, n, LEAST_GROWN_BYTES) > free * MOST_OF_MEMORY
        if n > max(spec.n) and (is_too_long or is_too_large):
            blames[spec.target] = carried(blames, spec.target)
            break
        progress(f"virtual time: {n} ranks", sum(blames) / sum(sizes))
        began = process_time()
        blames[n] = blame(spec, n, cluster, places if not blames else None)
        took_s.append(process_time() - began)
        grew.append(float(peak_rss_bytes() - before))
    return blames


def _between(largest: int, target: int) -> list[int]:
    """Sizes on the way to the target, and the target: each has four times as many ranks as the one
    before, so that they take a third of its time.
    """
    found = [target]
    while found[0] // STRIDE > largest:
        found.insert(0, found[0] // STRIDE)
    return [n for n in found if n > largest]


def _expected(sizes: Sequence[int], took: Sequence[float], n: int, least: float) -> float:
    """What playing `n` ranks takes, from what the two largest so far did; 0 below `least`."""
    if len(sizes) < 2 or took[-1] < least or took[-2] <= 0:
        return 0.0
    fewer, last = sizes[-2:]
    slope = max(1.0, log(took[-1] / took[-2]) / log(last / fewer))
    return float(took[-1] * (n / last) ** slope)


def carried(blames: dict[int, Blame], n: int) -> Blame:
    """What would be at `n`, if each part went on growing as between the two largest sizes."""
    fewer, last = sorted(blames)[-2:]
    parts = {}
    for part, seconds in blames[last].parts.items():
        before = blames[fewer].parts.get(part, 0.0)
        slope = log(seconds / before) / log(last / fewer) if before else 1.0
        parts[part] = seconds * (n / last) ** slope
    return Blame(sum(parts.values()), parts, [], blames[last].alone)


def _timed(spec: ProfileSpec, blames: dict[int, Blame]) -> list[Timed]:
    """Parts of the critical path, all AllGathers' steps as one."""
    names = names_of(plan_of(spec.run_of(spec.n[0])))
    found: dict[tuple[str, str], Timed] = {}
    for n, each in blames.items():
        for part, seconds in each.parts.items():
            phase = names.get(part.phase, part.phase)
            key = part.entity, phase
            timed = found.setdefault(key, Timed(*key, dict.fromkeys(blames, 0.0), {}))
            timed.seconds[n] += seconds
            if n == spec.target:
                timed.whats[part.what] = timed.whats.get(part.what, 0.0) + seconds
    return list(found.values())


# -- figures


def _simulated_figures(evidence: Evidence, is_played: bool) -> list[Growing]:
    return [
        Growing(
            entity=each.entity,
            phase=each.phase,
            resource=each.resource,
            kind="simulated",
            unit="s",
            sizes=sorted(each.seconds),
            values=[each.seconds[n] for n in sorted(each.seconds)],
            law=law_over_sizes(each),
            **as_range(slopes(each)),
            at_target=each.seconds[evidence.spec.target],
            simulated_at_target=is_played,
        )
        for each in evidence.timed
    ]


def _measured_figures(series: Series, spec: ProfileSpec) -> list[Growing]:
    found = []
    for metric, by_size in series.items():
        grown = growth_of(by_size)
        found.append(
            Growing(
                entity=metric.entity,
                phase=metric.phase,
                resource=metric.resource,
                kind="measured",
                unit=UNITS.get(metric.resource, ""),
                sizes=sorted(by_size),
                values=[median(by_size[n]) for n in sorted(by_size)],
                law=grown.fits[0].law if grown.fits else grown.answer,
                **as_range(grown.exponent),
                **_there(grown, spec.target),
            )
        )
    return found


def _there(grown: Growth, target: int) -> dict[str, Any]:
    """What is said of the target, as figures have it."""
    there = grown.at(target)
    if there is None or there.high > _TOLD * there.low:
        return {}
    return {
        "at_target": there.value,
        "at_target_low": there.low,
        "at_target_high": there.high,
    }


def _function_figures(sampled: Sequence[Sampled], spec: ProfileSpec) -> list[Growing]:
    """Functions' own CPU, by samples."""
    found = []
    for (role, function), own in own_times(sampled).items():
        sizes = sorted(own.seconds)
        values = [own.seconds[n] for n in sizes]
        samples = [[value] for value in values]
        grown = growth(sizes, samples, [own.off[n] for n in sizes])
        found.append(
            Growing(
                entity=role,
                phase="",
                resource="cpu",
                function=function,
                kind="measured",
                unit="s",
                sizes=sizes,
                values=values,
                law=grown.fits[0].law if grown.fits else grown.answer,
                **as_range(grown.exponent),
                **_there(grown, spec.target),
            )
        )
    return found


def _saturated(sizes: Sequence[int]) -> list[RunWarning]:
    if not sizes:
        return []
    text = (
        f"at {', '.join(map(str, sizes))} ranks this machine's own CPU was the limit of the runs: "
        "how long they took says nothing of a cluster, and nothing here rests on it; CPU seconds "
        "and counts do not suffer"
    )
    return [RunWarning(code="saturated", text=text)]


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
            "long, or keeps too much; what it says of them is carried on from the two largest sizes"
        )
        warnings.append(RunWarning(code="target-not-played", text=text))
    return warnings
