"""Isolation of failures to one replica: the closed form against FT-HSDP's arithmetic, against a job
lived through event by event, and in its limits.
"""

import math
from dataclasses import astuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.training.isolation import (
    LONGEST_INTERVAL_S,
    Isolation,
    isolated_best_interval_s,
    isolated_effective,
    isolated_first_order,
    isolated_parts,
    isolated_young_interval_s,
    split,
)
from emucoll.training.model import Job, best_interval_s, effective, first_order
from tests.unit.training.naive import live

PAPER = Job(mtbf_s=18 * 60, restart_s=600)
TWELVE = Isolation(replicas=12, stall_s=180)


def test_the_paper_goes_from_44_to_80_percent() -> None:
    """Every 18 minutes: 3 of stall, 7 at 11/12, 8 in full."""
    assert first_order(PAPER, 0.0) == pytest.approx(8 / 18, rel=1e-15)
    assert isolated_first_order(PAPER, TWELVE, 0.0) == pytest.approx(173 / 216, rel=1e-15)
    # Failures that strike meanwhile make both figures too low.
    assert round(effective(PAPER, 0.0), 3) == 0.574
    assert round(isolated_effective(PAPER, TWELVE, 0.0), 3) == 0.834


@pytest.mark.parametrize(
    ("replicas", "share", "stall", "mtbf"),
    [(3, 1.0, 180, 1082), (4, 0.9, 60, 1082), (12, 0.93, 180, 1082), (12, 0.87, 180, 11131)],
)
def test_a_job_lived_through_agrees(replicas: int, share: float, stall: float, mtbf: float) -> None:
    job = Job(mtbf_s=mtbf, write_s=12, detection_s=60, restart_s=300, init_s=240)
    isolation = Isolation(replicas=replicas, stall_s=stall, confined_share=share)
    interval = isolated_best_interval_s(job, isolation)
    lived = live(job, isolation, interval, 60_000 * mtbf, seed=3)
    assert isolated_effective(job, isolation, interval) == pytest.approx(lived, rel=0.01)


def test_two_replicas_that_are_often_out_are_rated_too_low() -> None:
    """After both were out, both start anew; the closed form has them as they are in the mean."""
    job = Job(mtbf_s=1082, write_s=12, detection_s=60, restart_s=300, init_s=240)
    isolation = Isolation(replicas=2, stall_s=180)
    interval = isolated_best_interval_s(job, isolation)
    lived = live(job, isolation, interval, 60_000 * 1082, seed=3)
    assert isolated_effective(job, isolation, interval) == pytest.approx(lived, rel=0.1)
    assert isolated_effective(job, isolation, interval) < lived


def test_nothing_confined_is_no_isolation() -> None:
    isolation = Isolation(replicas=12, stall_s=180, confined_share=0.0)
    job = Job(mtbf_s=1082, write_s=12, restart_s=600)
    assert isolated_best_interval_s(job, isolation) == best_interval_s(1082, 12)
    assert isolated_effective(job, isolation, 100) == effective(job, 100)
    assert isolated_first_order(job, isolation, 100) == first_order(job, 100)


def test_a_stall_as_long_as_the_recovery_leaves_nothing_degraded() -> None:
    isolation = Isolation(replicas=12, stall_s=900)
    assert isolation.degraded_s(PAPER) == 0.0
    assert split(PAPER, isolation).running == pytest.approx(1 / (1 + 900 / 1080))


def test_a_replica_may_initialize_faster_than_the_job() -> None:
    job = Job(mtbf_s=1082, init_s=265)
    fast = Isolation(replicas=12, init_s=15)
    assert (fast.out_s(job), TWELVE.out_s(job)) == (15, 265)
    assert isolated_effective(job, fast, 0.0) > isolated_effective(job, Isolation(replicas=12), 0.0)


def test_checkpoints_are_written_once_a_day_at_least() -> None:
    job = Job(mtbf_s=1082, write_s=12, restart_s=600)
    assert isolated_best_interval_s(job, TWELVE) == LONGEST_INTERVAL_S
    assert isolated_young_interval_s(job, TWELVE) == LONGEST_INTERVAL_S


def test_a_job_that_never_fails_loses_writes_alone() -> None:
    job = Job(mtbf_s=math.inf, write_s=10, restart_s=600)
    assert isolated_effective(job, TWELVE, 90) == pytest.approx(0.9)


@given(
    mtbf=st.floats(60, 1e7),
    replicas=st.integers(2, 64),
    stall=st.floats(0, 600),
    share=st.floats(0, 1),
    interval=st.floats(10, 1e5),
)
def test_parts_add_up_and_more_replicas_lose_less(
    mtbf: float, replicas: int, stall: float, share: float, interval: float
) -> None:
    job = Job(mtbf_s=mtbf, write_s=12, detection_s=60, restart_s=275, init_s=265)
    isolation = Isolation(replicas=replicas, stall_s=stall, confined_share=share)
    shares = astuple(isolated_parts(job, isolation, interval))
    assert sum(shares) == pytest.approx(1.0, abs=1e-9)
    assert min(shares) >= -1e-12
    ett = isolated_effective(job, isolation, interval)
    assert ett == pytest.approx(isolated_parts(job, isolation, interval).productive)
    more = Isolation(replicas=replicas + 1, stall_s=stall, confined_share=share)
    assert split(job, more).running >= split(job, isolation).running * (1 - 1e-12)
