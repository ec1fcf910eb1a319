"""Demands and machines that the tests of this folder vary."""

from typing import Any

from harness.preflight.arithmetic import Demand, Layout, Limit
from harness.preflight.case import Gathering
from harness.preflight.machine import Machine

GIB = 1 << 30

TWO_CORES = Machine(
    nofile_soft=20_000,
    nofile_hard=20_000,
    files_max=2_466_177,
    files_open=600,
    cores_online=2,
    cores_allowed=2,
    memory_total_bytes=24 * GIB,
    memory_available_bytes=23 * GIB,
    swap_bytes=0,
    page_bytes=4096,
    port_low=32_768,
    port_high=60_999,
    ports_reserved=0,
    ipv6_loopback=True,
    somaxconn=4096,
    tcp_max_syn_backlog=2048,
    tcp_abort_on_overflow=0,
    tcp_max_tw_buckets=131_072,
    tcp_mem_pages=(287_901, 383_868, 575_802),
    tcp_mem_used_pages=179,
    tcp_rmem_bytes=(4096, 131_072, 33_554_432),
    tcp_wmem_bytes=(4096, 16_384, 4_194_304),
    conntrack_max=262_144,
    conntrack_count=0,
    nproc_soft=96_365,
    pid_max=32_768,
    threads_max=192_730,
    threads_used=120,
)
"""The machine that the issue's figures were measured on."""


def _demand(nranks: int, values: dict[str, Any]) -> Demand:
    """With one AllGather, made of the values that are one's."""
    names = ("record_bytes", "blocks", "piece_bytes", "cut_through", "messages_per_block")
    gather = Gathering(**{name: values.pop(name) for name in names if name in values})
    return Demand(nranks=nranks, gathers=(gather,), **values)


def tcpstore(nranks: int, **changes: Any) -> Demand:
    values: dict[str, Any] = {
        "record_bytes": 28,
        "formed_descriptors": 3,
        "unformed_descriptors": 4,
        "listeners_per_rank": 1,
        "uses_store": "builtin",
        "store_descriptors_per_unformed_rank": 1,
        "windowable": True,
        "cut_through": True,
    }
    return _demand(nranks, values | changes)


def nccl_root(nranks: int, **changes: Any) -> Demand:
    values: dict[str, Any] = {
        "record_bytes": 28,
        "formed_descriptors": 3,
        "unformed_descriptors": 3,
        "listeners_per_rank": 2,
        "uses_root": "builtin",
        "windowable": True,
        "cut_through": True,
    }
    return _demand(nranks, values | changes)


def nccl_multiroot(nranks: int, **changes: Any) -> Demand:
    values: dict[str, Any] = {"nroots": None, "ranks_per_root": 128}
    return nccl_root(nranks, **(values | changes))


def limit(plan: Layout, name: str) -> Limit:
    [found] = [limit for limit in plan.limits if limit.name == name]
    return found


def refused_by(plan: Layout) -> list[str]:
    return [limit.name for limit in plan.refusals]


def warned_by(plan: Layout) -> list[str]:
    return [limit.name for limit in plan.warnings]
