from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import pytest

from emucoll.errors import UsageError
from harness.preflight.arithmetic import Costs, Demand, fit, refusal
from harness.preflight.machine import Machine
from tests.unit.preflight.builders import (
    GIB,
    TWO_CORES,
    limit,
    nccl_root,
    refused_by,
    tcpstore,
    warned_by,
)


@pytest.mark.parametrize(
    ("demand", "workers", "window", "warnings"),
    [
        (tcpstore(98_304), 16, 934, ["backlog_store"]),
        (nccl_root(98_304), 16, None, ["backlog_root", "conntrack", "time_wait"]),
        (tcpstore(98_304, uses_store="external"), 20, None, []),
        (tcpstore(4096), 2, None, []),
        (nccl_root(4096), 2, None, []),
        (tcpstore(15), 2, None, []),
        (tcpstore(1), 1, None, []),
        (tcpstore(64, record_bytes=1 << 20, cut_through=False), 2, None, []),
        (tcpstore(98_304, cut_through=False, blocks=256), 16, 934, ["backlog_store"]),
        (tcpstore(98_304, workers=15), 15, 274, ["backlog_store"]),
        (tcpstore(98_304, workers=20), 20, 747, ["backlog_store"]),
        (tcpstore(4096, window=500), 2, 500, []),
        (tcpstore(3, workers=7), 3, None, []),
    ],
)
def test_what_fits_the_measured_machine(
    demand: Demand, workers: int, window: int | None, warnings: list[str]
) -> None:
    plan = fit(demand, TWO_CORES)
    assert (plan.workers, plan.window) == (workers, window)
    assert plan.fits
    assert warned_by(plan) == warnings


@pytest.mark.parametrize(
    ("demand", "refusals"),
    [
        (tcpstore(300_000), ["tcp_mem"]),
        (nccl_root(300_000), ["tcp_mem"]),
        (tcpstore(98_304, workers=8), ["descriptors"]),
        (tcpstore(98_304, workers=8000), ["store_descriptors", "memory"]),
        (tcpstore(98_304, window=2000), ["store_descriptors"]),
        (tcpstore(98_304, windowable=False), ["store_descriptors"]),
        (tcpstore(10, window=2), ["start_window"]),
        (tcpstore(10, window=9, windowable=False), ["start_window"]),
        (tcpstore(20_000, ipv6=True), ["ports", "connection_ports"]),
        (tcpstore(2**31), ["ranks", "open_files", "conntrack", "memory", "tcp_mem", "threads"]),
    ],
)
def test_what_does_not_fit_the_measured_machine(demand: Demand, refusals: list[str]) -> None:
    plan = fit(demand, TWO_CORES)
    expected = [name for name in refusals if name != "conntrack"]  # nothing is tracked: a warning
    assert set(expected) <= set(refused_by(plan))
    if demand.nranks < 2**31:
        assert refused_by(plan) == expected


def test_300_000_ranks_would_fit_with_more_tcp_memory() -> None:
    plan = fit(tcpstore(300_000), replace(TWO_CORES, tcp_mem_pages=(600_179, 800_239, 1_200_358)))
    assert plan.fits
    assert plan.workers == 48


@pytest.mark.parametrize("make", [tcpstore, nccl_root])
def test_the_largest_that_fits_is_the_arithmetic_of_tcp_memory(
    make: Callable[[int], Demand],
) -> None:
    assert fit(make(300_000), TWO_CORES).largest_that_fits == (575_802 - 179) // 2
    assert fit(make(1000), TWO_CORES).largest_that_fits == (575_802 - 179) // 2


@pytest.mark.parametrize(
    ("changes", "workers", "window"),
    [
        ({"nofile_hard": 1024}, 16, None),
        ({"cores_allowed": 1}, 1, None),
        ({"cgroup_cores": 0.5}, 1, None),
        ({"cgroup_cores": 1.5}, 2, None),
        ({"cores_online": 5, "cores_allowed": None}, 5, None),
        ({"cores_online": 128, "cores_allowed": 128}, 128, None),
        # The half of 100 ports, for 3,840 listeners, and rounded up to a multiple of the cores.
        ({"port_low": 40_000, "port_high": 40_099}, 78, None),
        # 77 are not a multiple of 2 cores, but all that there is memory for.
        (
            {
                "port_low": 40_000,
                "port_high": 40_099,
                "memory_available_bytes": 3_250_000_000,
            },
            77,
            None,
        ),
    ],
)
def test_workers_are_the_most_demanded(
    changes: dict[str, Any], workers: int, window: int | None
) -> None:
    plan = fit(tcpstore(3840, uses_store="external"), replace(TWO_CORES, **changes))
    assert (plan.workers, plan.window) == (workers, window)
    assert plan.fits


def test_a_store_with_few_descriptors_makes_a_window() -> None:
    plan = fit(tcpstore(3840), replace(TWO_CORES, nofile_hard=1024))
    # 3 x 3,840 ranks and 960 in formation at once, by 960 descriptors a worker, are 13 workers.
    # Windows fill three quarters of the store.
    assert (plan.workers, plan.window) == (14, 51)
    assert plan.fits
    assert limit(plan, "store_descriptors").need == 14 * 51 + 64


def test_cores_do_not_demand_what_memory_cannot_give() -> None:
    many = replace(TWO_CORES, cores_online=128, cores_allowed=128, memory_available_bytes=GIB)
    plan = fit(tcpstore(4096), many)
    assert plan.fits
    assert 2 < plan.workers < 32


def test_a_machine_that_tells_nothing_refuses_nothing_but_what_the_wire_cannot_say() -> None:
    plan = fit(tcpstore(98_304), Machine())
    assert plan.fits
    assert (plan.workers, plan.window) == (1, None)
    assert plan.warnings == ()
    assert plan.largest_that_fits == 2**31 - 1
    assert refused_by(fit(tcpstore(2**31), Machine())) == ["ranks"]


@pytest.mark.parametrize("name", [field.name for field in fields(Machine)])
def test_any_one_number_may_be_unknown(name: str) -> None:
    plan = fit(tcpstore(98_304), replace(TWO_CORES, **{name: None}))
    assert plan.fits


@pytest.mark.parametrize("name", ["nranks", "workers"])
def test_counts_below_one_are_usage_errors(name: str) -> None:
    with pytest.raises(UsageError, match="expected at least 1"):
        fit(tcpstore(**{"nranks": 5, name: 0}), TWO_CORES)


def test_ranks_are_split_contiguously_with_the_first_workers_one_up() -> None:
    assert fit(tcpstore(15), TWO_CORES).ranks_per_worker == (8, 7)
    assert fit(tcpstore(257, workers=4), TWO_CORES).ranks_per_worker == (65, 64, 64, 64)
    assert fit(tcpstore(98_304), TWO_CORES).ranks_per_worker == (6144,) * 16


def test_a_refusal_says_why_what_to_do_and_what_would_fit() -> None:
    text = refusal(fit(tcpstore(98_304, workers=8), TWO_CORES))
    assert text == (
        "98,304 ranks don't fit this machine.\n"
        "  descriptors: 12,288 ranks × 3 + 3 in formation × 1 more + 64 of the worker's own"
        " = 36,931; have 20,000 (hard limit of open files of a worker)\n"
        "    remedy: --workers 15, or ulimit -Hn 36931 as root"
        " (systemd: LimitNOFILE=36931, docker: --ulimit nofile=36931)\n"
        "With the same flags -np 53152 is the most that fits."
    )
    assert fit(tcpstore(53_152, workers=8), TWO_CORES).fits
    none = fit(tcpstore(1), replace(TWO_CORES, nofile_hard=60))
    assert refusal(none).endswith("With these flags not even one rank fits.")


def test_estimates_of_the_demo_are_of_the_right_magnitude() -> None:
    estimates = fit(tcpstore(98_304), TWO_CORES).estimates
    assert estimates.transfers == 9_663_578_112
    assert estimates.moved_bytes == 28 * 9_663_578_112
    assert estimates.low_s < 24.9 + 38.8 < estimates.high_s
    assert estimates.worker_memory_bytes < 98_304 * 16 * 1024
    assert estimates.memory_bytes < 4 * GIB
    assert estimates.memory_bytes == (
        estimates.worker_memory_bytes
        + estimates.server_memory_bytes
        + estimates.kernel_memory_bytes
    )


def test_lockstep_pays_for_messages_and_a_stagger_for_its_last_rank() -> None:
    plan = fit(nccl_root(98_304, cut_through=False, blocks=256, stagger_s=14.0), TWO_CORES)
    assert plan.estimates.transfers == 98_304 * 256
    assert plan.estimates.allgather_s == pytest.approx(2 * 98_304 * 256 / 160e3, rel=0.01)
    forming_s = 98_304 * Costs().cpu_per_formed_rank_s / 2
    assert plan.estimates.formation_s == pytest.approx(14.0 + forming_s)
    assert fit(tcpstore(1), TWO_CORES).estimates.transfers == 0


def test_a_shortened_allgather_needs_a_shorter_table() -> None:
    whole = fit(tcpstore(98_304, record_bytes=2320), TWO_CORES).estimates
    short = fit(tcpstore(98_304, record_bytes=2320, blocks=256), TWO_CORES).estimates
    assert whole.worker_memory_bytes - short.worker_memory_bytes == (
        16 * 2320 * (98_304 - 6144 - 256)
    )


def test_costs_can_be_calibrated() -> None:
    plan = fit(tcpstore(98_304), TWO_CORES, Costs(worker_bytes_per_rank=1 << 20))
    assert refused_by(plan) == ["memory"]
