"""What cannot be run is refused: exit 2, with what was wrong, what would be right, one document."""

import os
import resource
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from emucoll.errors import PreflightRefused, UsageError
from harness.engine import loopback
from harness.external.libnccl import find_library
from harness.preflight.machine import read_machine
from harness.report.progress import Progress
from harness.spec import Spec
from tests.cli.command import Commands


def allow_files(hard: int) -> Callable[[], None]:
    """For a child process: so many open files at most."""
    return lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["-np", "0"], "-np is 0: expected at least 1"),
        (["-np", "-3"], "-np is -3: expected at least 1"),
        (["-np", "abc"], "'abc' is not a valid integer"),
        (["-np", "1.5"], "'1.5' is not a valid integer"),
        (["-np", ""], "'' is not a valid integer"),
        (["-np", "9" * 30], "at most 2147483647"),
        (["-np", "9" * 5000], "is not a valid integer"),
        ([], "Missing option '-np'"),
        (["-np", "4", "--workers", "5"], "--workers is 5: expected at most 4"),
        (["-np", "4", "--start-window", "2"], "--start-window is 2: expected at least 3"),
        (["-np", "4", "--record-bytes", "-1"], "'-1' is negative"),
        (["-np", "4", "--record-bytes", "9EiB"], "no unit 'EiB'"),
        (["-np", "4", "--record-bytes", "2GiB"], "2147483647"),
        (["-np", "4", "--deadline", "nan"], "'nan' is not a time such as 50us"),
        (["-np", "4", "--uid-stagger-rate", "inf"], "--uid-stagger-rate is inf"),
        (["-np", "4", "--ip", "5"], "'5' is not one of '4', '6'"),
        (["-np", "4", "--root", "nccl"], "expected builtin, libnccl, libnccl:PATH or HOST:PORT"),
        (["-np", "4", "--formation", "tcp-store"], "did you mean 'tcpstore'?"),
        (["-np", "4", "--allgather", "rings"], "did you mean 'ring'?"),
        (["-np", "4", "--formatoin", "tcpstore"], "Did you mean '--formation'?"),
        (["-np", "4", "--inject", "rank=2:never-strat"], "did you mean 'rank=2:never-start'?"),
        (["-np", "4", "--inject", "sotre:kill"], "did you mean 'store:kill'?"),
        (["-np", "4", "--inject", "rank=4:raise"], "there is no rank 4, expected 0 to 3"),
        (["-np", "4", "--inject", "worker=9:kill"], "there is no worker 9, expected 0 to 3"),
        (
            ["-np", "4", "--roots", "2"],
            "--roots 2: formation tcpstore has no root, but a store; leave --roots out, or use "
            "--formation nccl-multiroot",
        ),
        (["-np", "4", "--formation", "nccl-root", "--roots", "1"], "nccl-root has one root; leave"),
        (["-np", "4", "--formation", "nccl-root-2.22", "--roots", "2"], "has one root; leave"),
        (
            ["-np", "4", "--formation", "nccl-multiroot", "--roots", "5"],
            "--roots is 5: expected at most 4",
        ),
        (["-np", "4", "--formation", "nccl-multiroot", "--roots", "0"], "expected at least 1"),
        (["-np", "4", "--inject", "root:kill"], "formation tcpstore has no root"),
        (["-np", "1", "--inject", "worker=0:kill"], "no block arrives"),
    ],
)
def test_what_cannot_be_run_is_said(emucoll: Commands, flags: list[str], says: str) -> None:
    refused = emucoll("run", *flags, "--json")
    assert refused.exit_code == 2
    assert says in refused.error["what"]
    assert refused.document["schema"] == "emucoll.run/1"


@pytest.mark.parametrize("command", ["doctor", "compare", "formations", "allgathers"])
def test_each_command_fails_with_its_own_document(emucoll: Commands, command: str) -> None:
    refused = emucoll(command, "--jsn", "--json")
    assert refused.exit_code == 2
    assert "Did you mean '--json'?" in refused.error["what"]
    own = {"doctor": "emucoll.doctor/1", "compare": "emucoll.compare/1"}
    assert refused.document["schema"] == own.get(command, "emucoll.names/1")


def test_without_json_the_error_is_on_stderr_alone(emucoll: Commands) -> None:
    for flags in (["-np", "0"], ["-np", "abc"], ["-np", "4", "--formation", "tcpstor"]):
        refused = emucoll("run", *flags)
        assert refused.exit_code == 2
        assert refused.out == b""
        assert "Traceback" not in refused.err
        assert refused.err.strip()
    unknown = emucoll("rum")
    assert unknown.exit_code == 2
    assert "Did you mean 'run'?" in unknown.err
    assert emucoll().exit_code == 2
    assert emucoll("--help").exit_code == 0


# -- what does not fit


def test_too_many_for_the_descriptors_is_refused_with_the_most_that_fits(
    emucoll: Commands,
) -> None:
    few = {"preexec_fn": allow_files(200)}
    refused = emucoll("run", "-np", 1000, "--workers", 1, "--json", **few)
    assert refused.exit_code == 2
    assert refused.error["what"] == "1,000 ranks don't fit this machine."
    said = refused.error["evidence"]
    assert "1,000 ranks × 3" in said
    assert "have 200 (hard limit of open files of a worker)" in said
    assert "remedy: --workers" in said
    most = int(said.partition("With the same flags -np ")[2].split()[0])
    assert emucoll("run", "-np", most, "--workers", 1, "--json", **few).exit_code == 0
    more = emucoll("doctor", "-np", most + 1, "--workers", 1, "--json", **few)
    assert more.exit_code == 2


def test_what_does_not_fit_at_once_is_refused_where_nobody_is_answered_before_all_came(
    emucoll: Commands,
) -> None:
    few = {"preexec_fn": allow_files(200)}
    collects = ("--formation", "nccl-root-2.22", "--json")
    refused = emucoll("run", "-np", 1000, "--workers", 1, *collects, **few)
    assert refused.exit_code == 2
    assert "so all ranks must fit at once" in refused.error["evidence"]
    windowed = emucoll("run", "-np", 64, "--start-window", 5, *collects)
    assert windowed.exit_code == 2
    said = windowed.error["evidence"]
    assert "this formation answers nobody before everybody has come" in said
    assert "remedy: no --start-window" in said


def test_a_limit_too_small_for_even_one_rank(emucoll: Commands) -> None:
    refused = emucoll("run", "-np", 1, "--json", preexec_fn=allow_files(20))
    assert refused.exit_code == 2
    assert "not even one rank fits" in refused.error["evidence"]


@pytest.mark.parametrize("n", [400_000, 2_147_483_647])
def test_huge_numbers_are_refused_by_arithmetic(emucoll: Commands, n: int) -> None:
    few = {"preexec_fn": allow_files(4096)}
    refused = emucoll("run", "-np", n, "--workers", 4, "--hop-delay", "1ms", "--json", **few)
    assert refused.exit_code == 2
    assert refused.error["what"] == f"{n:,} ranks don't fit this machine."
    assert "descriptors: " in refused.error["evidence"]
    assert "is the most that fits" in refused.error["evidence"]


def test_doctor_tells_every_limit_with_its_arithmetic(emucoll: Commands) -> None:
    document = emucoll("doctor", "-np", 64, "--json").document
    assert document["schema"] == "emucoll.doctor/1"
    assert document["fits"] is True
    limits = document["limits"]
    assert {"descriptors", "ports", "memory", "tcp_mem", "open_files"} <= {
        limit["name"] for limit in limits
    }
    for limit in limits:
        assert limit.keys() >= {"name", "have", "need", "because", "remedy", "fits"}
        assert " = " in limit["because"]


def test_tcp_mem_too_small_is_refused_with_the_sysctl(monkeypatch: pytest.MonkeyPatch) -> None:
    poor = replace(read_machine(), tcp_mem_pages=(400, 500, 600), tcp_mem_used_pages=100)
    monkeypatch.setattr(loopback, "read_machine", lambda: poor)
    with pytest.raises(PreflightRefused) as refused:
        loopback.run(Spec(nranks=1000), Progress(enabled=False))
    said = str(refused.value)
    assert "tcp_mem: 1,000 ring connections × 2 ends × 1 page" in said
    assert "have 500 pages (hard limit of tcp_mem, 100 pages of it in use)" in said
    assert "remedy: sysctl -w net.ipv4.tcp_mem=" in said
    assert "-np 250 is the most that fits" in said


# -- the real root


def test_a_root_that_is_not_there_names_the_extra(emucoll: Commands) -> None:
    try:
        pytest.skip(f"this machine has {find_library()}")
    except UsageError:
        pass
    refused = emucoll("run", "-np", 4, "--formation", "nccl-root", "--root", "libnccl", "--json")
    assert refused.exit_code == 2
    assert "pip install 'emucoll[interop]'" in refused.error["what"]


def a_library() -> str:
    """The path of a library that is not NCCL's."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.split()[-1]
        if os.path.basename(path).startswith("libc") and ".so" in path:
            return path
    pytest.skip("this process has no shared libc")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/nowhere/libnccl.so.2", "there is no libnccl at /nowhere/libnccl.so.2: no such file"),
        (str(Path(__file__)), "can't be loaded as libnccl"),
        ("libc", "is not libnccl: it has no ncclGetVersion"),
    ],
)
def test_a_root_that_is_no_libnccl(emucoll: Commands, path: str, says: str) -> None:
    root = f"libnccl:{a_library() if path == 'libc' else path}"
    refused = emucoll("run", "-np", 4, "--formation", "nccl-root", "--root", root, "--json")
    assert refused.exit_code == 2
    assert says in refused.error["what"]
