"""Draws from the ranges of a cluster's values."""

import numpy as np
import pytest

from harness.clusters import find_cluster
from harness.profile import Value
from harness.projection.engine import drawn_clusters, quantile

DRAWS = 50


def ranged(value: float, low: float, high: float) -> Value:
    return Value(value, low, high, source="a test", why="a test")


@pytest.mark.parametrize(
    ("value", "where", "found"),
    [
        (ranged(4, 1, 64), 0.0, 1),
        (ranged(4, 1, 64), 0.25, 2),
        (ranged(4, 1, 64), 0.5, 4),
        (ranged(4, 1, 64), 0.75, 16),
        (ranged(4, 1, 64), 1.0, 64),
        (ranged(1, 1, 9), 0.3, 1),
        (ranged(1, 1, 9), 0.75, 3),
        (ranged(9, 1, 9), 0.25, 3),
        (ranged(9, 1, 9), 0.9, 9),
        (ranged(2, 0, 4), 0.25, 1),
        (ranged(0, 0, 4), 0.25, 0),
        (ranged(0, 0, 4), 0.75, 2),
    ],
)
def test_half_of_the_distribution_is_on_either_side(
    value: Value, where: float, found: float
) -> None:
    assert quantile(value, where).value == pytest.approx(found)


def test_draws_stay_in_range_and_reach_every_part_of_it() -> None:
    cluster = find_cluster("h100-roce-98k", 98304)
    drawn = drawn_clusters(cluster, DRAWS, 1)
    assert len(drawn) == DRAWS
    moved = 0
    for key, value in cluster.profile.values.items():
        found = sorted(each.profile.values[key].value for each in drawn)
        assert value.low <= found[0] <= found[-1] <= value.high
        if found[0] == found[-1]:
            continue
        moved += 1
        edges = [quantile(value, each / DRAWS).value for each in range(DRAWS + 1)]
        assert np.all(np.array(edges[:-1]) <= found)
        assert np.all(found <= np.array(edges[1:]))
    assert moved > 5


def test_values_are_drawn_each_by_itself_and_repeat_by_seed() -> None:
    cluster = find_cluster("h100-roce-98k", 98304)

    def columns(seed: int) -> dict[str, list[float]]:
        drawn = drawn_clusters(cluster, DRAWS, seed)
        return {
            key: [each.profile.values[key].value for each in drawn]
            for key in ("latency.between_hosts", "cpu.write")
        }

    assert columns(1) == columns(1) != columns(2)
    latency, send = columns(1).values()
    assert abs(np.corrcoef(latency, send)[0, 1]) < 0.5


def test_no_draws_are_none() -> None:
    assert drawn_clusters(find_cluster("h100-roce-98k", 8), 0, 1) == []
