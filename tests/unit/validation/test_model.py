"""What the model says of a run follows from its counts and the costs, and from nothing else."""

import pytest

from emucoll.formation import FORMATIONS
from harness.spec import Spec
from harness.validation.model import (
    CPU,
    FORMATION,
    STEP,
    WALL,
    count,
    emulated_allgather,
    emulated_formation,
    latency_bound,
)
from harness.validation.spec import LATENCY_BOUND, ValidateSpec, held_out
from tests import measured as known

COSTS = known.COSTS | {"cores.used_forming": 0.8, "cores.used_gathering": 0.9}


def spec_of(n: int, **more: object) -> Spec:
    return Spec(nranks=n, deadline_s=300.0, **{"allgather": "ring", "steps": 1, **more})  # type: ignore[arg-type]


def test_a_formation_is_counted() -> None:
    counts = count(spec_of(64))
    assert counts[:5] == (128, 64, 64 * known.MESSAGES, 320, 0)
    assert counts.timers_s == 0
    roots = count(spec_of(300, formation="nccl-root"))
    assert roots.check_ins == 300
    assert roots.timers_s == pytest.approx(299 / 7000)
    collecting = count(spec_of(300, formation="nccl-root-2.22"))
    assert collecting.timers_s == pytest.approx(0.299)


def test_a_formation_costs_what_it_does() -> None:
    spec = spec_of(64)
    predicted = emulated_formation(spec, count(spec), COSTS, cores=2)
    expected = known.forming_s(spec) + 320 * known.REQUEST
    assert predicted[CPU] == pytest.approx(expected)
    assert predicted[WALL] == pytest.approx(expected / (2 * 0.8))


def test_timers_can_take_longer_than_the_work() -> None:
    spec = spec_of(300, formation="nccl-root-2.22")
    predicted = emulated_formation(spec, count(spec), COSTS, cores=64)
    assert predicted[WALL] == pytest.approx(0.299)


@pytest.mark.parametrize(
    "allgather", ["ring", "ring-bidir", "ring-bidir-headerless", "ring-pipelined", "bruck"]
)
def test_an_allgather_costs_what_it_sends(allgather: str) -> None:
    spec = spec_of(64, allgather=allgather, steps=16)
    predicted = emulated_allgather(spec, COSTS, cores=2)
    assert predicted[CPU] == pytest.approx(known.gathering_s(spec), rel=0.02)
    assert predicted[WALL] == pytest.approx(predicted[CPU] / (2 * 0.9))


def test_where_messages_are_late_they_decide() -> None:
    late_s = 0.5
    for allgather, exchanges in (("ring", 2), ("ring-bidir", 3), ("ring-bidir-headerless", 1)):
        spec = spec_of(9, allgather=allgather, steps=None, hop_delay_s=late_s)
        step_s = latency_bound(spec, COSTS, gathers=True)[STEP]
        assert step_s == pytest.approx(exchanges * late_s, rel=0.01)
    spec = spec_of(9, formation="nccl-root", hop_delay_s=late_s)
    assert latency_bound(spec, COSTS, gathers=False)[FORMATION] == pytest.approx(
        3 * late_s, rel=0.01
    )


def test_ranks_of_a_worker_share_its_core() -> None:
    """With messages hardly late a step takes as long as all ranks' messages on two cores."""
    spec = spec_of(64, allgather="ring", steps=32, hop_delay_s=1e-9, workers=2)
    step_s = latency_bound(spec, COSTS, gathers=True)[STEP]
    assert step_s == pytest.approx(64 * 2 * known.MESSAGE / 2, rel=0.1)


def test_what_is_run_is_what_was_asked_for() -> None:
    everything = list(held_out(ValidateSpec()))
    assert {case.formation for _, gathers, case in everything if not gathers} == set(FORMATIONS)
    one = list(held_out(ValidateSpec(regime=(LATENCY_BOUND,), formation=("tcpstore",))))
    assert [(regime, gathers) for regime, gathers, _ in one] == [(LATENCY_BOUND, False)] * 3
    assert all(case.hop_delay_s > 0 for _, _, case in one)
