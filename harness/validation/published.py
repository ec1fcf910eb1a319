"""Published totals beside what the model says, with one knob a system, fitted at the smallest size.

A component's cost is the cluster file's or `init-times.toml`'s, fixed before anything is compared.
What is left over at the smallest size goes to the knob: for NCCL a time that does not grow with the
ranks (GPU work, which no plan has), for NCCLX the latency between hosts, since its AllGathers alone
take all of the published time. For the interval every other value is drawn from its range, and the
knob fitted anew.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from harness.clusters import Cluster, find_cluster, in_order
from harness.profile import Value
from harness.projection.engine import (
    DRAWN_AT,
    drawn_clusters,
    parts,
    setting_of,
    spec_of,
    with_values,
)
from harness.projection.published import SIZES, SYSTEMS, TOPOLOGY, published_values
from harness.projection.simulate import Simulators, Task, Times
from harness.projection.spec import ProjectSpec
from harness.results.validation import PublishedRow

CLUSTER = "h100-roce-98k"
FIXED = "fixed"
KNOBS = {"nccl": FIXED, "ncclx": "latency.between_hosts"}
DRAWS = 60
MOST_FIXED_S = 60.0
LOW, HIGH = 0.05, 0.95


@dataclass(frozen=True)
class Line:
    """A total over the ranks, as a straight line over the knob."""

    at_low: Mapping[int, float]
    at_high: Mapping[int, float]
    """By size, seconds at both ends of the knob's range."""
    low: float
    high: float

    def fit(self, n: int, total_s: float) -> float:
        """Where the knob has to be for that total at `n`, within its range."""
        slope = (self.at_high[n] - self.at_low[n]) / (self.high - self.low)
        wanted = self.low + (total_s - self.at_low[n]) / slope
        return min(max(wanted, self.low), self.high)

    def total_s(self, n: int, knob: float) -> float:
        """At that place of the knob."""
        share = (knob - self.low) / (self.high - self.low)
        return self.at_low[n] + share * (self.at_high[n] - self.at_low[n])


def compare_published(progress: Callable[[str, float], None]) -> list[PublishedRow]:
    """Every system at every size."""
    values, rows = published_values(), []
    with Simulators() as simulators:
        for number, system in enumerate(SYSTEMS):

            def tell(what: str, share: float, done: int = number) -> None:
                progress(what, (done + share) / len(SYSTEMS))

            centre, drawn = _lines(system, values, simulators, tell)
            rows += rows_of(system, values, centre, drawn)
    return rows


def contradictions() -> list[str]:
    """Where a published part alone takes more than a published total: the loop over pairs."""
    pair_s = find_cluster(CLUSTER, 1).profile.values["loops.same_process"].high
    values, found = published_values(), []
    for system in SYSTEMS:
        for n in SIZES:
            loop_s, total_s = pair_s * n * (n - 1) / 2, values[f"{system}.{n}"].value
            if loop_s > total_s:
                found.append(
                    f"at its published cost ({pair_s * 1e9:.3g} ns a pair) one loop over pairs "
                    f"takes {loop_s:.3g} s at {n} ranks, more than all of {system} "
                    f"({total_s:g} s), whose public tree has two"
                )
    return found


def rows_of(
    system: str, values: Mapping[str, Value], centre: Line, drawn: Sequence[Line]
) -> list[PublishedRow]:
    """The knob fitted at the smallest size, for the centre and for each draw."""
    fitted_at = SIZES[0]
    wanted_s = values[f"{system}.{fitted_at}"].value
    knob = centre.fit(fitted_at, wanted_s)
    knobs = [line.fit(fitted_at, wanted_s) for line in drawn]
    rows = []
    for n in SIZES:
        published_s = values[f"{system}.{n}"].value
        projected_s = centre.total_s(n, knob)
        totals = [line.total_s(n, each) for line, each in zip(drawn, knobs, strict=True)]
        low_s, high_s = (float(each) for each in np.quantile(totals, (LOW, HIGH)))
        rows.append(
            PublishedRow(
                system=system,
                plan=SYSTEMS[system],
                n=n,
                published_s=published_s,
                projected_s=projected_s,
                low_s=low_s,
                high_s=high_s,
                residual=projected_s / published_s - 1,
                inside=low_s <= published_s <= high_s,
                knob=KNOBS[system],
                knob_value_s=knob,
                fitted=n == fitted_at,
            )
        )
    return rows


def _lines(
    system: str,
    values: Mapping[str, Value],
    simulators: Simulators,
    progress: Callable[[str, float], None],
) -> tuple[Line, list[Line]]:
    """The centre's, and each draw's: simulated at DRAWN_AT and carried to the sizes as `emucoll
    project` does.
    """
    plan, knob = SYSTEMS[system], KNOBS[system]
    spec = ProjectSpec(plan=(plan,), n=SIZES, cluster=CLUSTER)
    cluster = find_cluster(CLUSTER, max(SIZES))
    largest_first = sorted(SIZES, reverse=True)
    times = simulators.all(
        [_task(plan, n, spec, cluster) for n in largest_first],
        lambda count: progress(f"{plan}, its sizes", count / len(SIZES) / 2),
    )
    at_size = dict(zip(largest_first, times, strict=True))
    clusters = [cluster, *drawn_clusters(cluster, DRAWS, spec.seed)]
    ends = [end for each in clusters for end in _ends(cluster, each, knob)]
    times = simulators.all(
        [_task(plan, DRAWN_AT, spec, each) for each in (cluster, *ends)],
        lambda count: progress(f"{plan}, its draws", 0.5 + count / (len(ends) + 1) / 2),
    )
    base, per_cluster = times[0], len(ends) // len(clusters)
    draws = random.Random(f"published {spec.seed}")
    lines = []
    for index in range(len(clusters)):
        topology = values[f"{system}.{TOPOLOGY}"]
        pair_s = topology.value
        if index and topology.low > 0:
            pair_s = topology.low * (topology.high / topology.low) ** draws.random()
        of_ends = times[1 + index * per_cluster : 1 + (index + 1) * per_cluster]
        totals = [
            {n: carried(at_size[n], base, end) + pair_s * n * n for n in SIZES} for end in of_ends
        ]
        lines.append(_line(cluster, knob, totals))
    return lines[0], lines[1:]


def carried(large: Times, base: Times, changed: Times) -> float:
    """The total of `large`, if each of its parts changed as from `base` to `changed`."""
    of_base, of_changed, here = parts(base), parts(changed), parts(large)
    whole = sum(
        seconds * (of_changed.get(name, 0.0) / of_base[name] if of_base.get(name) else 1.0)
        for name, seconds in here.items()
    )
    return whole * large.total_s / sum(here.values())


def _line(cluster: Cluster, knob: str, totals: list[dict[int, float]]) -> Line:
    if knob == FIXED:
        more = {n: total_s + MOST_FIXED_S for n, total_s in totals[0].items()}
        return Line(totals[0], more, 0.0, MOST_FIXED_S)
    value = cluster.profile.values[knob]
    return Line(totals[0], totals[1], value.low, value.high)


def _ends(cluster: Cluster, drawn: Cluster, knob: str) -> tuple[Cluster, ...]:
    """`drawn`, with the knob at both ends of the cluster's range for it."""
    if knob == FIXED:
        return (drawn,)
    value = cluster.profile.values[knob]
    values = drawn.profile.values
    return tuple(
        with_values(drawn, {**values, knob: value._replace(value=end)})
        for end in (value.low, value.high)
    )


def _task(plan: str, n: int, spec: ProjectSpec, cluster: Cluster) -> Task:
    hosts = in_order(n, cluster.gpus_per_host)
    return Task(spec_of(plan, n, spec, cluster), setting_of(cluster, hosts))
