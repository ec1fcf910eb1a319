"""Every limit of a machine that a layout could meet, each with its arithmetic and its remedy.

Holds true: each check is a pure function of a `Case`. What the machine doesn't tell is reported as
unknown and refuses nothing. Every number in a text is the one that was compared, or a term of it.

Must not choose a layout.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from harness.preflight.case import Case, ceil_div
from harness.spec import INT_MAX, MIN_START_WINDOW

Severity = Literal["refuse", "warn", "info"]

Unit = Literal["", "bytes", "pages"]
"""A plain count if empty."""

WIDEST_RANGE = 65535 - 1024 + 1
"""Ports that a user may bind without privileges."""

_NO_WINDOW = "this formation answers nobody before everybody has come"

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
    unit: Unit
    """Of `have` and `need`."""

    @property
    def refuses(self) -> bool:
        """Must the run not be started?"""
        return not self.ok and self.severity == "refuse"


def limits_of(case: Case) -> tuple[Limit, ...]:
    """All limits that concern this case, always in the same order."""
    return tuple(limit for check in _CHECKS for limit in check(case))


def size_text(size_bytes: float) -> str:
    """In binary units with one decimal, as in "2.5 GiB"."""
    units = ("bytes", "KiB", "MiB", "GiB", "TiB")
    power = 0
    while abs(size_bytes) >= 1024 and power < len(units) - 1:
        size_bytes /= 1024
        power += 1
    return f"{size_bytes:,.1f}".removesuffix(".0") + f" {units[power]}"


def _text(number: float, unit: Unit) -> str:
    if unit == "bytes":
        return size_text(number)
    return f"{number:,.1f}".removesuffix(".0") + f" {unit}".rstrip()


def _of(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _limit(
    name: str,
    most: float | None,
    need: float,
    arithmetic: str,
    remedy: str,
    *,
    source: str,
    used: int | None = None,
    severity: Severity = "refuse",
    unit: Unit = "",
    note: str = "",
) -> Limit:
    """`most` less `used` is what there is, `source` its name, `note` what too little of it does."""
    have = None if most is None else most - (used or 0)
    ok = have is None or need <= have
    if have is None:
        there = f"{source}: none known here, so not checked"
    elif used is None:
        there = f"have {_text(have, unit)} ({source})"
    else:
        there = f"have {_text(have, unit)} ({source}, {_text(used, unit)} of it in use)"
    because = f"{arithmetic} = {_text(need, unit)}; {there}"
    return Limit(
        name=name,
        have=have,
        need=need,
        because=f"{because}; {note}" if note and not ok else because,
        remedy=None if ok else remedy,
        ok=ok,
        severity=severity,
        unit=unit,
    )


# --- Ranks and descriptors -----------------------------------------------------------------------


def _ranks(case: Case) -> Iterator[Limit]:
    yield _limit(
        "ranks",
        INT_MAX,
        case.nranks,
        "ranks",
        f"-np {INT_MAX}",
        source="a rank travels as an i32",
    )


def _descriptors(case: Case) -> Iterator[Limit]:
    demand, machine, reserve = case.demand, case.machine, case.costs.reserve_descriptors
    extra, window = case.extra_descriptors, MIN_START_WINDOW if demand.windowable else None
    need = case.most_ranks * demand.formed_descriptors + case.forming_here * extra + reserve
    arithmetic = f"{_of(case.most_ranks, 'rank')} × {demand.formed_descriptors}"
    if extra:
        arithmetic += f" + {case.forming_here:,} in formation × {extra} more"
    arithmetic += f" + {reserve} of the worker's own"
    fewest = case.fewest_by_descriptors(demand.window or window)
    remedy = _raise_nofile(need)
    if demand.workers is not None and case.workers < fewest:
        remedy = f"--workers {fewest}, or {remedy}"
    yield _limit(
        "descriptors",
        machine.nofile_hard,
        need,
        arithmetic,
        remedy,
        source="hard limit of open files of a worker",
        note=_all_at_once(case),
    )
    yield _limit(
        "descriptors_soft",
        machine.nofile_soft,
        need,
        arithmetic,
        "none needed",
        severity="info",
        source="soft limit of open files of a worker",
        note="every process raises its own to the hard limit",
    )


def _all_at_once(case: Case) -> str:
    """Why nothing is spread over time."""
    return "" if case.demand.windowable else f"{_NO_WINDOW}, so all ranks must fit at once"


def _raise_nofile(need: int) -> str:
    return (
        f"ulimit -Hn {need} as root (systemd: LimitNOFILE={need}, docker: --ulimit nofile={need})"
    )


def _store_descriptors(case: Case) -> Iterator[Limit]:
    demand, reserve = case.demand, case.costs.reserve_descriptors
    each = demand.store_descriptors_per_unformed_rank
    if demand.uses_store == "none" or each < 1:
        return
    need = case.forming * each + reserve
    who = f"{_of(case.forming, 'rank')} in formation"
    if case.window is not None:
        who += f" (at most {case.window:,} in each of {_of(case.workers, 'worker')})"
    remedy = _raise_nofile(need)
    if demand.windowable and (demand.window is not None or demand.workers is not None):
        remedy = f"fewer --workers or a smaller --start-window, or {remedy}"
    external = demand.uses_store == "external"
    yield _limit(
        "store_descriptors",
        None if external else case.machine.nofile_hard,
        need,
        f"{who} × {each} + {reserve} of the store's own",
        remedy,
        source="limit of open files of the store" + (", wherever it runs" if external else ""),
    )


def _roots(case: Case) -> Iterator[Limit]:
    """Several roots share one process and one address."""
    roots, reserve = case.roots, case.costs.reserve_descriptors
    if roots < 2:
        return
    need = case.root_descriptors + reserve
    yield _limit(
        "root_descriptors",
        case.machine.nofile_hard,
        need,
        f"{roots:,} roots × (a listener + a connection) + {reserve} of their process's own",
        f"fewer --roots, or {_raise_nofile(need)}",
        source="hard limit of open files of the roots' process",
    )
    yield _limit(
        "root_ports",
        case.half_range,
        roots,
        f"{roots:,} roots × a listener, all on one address",
        "fewer --roots" + _or_wider_range(roots),
        source="the half of the ports that the kernel gives to listeners first",
    )


def _or_wider_range(need: int) -> str:
    if need > WIDEST_RANGE // 2:
        return ""
    return ", or sysctl -w net.ipv4.ip_local_port_range='1024 65535'"


def _start_window(case: Case) -> Iterator[Limit]:
    if case.demand.window is None:
        return
    if case.demand.windowable:
        yield _limit(
            "start_window",
            case.demand.window,
            MIN_START_WINDOW,
            "ranks in formation at once in a worker, at least",
            f"--start-window {MIN_START_WINDOW}, or none: it is then chosen",
            source="--start-window",
            note="rank r waits for rank r + 1 while it forms, so with 1 or 2 they wait forever",
        )
    else:
        yield _limit(
            "start_window",
            case.demand.window,
            case.nranks,
            "all ranks in formation at once",
            "no --start-window",
            source="--start-window",
            note=_NO_WINDOW,
        )


def _open_files(case: Case) -> Iterator[Limit]:
    reserve, machine = case.costs.reserve_descriptors, case.machine
    need = case.sockets + case.processes * reserve
    yield _limit(
        "open_files",
        machine.files_max,
        need,
        f"{_of(case.sockets, 'socket')} + {case.processes:,} processes × {reserve}",
        f"sysctl -w fs.file-max={need + (machine.files_open or 0)}",
        source="fs.file-max",
        used=machine.files_open,
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
        f"{_of(case.workers, 'worker')} + {_of(case.servers, 'server')}",
        f"--workers {LOOPBACK_ADDRESSES - case.servers}",
        source="addresses in 127.0.0.0/8",
    )


def _ports(case: Case) -> Iterator[Limit]:
    """See `Case.half_range` for how the kernel divides the range."""
    machine, half, connections = case.machine, case.half_range, case.server_connections
    each = case.demand.listeners_per_rank
    listeners = f"{_of(case.ranks_per_address, 'rank')} × {_of(each, 'listener')}"
    taken = f"ports of one address, ip_local_port_range {machine.port_low}-{machine.port_high}"
    if machine.ports_reserved:
        taken += f" less {machine.ports_reserved:,} in ip_local_reserved_ports"
    to_server = f"{_of(connections, 'connection')} to one server at once"
    yield _limit(
        "ports",
        case.ports,
        case.listeners + connections,
        f"{listeners} + {to_server}",
        _more_ports(case, case.listeners + connections, WIDEST_RANGE),
        source=taken,
        note=_all_at_once(case),
    )
    yield _limit(
        "listener_ports",
        half,
        case.listeners,
        listeners,
        _more_ports(case, case.listeners, WIDEST_RANGE // 2),
        severity="warn",
        source="the half of the ports that the kernel gives to listeners first",
        note="the others take ports that connections from any address then lack",
    )
    yield _limit(
        "connection_ports",
        _ports_for_connections(case),
        connections,
        f"{to_server}, from one address",
        _more_ports(case, max(case.listeners, connections), WIDEST_RANGE // 2),
        source="ports that no listener on any address holds",
    )


def _more_ports(case: Case, need: int, at_most: int) -> str:
    """What helps, a wider range only if the widest is enough."""
    remedies = []
    if need <= at_most:
        remedies.append("sysctl -w net.ipv4.ip_local_port_range='1024 65535'")
    if case.demand.ipv6:
        remedies.append("IPv4, where every worker has an address of its own")
    elif case.demand.workers is not None:
        remedies.append("more --workers: every one has an address of its own")
    return ", or ".join(remedies) or "fewer ranks"


def _ports_for_connections(case: Case) -> int | None:
    """One half, less what is taken by listeners that find no room in the other: at random, and
    independently on each address, yet gone for connections from all of them.
    """
    half = case.half_range
    if not half:
        return half
    excess = min(half, max(0, case.listeners - half))
    addresses = 1 if case.demand.ipv6 else case.workers
    return int(half * (1 - excess / half) ** addresses)


def _backlogs(case: Case) -> Iterator[Limit]:
    machine = case.machine
    if machine.tcp_abort_on_overflow:
        overflow = "the others are reset, as tcp_abort_on_overflow is on"
    else:
        overflow = (
            "the others send their SYN again after 1, 2, 3, 4, 5, 7, 11 s (before kernel 6.5: 1, "
            "3, 7 s), as they would in a cluster, and times to connect show it"
        )
    if machine.tcp_max_syn_backlog is not None:
        overflow += f"; tcp_max_syn_backlog is {machine.tcp_max_syn_backlog:,}"
    for name, kind in (("root", case.demand.uses_root), ("store", case.demand.uses_store)):
        if kind == "none":
            continue
        external = kind == "external"
        several = name == "root" and case.roots > 1
        need = min(case.forming, case.ranks_of_a_root) if name == "root" else case.forming
        whom = f"one of {case.roots:,} roots" if several else f"the {name}"
        yield _limit(
            f"backlog_{name}",
            None if external else machine.somaxconn,
            need,
            f"ranks that may connect to {whom} at once",
            f"sysctl -w net.core.somaxconn={need} net.ipv4.tcp_max_syn_backlog={need}",
            severity="warn",
            source=f"net.core.somaxconn of the {name}" + (", wherever it runs" * external),
            note=overflow,
        )


def _connection_tables(case: Case) -> Iterator[Limit]:
    machine, each = case.machine, case.connections_per_rank
    tracked, need, closed = (
        machine.conntrack_count,
        case.connections,
        case.connections - case.nranks,
    )
    again = f" + {case.roots:,} ranks' second check-in" if case.roots > 1 else ""
    full = "a full table drops packets"
    if not tracked:
        full += ", if loopback is tracked: nothing is now"
    yield _limit(
        "conntrack",
        machine.conntrack_max,
        need,
        f"{_of(case.nranks, 'rank')} × {_of(each, 'connection')}{again}",
        f"sysctl -w net.netfilter.nf_conntrack_max={need + (tracked or 0)}",
        severity="refuse" if tracked else "warn",
        source="nf_conntrack_max",
        used=tracked,
        note=full,
    )
    yield _limit(
        "time_wait",
        machine.tcp_max_tw_buckets,
        closed,
        f"{_of(case.nranks, 'rank')} × {each - 1} closed while forming{again}",
        f"sysctl -w net.ipv4.tcp_max_tw_buckets={closed}",
        severity="warn",
        source="net.ipv4.tcp_max_tw_buckets",
        note="the others skip TIME_WAIT and the kernel logs it; on loopback that does no harm",
    )


# --- Memory --------------------------------------------------------------------------------------


def _memory(case: Case) -> Iterator[Limit]:
    machine, need = case.machine, case.memory_bytes
    arithmetic, used = _memory_arithmetic(case), machine.cgroup_memory_used_bytes
    note = "swapping would spoil every time measured" if machine.swap_bytes else ""
    yield _limit(
        "memory",
        machine.memory_available_bytes,
        need,
        arithmetic,
        "fewer ranks or smaller records, or more memory",
        source="MemAvailable",
        unit="bytes",
        note=note,
    )
    raised = need + (used or 0)
    yield _limit(
        "cgroup_memory",
        machine.cgroup_memory_limit_bytes,
        need,
        arithmetic,
        f"the cgroup's memory.max at {raised} (docker: --memory, systemd: MemoryMax), or fewer "
        "ranks",
        source="memory limit of the cgroup",
        used=used,
        unit="bytes",
    )


def _memory_arithmetic(case: Case) -> str:
    costs, size = case.costs, size_text
    return (
        f"{_of(case.workers, 'worker')} × ({size(costs.worker_base_bytes)} + table of "
        f"{size(case.table_bytes)}) + {_of(case.nranks, 'rank')} × {size(case.bytes_per_rank)} + "
        f"{size(case.server_memory_bytes)} of servers and controller + kernel: "
        f"{_of(case.sockets, 'socket')} × {size(costs.kernel_bytes_per_socket)} and "
        f"{_of(case.ring_pages, 'page')} of buffers × {size(case.page_bytes)}"
    )


def _tcp_memory(case: Case) -> Iterator[Limit]:
    triple, used = case.machine.tcp_mem_pages, case.machine.tcp_mem_used_pages
    _, pressure, most = triple or (None, None, None)
    ring, expected = _of(case.nranks, "ring connection"), case.ring_pages
    want = (used or 0) + expected
    remedy = f"sysctl -w net.ipv4.tcp_mem='{want} {ceil_div(want * 4, 3)} {2 * want}'"
    yield _limit(
        "tcp_mem",
        most,
        2 * case.nranks,
        f"{ring} × 2 ends × 1 page, the least that holds data",
        remedy,
        source="hard limit of tcp_mem",
        used=used,
        unit="pages",
        note="tcp_mem is too small: above it the kernel drops what is sent",
    )
    yield _limit(
        "tcp_mem_pressure",
        pressure,
        expected,
        f"{ring} × {_of(expected // case.nranks, 'page')} for a record under way",
        remedy,
        severity="warn",
        source="pressure threshold of tcp_mem",
        used=used,
        unit="pages",
        note="above it windows shrink, and an AllGather takes several times as long",
    )


# --- CPU and processes ---------------------------------------------------------------------------


def _cpu(case: Case) -> Iterator[Limit]:
    machine = case.machine
    online, allowed = machine.cores_online, machine.cores_allowed or machine.cores_online
    if online is not None:
        yield _limit(
            "cpu_affinity",
            machine.cores_allowed,
            online,
            "cores online",
            f"taskset -c 0-{online - 1}, or a wider cpuset",
            severity="warn",
            source="cores that this process may run on",
            note="expect the speed of these",
        )
    if allowed is not None:
        yield _limit(
            "cpu_quota",
            machine.cgroup_cores,
            allowed,
            "cores to run on",
            "no quota in the cgroup's cpu.max (docker: --cpus, systemd: CPUQuota)",
            severity="warn",
            source="CPU quota of the cgroup, in cores",
            note="a process above it stands still until its period ends, and times show it",
        )


def _threads(case: Case) -> Iterator[Limit]:
    machine, each = case.machine, case.costs.threads_per_process
    of_roots = case.roots * case.demand.threads_per_root
    need = case.processes * each + of_roots
    arithmetic = f"{case.processes:,} processes × {_of(each, 'thread')}"
    if of_roots:
        arithmetic += f" + {of_roots:,} of roots"
    ceilings = [most for most in (machine.pid_max, machine.threads_max) if most is not None]
    in_cgroup, running = need + (machine.cgroup_pids_used or 0), need + (machine.threads_used or 0)
    yield _limit(
        "cgroup_pids",
        machine.cgroup_pids_limit,
        need,
        arithmetic,
        f"the cgroup's pids.max at {in_cgroup} (docker: --pids-limit, systemd: TasksMax)",
        source="pids.max of the cgroup",
        used=machine.cgroup_pids_used,
    )
    yield _limit(
        "threads",
        min(ceilings, default=None),
        need,
        arithmetic,
        f"sysctl -w kernel.pid_max={running} kernel.threads-max={running}",
        source="the smaller of kernel.pid_max and kernel.threads-max",
        used=machine.threads_used,
    )
    yield _limit(
        "user_threads",
        machine.nproc_soft,
        need,
        arithmetic,
        f"ulimit -u {running}",
        severity="warn",
        source="ulimit -u, for all threads of a user other than root",
    )


_CHECKS: tuple[Callable[[Case], Iterator[Limit]], ...] = (
    _ranks,
    _descriptors,
    _store_descriptors,
    _roots,
    _start_window,
    _open_files,
    _addresses,
    _ports,
    _backlogs,
    _connection_tables,
    _memory,
    _tcp_memory,
    _cpu,
    _threads,
)
