"""Where many rounds lead is what playing them gives, or is not known."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from emucoll.collectives import ALLGATHERS
from emucoll.sim import rounds
from emucoll.sim.cost import Costs
from emucoll.sim.rounds import Noise, Times, play, wires
from emucoll.sim.steady import Band, Hop, after, band

US = 1e-6
COSTS = Costs(
    latency_s=50 * US,
    intra_host_latency_s=15 * US,
    send_s=5 * US,
    recv_s=5 * US,
    byte_s=0.0003 * US,
)
UNIFORM = Costs(latency_s=50 * US, send_s=5 * US, recv_s=4 * US)


def played(times: Times, each: Band) -> Times:
    """One round, the long way."""
    n, reach = len(times), each.reach
    return np.array(
        [
            max(times[(r - k) % n] + each.weights[r, reach + k] for k in range(-reach, reach + 1))
            for r in range(n)
        ]
    )


@pytest.mark.parametrize("seed", range(30))
def test_a_jump_is_what_playing_gives(seed: int) -> None:
    """Weights from few values, so that many cycles take equally long."""
    numbers = np.random.default_rng(seed)
    n, reach = int(numbers.integers(5, 40)), int(numbers.integers(1, 3))
    weights = numbers.integers(1, 6, (n, 2 * reach + 1)) / 8
    weights[numbers.random(weights.shape) < 0.3] = -np.inf
    weights[:, reach] = numbers.integers(4, 7, n) / 8
    each, times = Band(reach, weights), numbers.integers(0, 3, n) / 4
    known = 0
    for step in range(1, 60):
        times = played(times, each)
        found = after(each, 50, times, 1e-12)
        if found is None:
            continue
        known += 1
        count, there = found
        assert count == 50
        later = times
        for _ in range(count):
            later = played(later, each)
        np.testing.assert_allclose(there, later, rtol=0, atol=1e-9, err_msg=str(step))
    assert known == 0 or known > 10  # once known it stays so


def test_some_of_those_are_known() -> None:
    n, reach = 12, 1
    weights = np.full((n, 3), 0.5)
    weights[3, 1] = 1.0  # rank 3 with itself
    times = np.arange(n, dtype=float)
    assert after(Band(reach, weights), 3, times, 1e-12) is None  # it has not come everywhere
    for _ in range(2 * n):
        times = played(times, Band(reach, weights))
    found = after(Band(reach, weights), 100, times, 1e-12)
    assert found is not None
    np.testing.assert_allclose(found[1], times + 100.0)


def test_two_ranks_in_turns_set_the_pace() -> None:
    n = 9
    weights = np.full((n, 3), 0.1)
    weights[5, 2] = weights[4, 0] = 1.0  # from 4 to 5, and from 5 to 4
    times = np.zeros(n)
    for _ in range(40):
        times = played(times, Band(1, weights))
    found = after(Band(1, weights), 101, times, 1e-12)
    assert found is not None
    assert found[0] == 100
    np.testing.assert_allclose(found[1], times + 100.0)


def test_a_cycle_of_three_is_not_known() -> None:
    n = 9
    weights = np.full((n, 5), -np.inf)
    weights[:, 2] = 0.1
    weights[5, 3] = weights[6, 3] = weights[4, 0] = 1.0  # 4, 5, 6 and back
    assert after(Band(2, weights), 100, np.zeros(n), 1e-12) is None


def test_a_busy_wire_is_not_known() -> None:
    n, latency_s = 4, np.ones(4)
    alone = np.full(n, 1.0)
    assert band([[Hop(1, latency_s, 2.0)]], alone, alone) is not None
    assert band([[Hop(1, latency_s, 2.1)]], alone, alone) is None


@pytest.mark.parametrize("costs", [COSTS, UNIFORM])
@pytest.mark.parametrize("slow", [{}, {17: 3.0}])
@pytest.mark.parametrize("order", ["host", "random"])
@pytest.mark.parametrize("skew_s", [0.0, 2e-3, 0.3])
def test_a_bidirectional_ring_is_hardly_played(
    monkeypatch: pytest.MonkeyPatch, costs: Costs, slow: dict[int, float], order: str, skew_s: float
) -> None:
    n, schedule = 2050, ALLGATHERS["ring-bidir"]
    numbers = np.random.default_rng(7)
    hosts = np.arange(n) // 8
    if order == "random":
        numbers.shuffle(hosts)
    starts = numbers.uniform(0.0, skew_s, n)
    counts: Counter[str] = Counter()
    original = rounds._Shape._play

    def counted(self: Any, cpu: Any, wire: Any, costs: Any, wiring: Any, pool: Any, places: Any,
                slow: Any) -> None:  # fmt: skip
        counts["rounds"] += len(places)
        original(self, cpu, wire, costs, wiring, pool, places, slow)

    monkeypatch.setattr(rounds._Shape, "_play", counted)
    wiring = wires(hosts, costs)
    whole = schedule.rounds(n)

    def finish(noise: Noise | None) -> Times:
        return play(schedule, whole, 120, starts, costs, wiring, noise, slow).finish

    fast = finish(None)
    hardly = counts["rounds"]
    every = finish(Noise(np.zeros(2 * n), lambda _, count: np.zeros(count, dtype=np.int64)))
    np.testing.assert_allclose(fast, every, rtol=1e-9)
    assert counts["rounds"] - hardly == whole
    word_goes_round = slow or (order, costs, skew_s) == ("random", COSTS, 0.3)
    if not word_goes_round:  # from the one rank that sets the pace, or of the last that came
        assert hardly < whole / 2
