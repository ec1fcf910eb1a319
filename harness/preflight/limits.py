"""Every limit of a machine that a layout could meet, each with its arithmetic and its remedy.

Holds true: each check is a pure function of a `Case`; what the machine doesn't tell is reported, and refuses nothing.
Must not choose a layout.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from harness.preflight.case import Case, ceil_div
from harness.spec import MIN_START_WINDOW

Severity = Literal["refuse", "warn", "info"]

MAX_RANKS = 2**31 - 1
"""Ranks travel as an i32 (NCCL's check-in)."""

LOOPBACK_ADDRESSES = 2**24 - 2
"""127.0.0.1 to 127.255.255.254."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit of the machine against what the run needs; `remedy` is None if none is needed."""

    name: str
    have: float | None
    need: float
    because: str
    remedy: str | None
    ok: bool
    severity: Severity
    """What it means if not `ok`; info: nothing to do."""

    @property
    def refuses(self) -> bool:
        """Must the run not be started?"""
        return not self.ok and self.severity == "refuse"


def limits_of(case: Case) -> tuple[Limit, ...]:
    """All limits, always in the same order."""
    return tuple(limit for check in _CHECKS for limit in check(case))


def _count(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:,.1f}"


def size_text(size_bytes: float) -> str:
    """Binary units with one decimal, as in "2.5 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if abs(size_bytes) < 1024:
            break
        size_bytes /= 1024
    else:
        unit = "TiB"
    return f"{size_bytes:,.1f}".removesuffix(".0") + f" {unit}"


def _limit(
    name: str,
    have: float | None,
    need: float,
    arithmetic: str,
    remedy: str,
    *,
    severity: Severity = "refuse",
    source: str = "",
    note: str = "",
    show: Callable[[float], str] = _count,
) -> Limit:
    """`source` says where `have` comes from, `note` what it means not to have enough."""
    ok = have is None or need <= have
    if have is None:
        there = f"{source or 'a limit'} is unknown here, or unlimited: not checked"
    else:
        there = f"have {show(have)}" + (f" ({source})" if source else "")
    same = arithmetic == show(need)
    because = f"{arithmetic}{'' if same else f' = {show(need)}'}; {there}"
    if note and not ok:
        because += f"; {note}"
    return Limit(
        name=name,
        have=have,
        need=need,
        because=because,
        remedy=None if ok else remedy,
        ok=ok,
        severity=severity,
    )


def _less(most: int | None, used: int | None) -> int | None:
    return None if most is None else most - (used or 0)


# --- Ranks and descriptors -----------------------------------------------------------------------


def _ranks(case: Case) -> Iterator[Limit]:
    yield _limit(
        "ranks",
        MAX_RANKS,
        case.nranks,
        _count(case.nranks),
        f"-np {MAX_RANKS}",
        source="a rank is an i32 on the wire",
    )


def _descriptors(case: Case) -> Iterator[Limit]:
    demand, reserve = case.demand, case.costs.reserve_descriptors
    ranks, formed, extra = case.most_ranks, demand.formed_descriptors, case.extra_descriptors
    need = ranks * formed + case.forming_here * extra + reserve
    arithmetic = f"{ranks:,} ranks × {formed}"
    if extra:
        arithmetic += f" + {case.forming_here:,} in formation × {extra} more"
    arithmetic += f" + {reserve} of the worker's own"
    fewest = case.fewest_by_descriptors(MIN_START_WINDOW if demand.windowable else None)
    remedy = _raise_nofile(need)
    if demand.workers is not None and case.workers < fewest <= case.nranks:
        remedy = f"--workers {fewest}, or {remedy}"
    machine = case.machine
    yield _limit(
        "descriptors",
        machine.nofile_hard,
        need,
        arithmetic,
        remedy,
        source="hard limit of open files, for each worker",
    )
    yield _limit(
        "descriptors_soft",
        machine.nofile_soft,
        need,
        arithmetic,
        "nothing to do",
        severity="info",
        source="soft limit of open files",
        note="each process raises its own to the hard limit",
    )


def _raise_nofile(need: int) -> str:
    return (
        f"ulimit -Hn {need} as root (LimitNOFILE={need} for systemd, --ulimit nofile={need} "
        "for docker)"
    )


def _store_descriptors(case: Case) -> Iterator[Limit]:
    each = case.demand.store_descriptors_per_unformed_rank
    if case.demand.uses_store == "none" or each < 1:
        return
    reserve = case.costs.reserve_descriptors
    need = case.forming * each + reserve
    if case.window is None:
        who = f"{case.nranks:,} ranks at once"
    else:
        who = f"{case.forming:,} ranks at once ({case.workers:,} workers × {case.window:,})"
    external = case.demand.uses_store == "external"
    remedy = _raise_nofile(need)
    if not case.demand.windowable:
        remedy += "; this formation can't start in windows"
    elif case.demand.window is not None or case.demand.workers is not None:
        remedy = f"fewer --workers, a smaller --start-window, or {remedy}"
    yield _limit(
        "store_descriptors",
        None if external else case.machine.nofile_hard,
        need,
        f"{who} × {each} + {reserve} of the store's own",
        remedy,
        source="open files of the store" + ("'s own machine" if external else ""),
    )


def _start_window(case: Case) -> Iterator[Limit]:
    window = case.demand.window
    if window is None:
        return
    if case.demand.windowable:
        yield _limit(
            "start_window",
            window,
            MIN_START_WINDOW,
            f"{MIN_START_WINDOW} ranks in formation at once in each worker",
            f"--start-window {MIN_START_WINDOW}, or leave it to us",
            source="--start-window",
            note="rank r waits for r + 1 while it forms, so a window of 1 or 2 deadlocks",
        )
    else:
        yield _limit(
            "start_window",
            window,
            case.most_ranks,
            f"all {case.most_ranks:,} ranks of a worker at once",
            "leave out --start-window",
            source="--start-window",
            note="this formation answers nobody before everybody has come",
        )


def _open_files(case: Case) -> Iterator[Limit]:
    reserve, machine = case.costs.reserve_descriptors, case.machine
    yield _limit(
        "open_files",
        _less(machine.files_max, machine.files_open),
        case.sockets + case.processes * reserve,
        f"{case.sockets:,} sockets + {case.processes:,} processes × {reserve}",
        "sysctl -w fs.file-max="
        f"{(machine.files_open or 0) + case.sockets + case.processes * reserve}",
        source=f"fs.file-max less {machine.files_open or 0:,} open files",
    )


# --- Addresses, ports and connections ------------------------------------------------------------


def _addresses(case: Case) -> Iterator[Limit]:
    if case.demand.ipv6:
        there = case.machine.ipv6_loopback
        yield _limit(
            "ipv6_loopback",
            None if there is None else int(there),
            1,
            "the address ::1",
            "sysctl -w net.ipv6.conf.lo.disable_ipv6=0, or IPv4",
            source="IPv6 on the loopback interface",
        )
        return
    yield _limit(
        "source_addresses",
        LOOPBACK_ADDRESSES,
        case.workers + case.servers,
        f"{case.workers:,} workers + {case.servers} servers",
        f"--workers {LOOPBACK_ADDRESSES - case.servers}",
        source="127.0.0.0/8",
    )


def _ports(case: Case) -> Iterator[Limit]:
    """See `Case.half_range` for how the kernel divides the range."""
    machine, listeners, connections = case.machine, case.listeners, case.server_connections
    ports, half, each = case.ports, case.half_range, case.demand.listeners_per_rank
    spelled = f"{case.ranks_per_address:,} ranks × {each} listeners"
    taken = f"ip_local_port_range {machine.port_low}-{machine.port_high}"
    if machine.ports_reserved:
        taken += f" less {machine.ports_reserved:,} reserved"
    remedy = "sysctl -w net.ipv4.ip_local_port_range='1024 65535'"
    if case.demand.ipv6:
        remedy += ", or IPv4, where each worker has an address of its own"
    elif case.demand.workers is not None:
        remedy += ", or more --workers, each with an address of its own"
    yield _limit(
        "ports",
        ports,
        listeners + connections,
        f"{spelled} + {connections:,} connections to one server at once",
        remedy,
        source=f"of one address: {taken}",
    )
    yield _limit(
        "listener_ports",
        half,
        listeners,
        spelled,
        remedy,
        severity="warn",
        source="the half of the range that the kernel gives to listeners",
        note="those above take ports that connections then lack, from whatever address",
    )
    yield _limit(
        "connection_ports",
        _ports_for_connections(case),
        connections,
        f"{connections:,} connections from one address to one server at once",
        remedy,
        source="ports that no listener of any address is likely to hold",
    )


def _ports_for_connections(case: Case) -> int | None:
    """A half, less what listeners in excess of the other half take at random, on each address."""
    half = case.half_range
    if not half:
        return half
    excess = min(half, max(0, case.listeners - half))
    addresses = 1 if case.demand.ipv6 else case.workers
    return int(half * (1 - excess / half) ** addresses)


def _backlogs(case: Case) -> Iterator[Limit]:
    machine, need = case.machine, case.forming
    if machine.tcp_abort_on_overflow:
        overflow = "what overflows is reset (tcp_abort_on_overflow is on)"
    else:
        overflow = (
            "what overflows sends its SYN again after 1, 2, 3, 4, 5, 7, 11 s (1, 3, 7 s before "
            "kernel 6.5), as it would in a cluster, and connect times show these steps"
        )
    if machine.tcp_max_syn_backlog is not None:
        overflow += f"; tcp_max_syn_backlog is {machine.tcp_max_syn_backlog:,}"
    for name, kind in (("root", case.demand.uses_root), ("store", case.demand.uses_store)):
        if kind == "none":
            continue
        external = kind == "external"
        yield _limit(
            f"backlog_{name}",
            None if external else machine.somaxconn,
            need,
            f"{need:,} ranks may connect to the {name} at once",
            f"sysctl -w net.core.somaxconn={need} net.ipv4.tcp_max_syn_backlog={need}",
            severity="warn",
            source="net.core.somaxconn" + (f" of the {name}'s own machine" if external else ""),
            note=overflow,
        )


def _connection_tables(case: Case) -> Iterator[Limit]:
    machine, each = case.machine, case.connections_per_rank
    used = machine.conntrack_count or 0
    need = case.nranks * each
    yield _limit(
        "conntrack",
        _less(machine.conntrack_max, used),
        need,
        f"{case.nranks:,} ranks × {each} connections",
        f"sysctl -w net.netfilter.nf_conntrack_max={used + need}, or exempt loopback: "
        "iptables -t raw -A OUTPUT -o lo -j NOTRACK",
        severity="refuse" if used else "warn",
        source=f"nf_conntrack_max less {used:,} tracked",
        note="a full table drops packets"
        if used
        else "a full table drops packets, but nothing is tracked now, so loopback hardly will be",
    )
    closed = case.nranks * (each - 1)
    yield _limit(
        "time_wait",
        machine.tcp_max_tw_buckets,
        closed,
        f"{case.nranks:,} ranks × {each - 1} connections closed in formation",
        f"sysctl -w net.ipv4.tcp_max_tw_buckets={closed}",
        severity="warn",
        source="net.ipv4.tcp_max_tw_buckets",
        note="the kernel logs an overflow and skips TIME_WAIT for the rest, which does no harm "
        "on loopback",
    )


# --- Memory --------------------------------------------------------------------------------------


def _memory(case: Case) -> Iterator[Limit]:
    machine, need = case.machine, case.memory_bytes
    arithmetic = _memory_arithmetic(case)
    yield _limit(
        "memory",
        machine.memory_available_bytes,
        need,
        arithmetic,
        "fewer ranks or smaller records, or a machine with more memory available",
        source="MemAvailable",
        note="swapping would spoil every time measured" if machine.swap_bytes else "",
        show=size_text,
    )
    used = machine.cgroup_memory_used_bytes or 0
    yield _limit(
        "cgroup_memory",
        _less(machine.cgroup_memory_limit_bytes, used),
        need,
        arithmetic,
        f"raise the limit to {used + need} bytes: memory.max of the cgroup, --memory of docker, "
        "MemoryMax of systemd",
        source=f"memory limit of the cgroup less {size_text(used)} in use",
        show=size_text,
    )


def _memory_arithmetic(case: Case) -> str:
    costs = case.costs
    return (
        f"{case.workers:,} workers × ({size_text(costs.worker_base_bytes)} + table of "
        f"{size_text(case.table_bytes)}) + {case.nranks:,} ranks × "
        f"{size_text(case.bytes_per_rank)} + root, store and controller "
        f"{size_text(case.server_memory_bytes)} + {case.sockets:,} sockets × "
        f"{size_text(costs.kernel_bytes_per_socket)} in the kernel + {case.ring_pages:,} "
        f"buffer pages × {size_text(case.page_bytes)}"
    )


def _tcp_memory(case: Case) -> Iterator[Limit]:
    machine = case.machine
    triple, used = machine.tcp_mem_pages, machine.tcp_mem_used_pages or 0
    ends, expected = 2 * case.nranks, case.ring_pages
    want = used + expected
    remedy = f"sysctl -w net.ipv4.tcp_mem='{want} {ceil_div(want * 4, 3)} {2 * want}'"
    yield _limit(
        "tcp_mem",
        _less(triple and triple[2], used),
        ends,
        f"{case.nranks:,} ring connections × 2 ends × 1 page, the least that holds data",
        remedy,
        source=f"tcp_mem too small: its hard limit less {used:,} pages in use"
        if triple and ends > triple[2] - used
        else f"hard limit of tcp_mem less {used:,} pages in use",
        note="above it the kernel drops data",
    )
    yield _limit(
        "tcp_mem_pressure",
        _less(triple and triple[1], used),
        expected,
        f"{case.nranks:,} ring connections × {expected // case.nranks} pages for a record on "
        "its way",
        remedy,
        severity="warn",
        source=f"pressure threshold of tcp_mem less {used:,} pages in use",
        note="above it windows shrink and the AllGather slows down several times",
    )


# --- CPU and processes ---------------------------------------------------------------------------


def _cpu(case: Case) -> Iterator[Limit]:
    machine = case.machine
    online = machine.cores_online
    if online is not None:
        yield _limit(
            "cpu_affinity",
            machine.cores_allowed,
            online,
            f"{online} cores online",
            "taskset -c 0-" + f"{online - 1}, or a wider cpuset",
            severity="warn",
            source="CPU affinity of this process",
            note="times are those of the smaller number",
        )
    allowed = machine.cores_allowed or online
    if allowed is not None:
        yield _limit(
            "cpu_quota",
            machine.cgroup_cores,
            allowed,
            f"{allowed} cores to run on",
            "raise cpu.max of the cgroup, --cpus of docker or CPUQuota of systemd",
            severity="warn",
            source="CPU quota of the cgroup",
            note="a throttled process stops for up to 100 ms at a time, and times show it",
        )


def _processes(case: Case) -> Iterator[Limit]:
    machine, each = case.machine, case.costs.threads_per_process
    need = case.processes * each
    arithmetic = f"{case.processes:,} processes × {each} threads"
    used = machine.cgroup_pids_used or 0
    yield _limit(
        "cgroup_pids",
        _less(machine.cgroup_pids_limit, used),
        need,
        arithmetic,
        f"raise pids.max of the cgroup to {used + need} (--pids-limit of docker, TasksMax of "
        "systemd)",
        source=f"pids.max of the cgroup less {used:,} in use",
    )
    running = machine.threads_used or 0
    ceilings = [most for most in (machine.pid_max, machine.threads_max) if most is not None]
    yield _limit(
        "threads",
        _less(min(ceilings, default=None), running),
        need,
        arithmetic,
        f"sysctl -w kernel.pid_max={running + need} kernel.threads-max={running + need}",
        source=f"the smaller of kernel.pid_max and kernel.threads-max less {running:,} running",
    )
    yield _limit(
        "user_processes",
        machine.nproc_soft,
        need,
        arithmetic,
        f"ulimit -u {need}",
        severity="warn",
        source="limit of processes of this user, what already runs included; root has none",
    )


_CHECKS: tuple[Callable[[Case], Iterator[Limit]], ...] = (
    _ranks,
    _descriptors,
    _store_descriptors,
    _start_window,
    _open_files,
    _addresses,
    _ports,
    _backlogs,
    _connection_tables,
    _memory,
    _tcp_memory,
    _cpu,
    _processes,
)
