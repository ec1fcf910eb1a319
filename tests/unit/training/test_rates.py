"""Failure rates and write times, against what was published."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.training.rates import (
    DAY_S,
    mtbf_s,
    nodes_of,
    per_1000_node_days,
    per_1000_node_days_of,
)
from emucoll.training.storage import shortest_period_s, write_s

HOUR_S = 3600.0


def test_llama_3s_failures() -> None:
    """54 days of 2,048 nodes: 419 unexpected interruptions, 466 with the planned ones."""
    nodes = nodes_of(16384, 8)
    rate = per_1000_node_days(419, nodes, 54 * DAY_S)
    assert round(rate, 2) == 3.79
    assert round(mtbf_s(nodes, rate) / HOUR_S, 2) == 3.09
    all_of_them = per_1000_node_days(466, nodes, 54 * DAY_S)
    assert round(mtbf_s(nodes, all_of_them) / HOUR_S, 2) == 2.78


@pytest.mark.parametrize(
    ("n", "rate", "hours", "digits"),
    [
        (16384, 6.50, 1.80, 2),  # RSC-1, arXiv 2410.21680
        (131072, 6.50, 0.225, 3),
        (32768, 2.3, 2.55, 2),  # FT-HSDP, arXiv 2602.00277
        (1024, 6.50, 28.8, 1),  # 7.9 h were measured: the formula does not give it
    ],
)
def test_the_time_between_failures(n: int, rate: float, hours: float, digits: int) -> None:
    assert round(mtbf_s(nodes_of(n, 8), rate) / HOUR_S, digits) == hours


def test_the_18_minutes_at_98304_gpus() -> None:
    assert round(mtbf_s(nodes_of(98304, 8), 6.50) / 60, 2) == 18.03
    assert round(mtbf_s(nodes_of(98304, 8), 2.3) / 60) == 51


def test_a_node_that_holds_few_gpus_is_a_node() -> None:
    assert [nodes_of(n, 8) for n in (1, 8, 9, 16384)] == [1, 1, 2, 2048]


def test_without_failures_there_is_no_end_of_time_between_them() -> None:
    assert mtbf_s(2048, 0) == math.inf


@given(
    rate=st.floats(1e-6, 1e6),
    nodes=st.integers(1, 10**6),
)
def test_rate_and_time_between_are_each_others_inverse(rate: float, nodes: int) -> None:
    assert per_1000_node_days_of(mtbf_s(nodes, rate), nodes) == pytest.approx(rate, rel=1e-12)


def test_a_checkpoint_of_llama_3() -> None:
    """405e9 parameters of 12 bytes to 2 TB/s; at most 4 GB a GPU."""
    size = 405e9 * 12
    assert round(size / 1e12, 2) == 4.86
    assert round(size / 16384 / 1e6) == 297
    assert round(write_s(size, 2e12), 1) == 2.4
    assert round(write_s(16384 * 4e9, 2e12), 1) == 32.8


@given(size=st.floats(1, 1e15), burst=st.floats(0, 1e15))
def test_a_burst_is_written_at_the_peak_and_no_write_is_faster(size: float, burst: float) -> None:
    write = write_s(size, 2e12, 7e12, burst)
    assert size / 7e12 * (1 - 1e-9) <= write <= size / 2e12 * (1 + 1e-9)
    more = write_s(size, 2e12, 7e12, burst + size)
    assert more == pytest.approx(size / 7e12)


def test_a_burst_must_drain_before_the_next() -> None:
    assert write_s(4e12, 2e12, 8e12, 4e12) == 0.5
    assert shortest_period_s(4e12, 2e12) == 2.0
