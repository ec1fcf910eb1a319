"""Event by event, a bidirectional ring gains and loses where benchmarks/crossover.py and
docs/crossover.md say.
"""

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.crossover import RECORD_BYTES, break_even_us, ratio
from emucoll.sim.cost import Costs
from harness.clusters import find_cluster
from tests.agreement.test_rounds import by_events

COSTS = find_cluster("h100-roce-98k", 1).costs()
FLAT = replace(COSTS, intra_host_latency_s=None)
SIZES_FIRST = "sizes first (NCCL)"


def by_event(n: int, costs: Costs) -> float:
    both, one = (
        by_events(allgather, n, RECORD_BYTES, np.zeros(n), costs)[0].max()
        for allgather in ("ring-bidir", "ring")
    )
    return float(both / one)


@pytest.mark.parametrize(("n", "gains"), [(3, True), (8, True), (9, False), (64, False)])
def test_it_turns_at_the_second_host(n: int, gains: bool) -> None:
    assert (by_event(n, COSTS) < 1) is gains
    assert by_event(n, COSTS) == pytest.approx(ratio(SIZES_FIRST, n, COSTS, 8), rel=1e-9)


@pytest.mark.parametrize(("n", "costs"), [(8, COSTS), (64, FLAT)])
def test_it_turns_at_that_cost_of_a_shared_socket(n: int, costs: Costs) -> None:
    even_us = break_even_us(SIZES_FIRST, n, costs, 8)
    assert even_us is not None
    for contention_us, gains in ((even_us - 0.1, True), (even_us + 0.1, False)):
        shared = replace(costs, contention_s=contention_us * 1e-6)
        assert (by_event(n, shared) < 1) is gains
