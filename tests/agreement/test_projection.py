"""A projection holds what it says: its parts add up, its interval is what draws at the full size
give, it repeats by its seed.
"""

import numpy as np
import pytest

from harness.clusters import find_cluster, in_order
from harness.projection import engine
from harness.projection.engine import (
    drawn_clusters,
    factors_of,
    parts,
    project,
    setting_of,
    spec_of,
    total_spread,
)
from harness.projection.simulate import Simulators, Task, simulate
from harness.projection.spec import ProjectSpec

CLUSTER = "h100-roce-98k"


def told(_: int) -> None:
    """Nobody looks."""


@pytest.mark.parametrize("plan", ["nccl-2.22.3", "ncclx"])
def test_draws_at_few_ranks_say_what_draws_at_many_do(plan: str) -> None:
    few, many = 256, 1024
    spec = ProjectSpec(plan=(plan,), n=(many,), cluster=CLUSTER)
    cluster = find_cluster(CLUSTER, many)
    clusters = [cluster, *drawn_clusters(cluster, 4, 1)]

    def times_at(n: int) -> list:
        hosts = in_order(n, 8)
        tasks = [Task(spec_of(plan, n, spec, cluster), setting_of(c, hosts)) for c in clusters]
        return Simulators(1).all(tasks, told)

    small, large = times_at(few), times_at(many)
    carried = total_spread(large[0], factors_of(small[0], small[1:]))
    direct = [times.total_s for times in large[1:]]
    np.testing.assert_allclose(carried, direct, rtol=0.04)
    assert np.ptp(direct) > 0.2 * large[0].total_s or plan == "nccl-2.22.3"


def test_parts_add_up_to_the_mean_of_the_totals() -> None:
    spec = ProjectSpec(plan=("ncclx",), n=(64,), cluster=CLUSTER)
    cluster = find_cluster(CLUSTER, 64)
    times = simulate(
        Task(spec_of("ncclx", 64, spec, cluster), setting_of(cluster, in_order(64, 8)))
    )
    outermost = sum(s for name, s in times.phases.items() if times.within[name] is None)
    assert sum(parts(times).values()) == pytest.approx(outermost)
    assert outermost == pytest.approx(times.total_s, rel=0.05)


def test_a_seed_repeats_and_low_is_below_high(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LAW_SIZES", (48, 80, 96))
    spec = ProjectSpec(plan=("ncclx", "nccl-2.22.3"), n=(64, 128), cluster=CLUSTER, draws=2)
    first, again = project(spec), project(spec)
    assert first.plans == again.plans
    assert first.speed_ups == again.speed_ups
    for plan in first.plans:
        assert plan.low_s is not None and plan.high_s is not None
        assert plan.low_s < plan.total_s < plan.high_s
        assert plan.held_out_error is not None
    totals = {(plan.name, plan.n): plan.total_s for plan in first.plans}
    assert [each.n for each in first.speed_ups] == [64, 128]
    for each in first.speed_ups:
        assert each.ratio == totals[each.base, each.n] / totals[each.plan, each.n] >= 1
        assert each.low is not None and each.high is not None
        assert each.low < each.high
    laws = {phase.name: phase.law for phase in first.plans[1].phases}
    assert laws["allgathers.peer_info"] == "n"
    assert laws["rest.same_process"] == "n²"


def test_shuffled_ranks_are_slower_than_ranks_by_host() -> None:
    by_order = {}
    for order in ("host", "random"):
        spec = ProjectSpec(
            plan=("nccl-2.27.7",), n=(256,), cluster=CLUSTER, rank_order=order, draws=0
        )
        (plan,) = project(spec).plans
        by_order[order] = next(p.seconds for p in plan.phases if p.name == "allgathers.peer_info")
    inside, outside = 15e-6 + 10e-6, 50e-6 + 10e-6
    expected = outside / ((7 * inside + outside) / 8)
    assert by_order["random"] / by_order["host"] == pytest.approx(expected, rel=0.05)
