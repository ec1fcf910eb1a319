"""Failures played, against the closed forms."""

import math
import time

import numpy as np
import pytest

from emucoll.training.isolation import Isolation, isolated_effective, split
from emucoll.training.model import Job, best_interval_s, effective
from emucoll.training.montecarlo import (
    LONGEST_PLAYED,
    jobs_effective,
    play,
    play_isolated,
    play_replicas,
)

GRID = [
    Job(mtbf_s=mtbf, write_s=write, detection_s=detection, restart_s=restart, init_s=30)
    for mtbf in (1_082, 11_131, 481_201)
    for write in (0, 12, 300)
    for detection in (0, 60)
    for restart in (60, 600)
]


def draws(seed: int = 1) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_it_is_within_one_percent_of_the_exact_form_over_a_grid() -> None:
    worst = 0.0
    for number, job in enumerate(GRID):
        best = best_interval_s(job.mtbf_s, job.write_s)
        for interval in (best, best / 3 + 60):
            played = play(job, interval, 200_000, draws(number))
            exact = effective(job, interval)
            assert abs(played.effective - exact) < 6 * played.error + 1e-12
            worst = max(worst, abs(played.effective / exact - 1))
    assert 0 < worst < 0.01


@pytest.mark.parametrize("replicas", [2, 4, 12])
@pytest.mark.parametrize("mtbf", [1_082, 11_131])
def test_so_it_is_with_isolation(replicas: int, mtbf: float) -> None:
    job = Job(mtbf_s=mtbf, write_s=12, detection_s=60, restart_s=275, init_s=265)
    isolation = Isolation(replicas=replicas, stall_s=180, confined_share=0.9)
    played = play_isolated(job, isolation, 600, 100_000, draws())
    assert played.failures >= 100_000
    assert played.effective == pytest.approx(isolated_effective(job, isolation, 600), rel=0.01)


def test_replicas_alone_are_played_to_a_thousandth() -> None:
    job = Job(mtbf_s=1_080, restart_s=600)
    isolation = Isolation(replicas=12, stall_s=180)
    played = play_replicas(job, isolation, 200_000, draws())
    assert played.effective == pytest.approx(split(job, isolation).running, rel=1e-3)


def test_a_million_failures_take_less_than_ten_seconds() -> None:
    job = Job(mtbf_s=1_082, write_s=12, detection_s=60, restart_s=275, init_s=265)
    begin = time.monotonic()
    played = play(job, 161, 1_000_000, draws())
    replicas = play_replicas(job, Isolation(replicas=12, stall_s=180), 1_000_000, draws())
    assert time.monotonic() - begin < 10
    assert played.failures == 1_000_000
    assert replicas.failures >= 1_000_000


def test_a_seed_gives_the_same_numbers_again() -> None:
    job, isolation = GRID[5], Isolation(replicas=4, stall_s=60)
    assert play(job, 300, 10_000, draws(7)) == play(job, 300, 10_000, draws(7))
    assert play(job, 300, 10_000, draws(7)) != play(job, 300, 10_000, draws(8))
    again = [play_isolated(job, isolation, 300, 10_000, draws(7)) for _ in range(2)]
    assert again[0] == again[1]


def test_without_failures_nothing_is_drawn() -> None:
    job = Job(mtbf_s=math.inf, write_s=10)
    assert play(job, 90, 1000, draws()).effective == pytest.approx(0.9)
    assert play_replicas(job, Isolation(replicas=2), 1000, draws()).failures == 0
    assert set(jobs_effective(job, 90, 1e6, draws(), jobs=3)) == {0.9}


def test_long_jobs_are_near_the_exact_form_and_short_ones_spread() -> None:
    job = Job(mtbf_s=11_131, write_s=10, detection_s=30, restart_s=600)
    exact = effective(job, 465)
    long = jobs_effective(job, 465, 300 * job.mtbf_s, draws())
    short = jobs_effective(job, 465, 30 * job.mtbf_s, draws())
    assert long.mean() == pytest.approx(exact, rel=2e-3)
    assert short.std() / long.std() == pytest.approx(math.sqrt(10), rel=0.15)


def test_a_job_that_is_too_long_to_play_has_the_spread_of_its_length() -> None:
    job = Job(mtbf_s=1_000, restart_s=300)
    played = jobs_effective(job, 0.0, LONGEST_PLAYED * 1_000.0, draws(), jobs=300)
    longer = jobs_effective(job, 0.0, 16 * LONGEST_PLAYED * 1_000.0, draws(), jobs=300)
    assert longer.mean() == pytest.approx(effective(job, 0.0), rel=1e-3)
    assert played.std() / longer.std() == pytest.approx(4, rel=0.2)


def test_a_job_without_failures_in_its_time_keeps_all_but_its_writes() -> None:
    job = Job(mtbf_s=1e12, write_s=10, restart_s=600)
    # 86,405 s: 864 whole periods of 90 and 10 s, and 5 s more
    (share,) = jobs_effective(job, 90, 86_405.0, draws(), jobs=1)
    assert share == pytest.approx((864 * 90 + 5) / 86_405)


def test_a_rate_that_was_counted_from_few_failures_widens_the_spread() -> None:
    job = Job(mtbf_s=11_131, write_s=10, restart_s=600)
    known = jobs_effective(job, 465, 1e8, draws())
    counted = jobs_effective(job, 465, 1e8, draws(), counted=25)
    assert counted.std() > 3 * known.std()
    assert counted.mean() == pytest.approx(known.mean(), rel=0.02)


@pytest.mark.parametrize("stall", [0.0, 180.0])
def test_isolated_jobs_spread_around_their_closed_form(stall: float) -> None:
    job = Job(mtbf_s=1_082, write_s=12, restart_s=600)
    isolation = Isolation(replicas=12, stall_s=stall, confined_share=0.93)
    shares = jobs_effective(job, 600, 20 * 86_400.0, draws(), isolation=isolation)
    assert shares.mean() == pytest.approx(isolated_effective(job, isolation, 600), rel=3e-3)
    assert shares.std() > 0
