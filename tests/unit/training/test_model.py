"""The closed forms, against published values, each other and their own limits."""

import math
from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.training.model import (
    Job,
    best_interval_s,
    daly_period_s,
    effective,
    first_order,
    parts,
    refined_period_s,
    young_interval_s,
    young_period_s,
)
from emucoll.training.rates import mtbf_s, nodes_of

TIMES = st.floats(0, 1e5)
JOBS = st.builds(
    Job,
    mtbf_s=st.floats(10, 1e8),
    write_s=TIMES,
    detection_s=TIMES,
    restart_s=TIMES,
    init_s=TIMES,
)


@pytest.mark.parametrize(
    ("mtbf", "young", "daly", "refined", "printed", "efficiency"),
    [
        (3_849_609, 68_567, 68_573, 67_961, 68_240, 0.982),
        (481_201, 24_630, 24_646, 24_014, 24_231, 0.950),
        (60_150, 9_096, 9_142, 8_449, 8_701, 0.856),
        (15_038, 4_848, 4_940, 4_154, 4_458, 0.712),
        (7_519, 3_604, 3_733, 2_869, 3_218, 0.597),
    ],
)
def test_the_periods_of_aupy_et_al(
    mtbf: float, young: int, daly: int, refined: int, printed: int, efficiency: float
) -> None:
    """Table 2 of 2013: C = R = 600 s, D = 60 s. Its printed optima are up to 0.11 % off ours."""
    job = Job(mtbf_s=mtbf, write_s=600, detection_s=60, restart_s=600)
    assert round(young_period_s(mtbf, 600)) == young
    assert round(daly_period_s(job)) == daly
    assert refined_period_s(job) == pytest.approx(refined, abs=0.5)
    best = best_interval_s(mtbf, 600)
    assert best + 600 == pytest.approx(printed, rel=0.0011)
    assert round(effective(job, best), 3) == efficiency


@pytest.mark.parametrize(
    ("n", "rate", "write_min", "interval_min", "printed"),
    [
        (12_000, 6.5, 5, 38.4, 0.740),
        (12_000, 6.5, 1 / 6, 7.0, 0.921),
        (12_000, 1.0, 5, 98, 0.898),
    ],
)
def test_the_first_order_of_kokolis_et_al(
    n: int, rate: float, write_min: float, interval_min: float, printed: float
) -> None:
    """Version 2, with u0 of 5 min."""
    job = Job(mtbf_s=mtbf_s(nodes_of(n, 8), rate), write_s=write_min * 60, restart_s=300)
    interval = young_interval_s(job.mtbf_s, job.write_s)
    assert interval / 60 == pytest.approx(interval_min, rel=0.007)
    assert round(first_order(job, interval), 3) == printed


def test_llama_3_meets_its_90_percent_with_a_write_of_10_s_and_not_of_5_min() -> None:
    mtbf = mtbf_s(nodes_of(16384, 8), 3.79)
    short = Job(mtbf_s=mtbf, write_s=10, restart_s=600)
    long = Job(mtbf_s=mtbf, write_s=300, restart_s=300)
    assert round(first_order(short, young_interval_s(mtbf, 10)), 3) == 0.906
    assert round(effective(short, best_interval_s(mtbf, 10)), 3) == 0.908
    assert round(first_order(long, young_interval_s(mtbf, 300)), 3) == 0.768
    assert effective(long, best_interval_s(mtbf, 300)) < 0.9


def test_stops_of_10_minutes_18_minutes_apart_leave_8_of_18() -> None:
    job = Job(mtbf_s=18 * 60, restart_s=600)
    assert first_order(job, 0.0) == pytest.approx(8 / 18, rel=1e-15)
    # What strikes within a restart costs no whole restart more: the exact form is higher.
    assert effective(job, 0.0) == pytest.approx(math.exp(-10 / 18), rel=1e-15)


@pytest.mark.parametrize(("lost", "gap"), [(0.1, 0.005), (0.3, 0.047), (0.48, 0.18)])
def test_how_far_the_first_order_is_off(lost: float, gap: float) -> None:
    """Lost: (u0 + interval / 2) / mtbf. It is off by more where that is restart than by rework."""
    restart, rework = Job(mtbf_s=1.0, restart_s=lost), Job(mtbf_s=1.0)
    most = effective(restart, 0.0) / first_order(restart, 0.0) - 1
    least = effective(rework, 2 * lost) / first_order(rework, 2 * lost) - 1
    assert first_order(restart, 0.0) == pytest.approx(first_order(rework, 2 * lost))
    assert least < gap < most
    assert most < 1.35 * gap


@given(job=JOBS, interval=st.floats(1, 1e6))
def test_parts_are_shares_that_add_up_to_one(job: Job, interval: float) -> None:
    shares = astuple(parts(job, interval))
    assert sum(shares) == pytest.approx(1.0, abs=1e-9)
    assert all(-1e-12 <= share <= 1 + 1e-12 for share in shares)
    assert parts(job, interval).productive == effective(job, interval)


@given(job=JOBS, factor=st.floats(0.5, 2.0))
def test_no_interval_is_better_than_the_best(job: Job, factor: float) -> None:
    best = best_interval_s(job.mtbf_s, job.write_s)
    assert effective(job, best) >= effective(job, best * factor) * (1 - 1e-9)


@given(job=JOBS, name=st.sampled_from(["write_s", "detection_s", "restart_s", "init_s"]))
def test_what_takes_longer_never_helps(job: Job, name: str) -> None:
    slower = replace(job, **{name: getattr(job, name) + 60})
    assert effective(slower, 600) <= effective(job, 600)
    often = replace(job, mtbf_s=job.mtbf_s / 2)
    assert effective(often, 600) <= effective(job, 600)


@given(mtbf=st.floats(1e-3, 1e12), write=st.floats(1e-3, 1e6))
def test_the_best_interval_solves_its_equation(mtbf: float, write: float) -> None:
    best = best_interval_s(mtbf, write)
    assert 0 <= best <= mtbf * (1 + 1e-9)
    assert -math.expm1(-(best + write) / mtbf) * mtbf == pytest.approx(best, rel=1e-4, abs=1e-6)


def test_where_failures_are_rare_all_optima_are_youngs() -> None:
    job = Job(mtbf_s=1e10, write_s=1.0, restart_s=60)
    young = young_period_s(job.mtbf_s, 1.0)
    refined = refined_period_s(job)
    assert refined is not None
    for other in (daly_period_s(job), refined, best_interval_s(job.mtbf_s, 1.0) + 1.0):
        assert other == pytest.approx(young, rel=1e-4)


def test_limits() -> None:
    never = Job(mtbf_s=math.inf, write_s=10, restart_s=600)
    assert best_interval_s(math.inf, 10) == math.inf
    assert effective(never, math.inf) == 1.0
    assert effective(never, 90) == pytest.approx(0.9)
    assert first_order(never, 90) == pytest.approx(0.9)
    often = Job(mtbf_s=1e-6, write_s=10, restart_s=600)
    assert effective(often, 100) == 0.0
    assert effective(Job(mtbf_s=100, write_s=10), math.inf) == 0.0
    assert effective(Job(mtbf_s=100, write_s=10), 0.0) == 0.0
    assert effective(Job(mtbf_s=100), 0.0) == 1.0
    assert best_interval_s(100, 0.0) == 0.0
    assert refined_period_s(Job(mtbf_s=100, write_s=1, restart_s=200)) is None
