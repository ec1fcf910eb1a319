"""Reads the limits of this machine, as plain numbers, into one `Machine`.

Holds true: nothing is changed, nothing raises; what is absent, unreadable or unlimited is None. Of
nested cgroups, v1 and v2, the level with the least room left is the one reported.

Must not know what a run needs: judging is the work of `arithmetic`.
"""

import os
import resource
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TypedDict

Triple = tuple[int, int, int]

_UNLIMITED_BYTES = 1 << 60
"""cgroup v1 writes "no limit" as the largest multiple of a page below 2**63."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What this machine has; None where it is unknown or unlimited."""

    nofile_soft: int | None = None
    nofile_hard: int | None = None
    files_max: int | None = None
    files_open: int | None = None

    cores_online: int | None = None
    cores_allowed: int | None = None
    """By CPU affinity (taskset, cpuset)."""
    cgroup_cores: float | None = None
    """CPU quota ÷ period."""

    memory_total_bytes: int | None = None
    memory_available_bytes: int | None = None
    swap_bytes: int | None = None
    page_bytes: int | None = None
    cgroup_memory_limit_bytes: int | None = None
    cgroup_memory_used_bytes: int | None = None
    """Without inactive page cache, which the kernel gives back before it kills anybody."""

    port_low: int | None = None
    port_high: int | None = None
    """ip_local_port_range, both ends included."""
    ports_reserved: int | None = None
    """How many of that range ip_local_reserved_ports takes out."""
    ipv6_loopback: bool | None = None

    somaxconn: int | None = None
    tcp_max_syn_backlog: int | None = None
    tcp_abort_on_overflow: int | None = None
    tcp_max_tw_buckets: int | None = None
    tcp_mem_pages: Triple | None = None
    """Low, pressure, high."""
    tcp_mem_used_pages: int | None = None
    tcp_rmem_bytes: Triple | None = None
    tcp_wmem_bytes: Triple | None = None
    """Least, default, most, of one socket's buffer."""
    conntrack_max: int | None = None
    conntrack_count: int | None = None

    nproc_soft: int | None = None
    pid_max: int | None = None
    threads_max: int | None = None
    threads_used: int | None = None
    cgroup_pids_limit: int | None = None
    cgroup_pids_used: int | None = None


def read_machine(root: Path = Path("/")) -> Machine:
    """Reads `root`/proc and `root`/sys; tests pass a tree of their own.

    Where there is no /proc (not Linux), descriptors and cores still come from the C library; the
    page size always does.
    """
    here = root == Path("/")
    ipv4 = root / "proc/sys/net/ipv4"
    netfilter = root / "proc/sys/net/netfilter"
    kernel = root / "proc/sys/kernel"
    nofile_soft, nofile_hard = _rlimit(root, "Max open files", resource.RLIMIT_NOFILE, here)
    files = _numbers(root / "proc/sys/fs/file-nr")
    low, high = _pair(_numbers(ipv4 / "ip_local_port_range"))
    return Machine(
        nofile_soft=nofile_soft,
        nofile_hard=nofile_hard,
        files_max=_number(root / "proc/sys/fs/file-max"),
        files_open=files[0] - files[1] if len(files) >= 2 else None,
        cores_online=_cores_online(root, here),
        cores_allowed=_cores_allowed(root),
        cgroup_cores=_cgroup_cores(root),
        page_bytes=os.sysconf("SC_PAGE_SIZE"),
        port_low=low,
        port_high=high,
        ports_reserved=_ports_reserved(ipv4 / "ip_local_reserved_ports", low, high),
        ipv6_loopback=_ipv6_loopback(root),
        somaxconn=_number(root / "proc/sys/net/core/somaxconn"),
        tcp_max_syn_backlog=_number(ipv4 / "tcp_max_syn_backlog"),
        tcp_abort_on_overflow=_number(ipv4 / "tcp_abort_on_overflow"),
        tcp_max_tw_buckets=_number(ipv4 / "tcp_max_tw_buckets"),
        tcp_mem_pages=_triple(ipv4 / "tcp_mem"),
        tcp_mem_used_pages=_tcp_mem_used_pages(root),
        tcp_rmem_bytes=_triple(ipv4 / "tcp_rmem"),
        tcp_wmem_bytes=_triple(ipv4 / "tcp_wmem"),
        conntrack_max=_number(netfilter / "nf_conntrack_max"),
        conntrack_count=_number(netfilter / "nf_conntrack_count"),
        nproc_soft=_rlimit(root, "Max processes", resource.RLIMIT_NPROC, here)[0],
        pid_max=_number(kernel / "pid_max"),
        threads_max=_number(kernel / "threads-max"),
        threads_used=_threads_used(root),
        **_memory(root),
        **_cgroup_memory(root),
        **_cgroup_pids(root),
    )


# --- Files of /proc and /sys ---------------------------------------------------------------------


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _lines(path: Path) -> list[str]:
    return (_text(path) or "").splitlines()


def _to_int(word: str) -> int | None:
    """None for "max", "unlimited" and whatever else isn't a number."""
    try:
        return int(word)
    except ValueError:
        return None


def _numbers(path: Path) -> list[int]:
    """The numbers of a one-line file; none at all if one of its words isn't a number."""
    numbers = [_to_int(word) for word in (_text(path) or "").split()]
    return [] if None in numbers else [number for number in numbers if number is not None]


def _number(path: Path) -> int | None:
    numbers = _numbers(path)
    return numbers[0] if len(numbers) == 1 else None


def _pair(numbers: list[int]) -> tuple[int | None, int | None]:
    return (numbers[0], numbers[1]) if len(numbers) == 2 else (None, None)


def _triple(path: Path) -> Triple | None:
    numbers = _numbers(path)
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None


def _rlimit(root: Path, title: str, which: int, here: bool) -> tuple[int | None, int | None]:
    """Soft and hard, as /proc/self/limits has them under `title`."""
    for line in _lines(root / "proc/self/limits"):
        if line.startswith(title):
            words = line.removeprefix(title).split()
            return (_to_int(words[0]), _to_int(words[1])) if len(words) >= 2 else (None, None)
    if not here:
        return None, None
    soft, hard = resource.getrlimit(which)
    unlimited = resource.RLIM_INFINITY
    return (None if soft == unlimited else soft, None if hard == unlimited else hard)


def _list_size(text: str) -> int | None:
    """How many numbers a list such as "0-3,8" names."""
    total = 0
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        low, high = _to_int(first), _to_int(last or first)
        if low is None or high is None or high < low:
            return None
        total += high - low + 1
    return total


def _cores_online(root: Path, here: bool) -> int | None:
    size = _list_size(_text(root / "sys/devices/system/cpu/online") or "")
    return size if size is not None or not here else os.cpu_count()


def _cores_allowed(root: Path) -> int | None:
    for line in _lines(root / "proc/self/status"):
        if line.startswith("Cpus_allowed_list:"):
            return _list_size(line.partition(":")[2])
    return None


class _Memory(TypedDict):
    memory_total_bytes: int | None
    memory_available_bytes: int | None
    swap_bytes: int | None


def _memory(root: Path) -> _Memory:
    found: dict[str, int] = {}
    for line in _lines(root / "proc/meminfo"):
        name, _, rest = line.partition(":")
        words = rest.split()
        kib = _to_int(words[0]) if words else None
        if kib is not None:
            found[name] = kib * 1024
    return _Memory(
        memory_total_bytes=found.get("MemTotal"),
        memory_available_bytes=found.get("MemAvailable"),
        swap_bytes=found.get("SwapTotal"),
    )


def _ports_reserved(path: Path, low: int | None, high: int | None) -> int | None:
    """Of "8080,9148-9150", those inside the ephemeral range: the others cost nothing."""
    text = _text(path)
    if text is None or low is None or high is None:
        return None
    total = 0
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        start, end = _to_int(first), _to_int(last or first)
        if start is not None and end is not None:
            total += max(0, min(end, high) - max(start, low) + 1)
    return total


def _ipv6_loopback(root: Path) -> bool | None:
    """A kernel without IPv6 has no if_inet6 at all, so its absence is an answer."""
    if not (root / "proc/net").is_dir():
        return None
    return any(line.startswith("0" * 31 + "1 ") for line in _lines(root / "proc/net/if_inet6"))


def _tcp_mem_used_pages(root: Path) -> int | None:
    """IPv6 sockets are counted in with these."""
    for line in _lines(root / "proc/net/sockstat"):
        words = line.split()
        if words[:1] == ["TCP:"] and "mem" in words[:-1]:
            return _to_int(words[words.index("mem") + 1])
    return None


def _threads_used(root: Path) -> int | None:
    """Of the whole system: the fourth word of /proc/loadavg is runnable/existing."""
    words = (_text(root / "proc/loadavg") or "").split()
    return _to_int(words[3].partition("/")[2]) if len(words) > 3 else None


# --- Control groups ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Mount:
    """A mounted cgroup hierarchy; `controllers` is empty for v2, which has them all."""

    controllers: frozenset[str]
    top: PurePosixPath
    """The group that is mounted: "/" outside of containers."""
    point: Path


def _mounts(root: Path) -> list[_Mount]:
    """From mountinfo: id parent device top point options… - type source super-options."""
    found = []
    for line in _lines(root / "proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        words, kind = left.split(), right.split()
        if len(words) < 5 or len(kind) < 3 or kind[0] not in ("cgroup", "cgroup2"):
            continue
        controllers = frozenset(kind[2].split(",")) if kind[0] == "cgroup" else frozenset[str]()
        found.append(_Mount(controllers, PurePosixPath(words[3]), root / words[4].lstrip("/")))
    return found or _usual_mounts(root)


def _usual_mounts(root: Path) -> list[_Mount]:
    base, top = root / "sys/fs/cgroup", PurePosixPath("/")
    names = {"memory": "memory", "cpu": "cpu", "cpu,cpuacct": "cpu", "pids": "pids"}
    v1 = [
        _Mount(frozenset({controller}), top, base / name)
        for name, controller in names.items()
        if (base / name).is_dir()
    ]
    return [*v1, _Mount(frozenset(), top, base / "unified"), _Mount(frozenset(), top, base)]


def _groups(root: Path) -> Iterator[tuple[frozenset[str], PurePosixPath]]:
    """Lines of /proc/self/cgroup, `id:controllers:path`; v2 has no controllers."""
    for line in _lines(root / "proc/self/cgroup"):
        words = line.split(":", 2)
        if len(words) == 3:
            controllers = frozenset(words[1].split(",")) if words[1] else frozenset[str]()
            yield controllers, PurePosixPath(words[2])


def _levels(root: Path, controller: str) -> Iterator[Path]:
    """Every directory whose limits of this controller bind us, our own group first."""
    for mount in _mounts(root):
        for controllers, group in _groups(root):
            if mount.controllers:
                applies = controller in mount.controllers and controller in controllers
            else:
                applies = not controllers
            if not applies:
                continue
            # Seen from inside a container the group may lie outside of what is mounted: then the
            # mount's top is all that can be read.
            inside = ".." not in group.parts and group.is_relative_to(mount.top)
            own = mount.point / group.relative_to(mount.top) if inside else mount.point
            yield own
            if own != mount.point:
                yield from own.parents[: len(own.relative_to(mount.point).parts)]


def _tightest(levels: Iterator[tuple[int, int]]) -> tuple[int | None, int | None]:
    """Of (limit, used), the one with the least room left."""
    return min(levels, key=lambda level: level[0] - level[1], default=(None, None))


class _CgroupMemory(TypedDict):
    cgroup_memory_limit_bytes: int | None
    cgroup_memory_used_bytes: int | None


def _cgroup_memory(root: Path) -> _CgroupMemory:
    def levels() -> Iterator[tuple[int, int]]:
        for group in _levels(root, "memory"):
            used = _number(group / "memory.current") or _number(group / "memory.usage_in_bytes")
            working_set = max(0, (used or 0) - _inactive_file_bytes(group))
            for name in ("memory.max", "memory.high", "memory.limit_in_bytes"):
                limit = _number(group / name)
                if limit is not None and limit < _UNLIMITED_BYTES:
                    yield limit, working_set

    limit, used = _tightest(levels())
    return _CgroupMemory(cgroup_memory_limit_bytes=limit, cgroup_memory_used_bytes=used)


def _inactive_file_bytes(group: Path) -> int:
    """v1's "inactive_file" leaves out the children, "total_inactive_file" has them; v2 always."""
    found = {}
    for line in _lines(group / "memory.stat"):
        name, _, value = line.partition(" ")
        found[name] = _to_int(value) or 0
    return found.get("total_inactive_file", found.get("inactive_file", 0))


class _CgroupPids(TypedDict):
    cgroup_pids_limit: int | None
    cgroup_pids_used: int | None


def _cgroup_pids(root: Path) -> _CgroupPids:
    def levels() -> Iterator[tuple[int, int]]:
        for group in _levels(root, "pids"):
            limit = _number(group / "pids.max")
            if limit is not None:
                yield limit, _number(group / "pids.current") or 0

    limit, used = _tightest(levels())
    return _CgroupPids(cgroup_pids_limit=limit, cgroup_pids_used=used)


def _cgroup_cores(root: Path) -> float | None:
    quotas = []
    for group in _levels(root, "cpu"):
        words = (_text(group / "cpu.max") or "").split()
        quota, period = (_to_int(words[0]), _to_int(words[1])) if len(words) == 2 else (None, None)
        if quota is None:
            quota = _number(group / "cpu.cfs_quota_us")
            period = _number(group / "cpu.cfs_period_us")
        if quota is not None and period is not None and quota > 0 and period > 0:
            quotas.append(quota / period)
    return min(quotas, default=None)
