"""What a result ran on: enough to tell whether two results may be compared.

Reads the machine once, at the start, and changes nothing. Names no host, user or path.
"""

import os
import platform
import resource
from pathlib import Path

import msgspec

from emucoll import __version__


class Environment(msgspec.Struct, frozen=True, kw_only=True):
    """Software and machine. A value the system would not tell is None."""

    version: str
    """emucoll's."""
    python: str
    kernel: str
    cores: int
    """Cores this process may run on: its affinity, not the machine's count."""
    memory_bytes: int | None
    """Physical memory."""
    nofile: int | None
    """Descriptors a process may raise its limit to (the hard limit of RLIMIT_NOFILE)."""
    loop: str
    """The event loop of the workers: uvloop or asyncio."""
    cpu_model: str | None = None
    load_average: float | None = None
    """Runnable processes over the minute before the run: what else used the cores."""


def read_environment(loop_name: str) -> Environment:
    """The machine as it is now. `loop_name` is the event loop that workers use."""
    return Environment(
        version=__version__,
        python=platform.python_version(),
        kernel=f"{platform.system()} {platform.release()}",
        cores=_cores(),
        memory_bytes=_memory_bytes(),
        nofile=_nofile(),
        loop=loop_name,
        cpu_model=_cpu_model(),
        load_average=_load_average(),
    )


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (OSError, ValueError):
        return None


def _nofile() -> int | None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard != resource.RLIM_INFINITY:
        return hard
    nr_open = _first_line_of("/proc/sys/fs/nr_open")
    return int(nr_open) if nr_open else None


def _cpu_model() -> str | None:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                key, _, value = line.partition(":")
                if key.strip() == "model name" and value.strip():
                    return value.strip()
    except OSError:
        pass
    return platform.processor() or None


def _load_average() -> float | None:
    try:
        return round(os.getloadavg()[0], 2)
    except OSError:
        return None


def _first_line_of(path: str) -> str | None:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").split("\n", 1)[0].strip()
    except OSError:
        return None
