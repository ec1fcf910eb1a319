"""What one repeat of a calibration observed, made of known costs: they come out again."""

import msgspec
import pytest

from harness.engine.calibrate import Sizes, specs_of
from harness.engine.costs import COSTS, Observed, Range, costs_of, far_apart, over_repeats
from tests import measured as known

KNOWN = known.COSTS | {"root.check_in_libnccl": known.CHECK_IN, "loop.ring_check": 1e-9}


def observed(sizes: Sizes) -> Observed:
    runs = {name: known.run_of(spec) for name, spec in specs_of(sizes).items()}
    return Observed(known.CONNECT, known.ACCEPT, runs, {"ring_check": 1e-9})


@pytest.mark.parametrize("sizes", [Sizes(), Sizes(formation=64, lockstep=16, large=3)])
def test_known_costs_come_out_again(sizes: Sizes) -> None:
    costs = costs_of(observed(sizes))
    for name, cost in KNOWN.items():
        assert costs[name] == pytest.approx(cost, rel=1e-9), name
    assert list(costs) == [name for name in COSTS if name in costs]
    assert all(name.startswith("loop.") for name in COSTS.keys() - costs.keys())


def test_shares_of_the_cores_are_what_the_costs_explain() -> None:
    sizes = Sizes(formation=64, lockstep=16)
    costs, specs = costs_of(observed(sizes)), specs_of(sizes)
    store_s = 64 * known.REQUESTS * known.REQUEST
    forming_s = known.forming_s(specs["formation"]) + store_s
    assert costs["cores.used_forming"] == pytest.approx(forming_s / 2 / known.FORMING_S)
    gathering_s = known.gathering_s(specs["lockstep"])
    assert costs["cores.used_gathering"] == pytest.approx(gathering_s / 2 / known.GATHERING_S)


def test_nothing_is_less_than_nothing() -> None:
    """Noise may make a whole smaller than its parts."""
    runs = dict(observed(Sizes()).runs)
    for name in ("bytes", "cut-through-bytes"):
        runs[name] = msgspec.structs.replace(runs[name], phases=[])
    costs = costs_of(Observed(1.0, 1.0, runs, {}))
    assert costs["cpu.rank"] == costs["cpu.cut_through_byte"] == costs["cpu.byte"] == 0
    assert costs["cpu.cut_through"] > known.CUT_THROUGH


def test_without_a_real_root_its_cost_is_left_out() -> None:
    seen = observed(Sizes())
    runs = {name: run for name, run in seen.runs.items() if name != "libnccl"}
    costs = costs_of(Observed(seen.connect_s, seen.accept_s, runs, seen.iterations_s))
    assert costs_of(seen).keys() - costs.keys() == {"root.check_in_libnccl"}


def test_of_repeats_the_median_the_smallest_and_the_largest() -> None:
    repeats = [{"cpu.message": each, "cpu.byte": 1.0} for each in (5.0, 1.0, 2.0, 9.0)]
    del repeats[0]["cpu.byte"]
    assert over_repeats(repeats) == {"cpu.message": Range(3.5, 1.0, 9.0)}
    assert over_repeats(repeats[:1]) == {"cpu.message": Range(5.0, 5.0, 5.0)}


def test_repeats_far_apart() -> None:
    ranges = {
        "near": Range(1.0, 0.9, 1.15),
        "far": Range(1.0, 0.8, 1.2),
        "nothing": Range(0.0, 0.0, 0.0),
        "noise": Range(0.0, 0.0, 0.1),
    }
    assert far_apart(ranges) == ["far", "noise"]


def test_no_run_has_more_than_1024_ranks() -> None:
    assert max(spec.nranks for spec in specs_of(Sizes()).values()) == 1024
