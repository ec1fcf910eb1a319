from dataclasses import replace
from typing import Any

import pytest

from harness.preflight.arithmetic import Demand, fit
from harness.preflight.limits import size_text
from harness.preflight.machine import Machine
from tests.unit.preflight.builders import (
    GIB,
    TWO_CORES,
    limit,
    nccl_multiroot,
    nccl_root,
    refused_by,
    tcpstore,
)


@pytest.mark.parametrize(
    ("name", "demand", "changes", "have", "need", "severity", "remedy"),
    [
        ("descriptors", tcpstore(1), {"nofile_hard": 67}, 67, 68, "refuse", "ulimit -Hn 68"),
        ("descriptors_soft", tcpstore(4000), {"nofile_soft": 1024}, 1024, 8064, "info", "none"),
        (
            "open_files",
            tcpstore(1000),
            {"files_max": 4000, "files_open": 100},
            3900,
            5 * 1000 + 3 * 64,
            "refuse",
            "sysctl -w fs.file-max=5292",
        ),
        (
            "backlog_store",
            tcpstore(5000),
            {},
            4096,
            5000,
            "warn",
            "sysctl -w net.core.somaxconn=5000",
        ),
        (
            "backlog_root",
            nccl_root(98_304),
            {},
            4096,
            98_304,
            "warn",
            "sysctl -w net.core.somaxconn=98304",
        ),
        (
            "backlog_root",
            nccl_multiroot(98_304),
            {"somaxconn": 100},
            100,
            129,  # those of one root, and the first of the next
            "warn",
            "sysctl -w net.core.somaxconn=129",
        ),
        (
            "backlog_root",
            nccl_multiroot(1000, nroots=3),
            {"somaxconn": 100},
            100,
            335,
            "warn",
            "sysctl -w net.core.somaxconn=335",
        ),
        (
            "root_descriptors",
            nccl_multiroot(98_304),
            {"nofile_hard": 1599},
            1599,
            768 * 2 + 64,
            "refuse",
            "fewer --roots, or ulimit -Hn 1600",
        ),
        (
            "root_ports",
            nccl_multiroot(20_000, nroots=15_000),
            {},
            14_116,
            15_000,
            "refuse",
            "fewer --roots, or sysctl -w net.ipv4.ip_local_port_range",
        ),
        (
            "threads",
            nccl_multiroot(98_304, threads_per_root=1, workers=16),
            {"pid_max": 900, "threads_used": 100},
            800,
            18 * 4 + 768,
            "refuse",
            "sysctl -w kernel.pid_max=940",
        ),
        (
            "conntrack",
            nccl_multiroot(98_304),
            {},
            262_144,
            294_912 + 768,
            "warn",
            "sysctl -w net.netfilter.nf_conntrack_max=295680",
        ),
        (
            "conntrack",
            nccl_root(98_304),
            {"conntrack_count": 44},
            262_100,
            294_912,
            "refuse",
            "sysctl -w net.netfilter.nf_conntrack_max=294956",
        ),
        (
            "conntrack",
            nccl_root(98_304),
            {},
            262_144,
            294_912,
            "warn",
            "sysctl -w net.netfilter.nf_conntrack_max=294912",
        ),
        (
            "time_wait",
            tcpstore(4096),
            {"tcp_max_tw_buckets": 4000},
            4000,
            4096,
            "warn",
            "sysctl -w net.ipv4.tcp_max_tw_buckets=4096",
        ),
        (
            "tcp_mem",
            tcpstore(4096),
            {"tcp_mem_pages": (1000, 2000, 8000)},
            7821,
            8192,
            "refuse",
            "sysctl -w net.ipv4.tcp_mem='8371 11162 16742'",
        ),
        (
            "tcp_mem_pressure",
            tcpstore(4096),
            {"tcp_mem_pages": (1000, 8000, 16_000)},
            7821,
            8192,
            "warn",
            "sysctl -w net.ipv4.tcp_mem='8371 11162 16742'",
        ),
        ("cpu_affinity", tcpstore(5), {"cores_online": 64}, 2, 64, "warn", "taskset -c 0-63"),
        ("cpu_quota", tcpstore(5), {"cgroup_cores": 0.5}, 0.5, 2, "warn", "no quota"),
        (
            "cgroup_pids",
            tcpstore(5),
            {"cgroup_pids_limit": 17, "cgroup_pids_used": 6},
            11,
            12,
            "refuse",
            "the cgroup's pids.max at 18",
        ),
        (
            "threads",
            tcpstore(5),
            {"threads_max": 130},
            10,
            12,
            "refuse",
            "sysctl -w kernel.pid_max=132",
        ),
        ("user_threads", tcpstore(5), {"nproc_soft": 10}, 10, 16, "warn", "ulimit -u 136"),
        (
            "ipv6_loopback",
            tcpstore(5, ipv6=True),
            {"ipv6_loopback": False},
            0,
            1,
            "refuse",
            "sysctl -w net.ipv6.conf.lo.disable_ipv6=0",
        ),
        (
            "listener_ports",
            tcpstore(30_000, workers=2, window=100),
            {"nofile_hard": 1_000_000},
            14_116,
            15_000,
            "warn",
            "sysctl -w net.ipv4.ip_local_port_range",
        ),
    ],
)
def test_a_limit_that_is_not_kept(
    name: str,
    demand: Demand,
    changes: dict[str, Any],
    have: float,
    need: float,
    severity: str,
    remedy: str,
) -> None:
    plan = fit(demand, replace(TWO_CORES, **changes))
    found = limit(plan, name)
    assert (found.have, found.need, found.ok, found.severity) == (have, need, False, severity)
    assert found.remedy is not None
    assert found.remedy.startswith(remedy)
    assert f"{found.need:,}" in found.because
    assert f"have {found.have:,}" in found.because
    assert found.refuses == (severity == "refuse")
    assert plan.fits == (severity != "refuse")


def test_memory_counts_workers_ranks_servers_and_kernel() -> None:
    plan = fit(tcpstore(98_304), replace(TWO_CORES, memory_available_bytes=3 * GIB))
    found = limit(plan, "memory")
    assert refused_by(plan) == ["memory"]
    # 15 workers: the fewest that descriptors allow.
    workers = 15 * ((37 << 20) + 98_304 * 28) + 98_304 * 7168
    servers = (110 << 20) + (40 << 20) + 98_304 * 2048
    kernel = (98_304 * 3 + 19_936 * 2) * 4096 + 2 * 98_304 * 4096
    assert found.need == workers + servers + kernel
    assert found.unit == "bytes"
    assert found.because == (
        "15 workers × (37 MiB + table of 2.6 MiB) + 98,304 ranks × 7 KiB + 342 MiB of servers and "
        "controller + kernel: 334,784 sockets × 4 KiB and 196,608 pages of buffers × 4 KiB = "
        "3.6 GiB; have 3 GiB (MemAvailable)"
    )


def test_a_cgroup_binds_like_memory_and_says_what_to_raise_it_to() -> None:
    plan = fit(
        tcpstore(4096),
        replace(TWO_CORES, cgroup_memory_limit_bytes=300 << 20, cgroup_memory_used_bytes=200 << 20),
    )
    found = limit(plan, "cgroup_memory")
    assert refused_by(plan) == ["cgroup_memory"]
    assert found.have == 100 << 20
    assert found.remedy is not None
    assert f"memory.max at {int(found.need) + (200 << 20)}" in found.remedy


@pytest.mark.parametrize(("swap_bytes", "warned"), [(0, False), (GIB, True), (None, False)])
def test_swap_is_no_way_out(swap_bytes: int | None, warned: bool) -> None:
    machine = replace(TWO_CORES, memory_available_bytes=1 << 20, swap_bytes=swap_bytes)
    assert ("swapping" in limit(fit(tcpstore(5), machine), "memory").because) is warned


def test_the_backlog_warning_tells_what_the_kernel_will_do() -> None:
    retries = limit(fit(tcpstore(5000), TWO_CORES), "backlog_store").because
    assert "SYN again after 1, 2, 3, 4, 5, 7, 11 s" in retries
    assert "tcp_max_syn_backlog is 2,048" in retries
    resets = fit(tcpstore(5000), replace(TWO_CORES, tcp_abort_on_overflow=1))
    assert "reset" in limit(resets, "backlog_store").because


def test_a_window_of_two_is_refused_with_the_reason() -> None:
    found = limit(fit(tcpstore(100, window=2), TWO_CORES), "start_window")
    assert (found.have, found.need) == (2, 3)
    assert "rank r waits for rank r + 1" in found.because


def test_what_must_fit_at_once_says_so() -> None:
    machine = replace(TWO_CORES, nofile_hard=200)
    for windowable in (True, False):
        plan = fit(nccl_root(1000, workers=1, windowable=windowable), machine)
        said = "so all ranks must fit at once" in limit(plan, "descriptors").because
        assert said is not windowable


def test_one_root_needs_no_limit_of_its_own() -> None:
    for demand in (nccl_root(1000), nccl_multiroot(128), tcpstore(1000)):
        names = {each.name for each in fit(demand, TWO_CORES).limits}
        assert not {"root_descriptors", "root_ports"} & names


def test_an_external_servers_limits_are_not_ours() -> None:
    plan = fit(tcpstore(98_304, uses_store="external", uses_root="external"), TWO_CORES)
    for name in ("store_descriptors", "backlog_store", "backlog_root"):
        found = limit(plan, name)
        assert (found.have, found.ok, found.remedy) == (None, True, None)
        assert "wherever it runs: none known here" in found.because


# Checked in a network namespace with a range of 200 ports (kernel 6.18): 130 listeners on each of 3
# addresses left 35 ports to connect from, 100 each left 100.
@pytest.mark.parametrize(("listeners", "have"), [(130, 34), (100, 100)])
def test_listeners_beyond_half_the_range_take_ports_from_connections(
    listeners: int, have: int
) -> None:
    machine = replace(TWO_CORES, port_low=40_000, port_high=40_199)
    plan = fit(tcpstore(3 * listeners, workers=3), machine)
    assert limit(plan, "connection_ports").have == have


@pytest.mark.parametrize(
    ("demand", "remedy"),
    [
        # 2 x 20,000 would fit 64,512 ports, 2 x 40,000 would not.
        (tcpstore(20_000, ipv6=True), "sysctl -w net.ipv4.ip_local_port_range='1024 65535', or IP"),
        (tcpstore(40_000, ipv6=True), "IPv4, where every worker has an address of its own"),
        (nccl_root(60_000, workers=1), "more --workers"),
    ],
)
def test_a_wider_range_is_advised_only_where_it_helps(demand: Demand, remedy: str) -> None:
    machine = replace(TWO_CORES, nofile_hard=1_000_000)
    found = limit(fit(demand, machine), "ports")
    assert found.remedy is not None
    assert found.remedy.startswith(remedy)


def test_reserved_ports_are_not_there() -> None:
    found = limit(fit(tcpstore(5), replace(TWO_CORES, ports_reserved=232)), "ports")
    assert found.have == 28_000
    assert "less 232 in ip_local_reserved_ports" in found.because


@pytest.mark.parametrize("machine", [TWO_CORES, Machine()])
def test_a_limit_that_is_kept_has_no_remedy_and_an_unknown_one_says_so(machine: Machine) -> None:
    for found in fit(tcpstore(98_304), machine).limits:
        assert (found.remedy is None) == found.ok
        if found.have is None:
            assert found.because.endswith("none known here, so not checked")
        else:
            assert "have " in found.because
    names = [found.name for found in fit(tcpstore(98_304), machine).limits]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 bytes"),
        (1023, "1,023 bytes"),
        (1536, "1.5 KiB"),
        (37 << 20, "37 MiB"),
        (5 << 50, "5,120 TiB"),
    ],
)
def test_sizes(size_bytes: int, text: str) -> None:
    assert size_text(size_bytes) == text
