import os
import platform
import resource
from pathlib import Path

import pytest

import emucoll
from harness.results import environment
from harness.results.environment import read_environment


def test_it_says_what_this_machine_says() -> None:
    here = read_environment("uvloop")
    assert here.version == emucoll.__version__
    assert here.python == platform.python_version()
    assert here.kernel == f"{os.uname().sysname} {os.uname().release}"
    assert here.cores == len(os.sched_getaffinity(0))
    assert here.nofile == resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert here.loop == "uvloop"


def test_memory_is_that_of_proc_meminfo() -> None:
    [total] = [
        int(line.split()[1]) * 1024
        for line in Path("/proc/meminfo").read_text().splitlines()
        if line.startswith("MemTotal:")
    ]
    assert read_environment("asyncio").memory_bytes == pytest.approx(total, rel=0.01)


def test_cores_are_those_of_the_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 5, 7})
    assert read_environment("asyncio").cores == 3


def test_an_unlimited_hard_limit_is_what_the_kernel_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    unlimited = (1024, resource.RLIM_INFINITY)
    monkeypatch.setattr(resource, "getrlimit", lambda which: unlimited)
    monkeypatch.setattr(environment, "_first_line_of", lambda path: "1048576")
    assert read_environment("asyncio").nofile == 1048576
    monkeypatch.setattr(environment, "_first_line_of", lambda path: None)
    assert read_environment("asyncio").nofile is None


def test_what_the_system_does_not_tell_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **more: object) -> None:
        raise OSError("not here")

    monkeypatch.setattr(os, "getloadavg", refuse)
    monkeypatch.setattr(os, "sysconf", refuse)
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(platform, "processor", lambda: "")
    here = read_environment("asyncio")
    assert (here.load_average, here.memory_bytes, here.cpu_model) == (None, None, None)
