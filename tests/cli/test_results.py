"""A run that goes well: what its document holds, and the smallest, the odd and the other worlds."""

import json
import math
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.results.codec import decode
from harness.results.schema import DoctorResult, NamesResult, RunResult
from harness.results.storage import load
from tests.cli.command import Commands

EVERYWHERE = {"schema", "kind", "spec", "environment", "seed", "ok", "warnings", "error"}
RUN = {
    *("nranks", "workers", "start_window", "total_s", "mean_total_s", "formation", "allgathers"),
    *("wrong", "phases", "work", "memory", "descriptors", "groups", "saturated", "trace_hash"),
}
INSIDE = {
    "environment": {"version", "python", "kernel", "cores", "memory_bytes", "nofile", "loop"},
    "formation": {"name", "seconds", "ranks_per_s", "roots"},
    "allgathers": {
        *("name", "record_bytes", "seconds", "steps", "of_steps", "transfers", "transfers_per_s"),
        *("algbw", "busbw", "wrong"),
    },
    "phases": {"name", "mean_s", "p50_s", "p99_s", "max_s", "cpu_s", "kind", "within"},
    "work": {"ranks", "root", "store", "controller"},
    "memory": {"rss_bytes_per_rank", "peak_rss_bytes", "kernel_socket_bytes"},
    "descriptors": {"held_per_rank", "peak_per_worker"},
}
WORK = {
    *("messages", "bytes", "connections", "retries", "requests", "syscalls", "cpu_s"),
    "peak_rss_bytes",
}
ERROR = {"what", "evidence", "cause", "next", "rank", "phase", "peer", "worker", "waiting"}

needs_ipv6 = pytest.mark.skipif(
    not Path("/proc/net/if_inet6").exists() or " lo" not in Path("/proc/net/if_inet6").read_text(),
    reason="this machine has no ::1",
)


def check_keys(document: dict[str, Any]) -> None:
    assert document.keys() >= EVERYWHERE | RUN
    for name, keys in INSIDE.items():
        value = document[name]
        for each in value if isinstance(value, list) else [value]:
            assert each.keys() >= keys, name
    for role, work in document["work"].items():
        assert work is None or work.keys() >= WORK, role


def check_sums(document: dict[str, Any]) -> None:
    top = [phase for phase in document["phases"] if phase["within"] is None]
    assert "rest" in {phase["name"] for phase in top}
    total = math.fsum(phase["mean_s"] for phase in top)
    assert total == pytest.approx(document["mean_total_s"], rel=1e-9)
    assert document["mean_total_s"] <= document["total_s"]


@pytest.mark.parametrize(
    ("formation", "allgather", "server"),
    [("tcpstore", "ring-pipelined", "store"), ("nccl-root", "ring", "root")],
)
def test_every_key_of_the_contract_is_there(
    emucoll: Commands, tmp_path: Path, formation: str, allgather: str, server: str
) -> None:
    out = tmp_path / "kept"
    flags = ("--formation", formation, "--allgather", allgather, "--record-bytes", 120)
    ended = emucoll("run", "-np", 65, *flags, "--workers", 2, "--out", out, "--json")
    document = ended.document
    check_keys(document)
    check_sums(document)
    assert decode(ended.out, RunResult).ok
    assert document["work"][server]["cpu_s"] > 0
    assert document["work"][{"store": "root", "root": "store"}[server]] is None
    rings = [phase for phase in document["phases"] if phase["name"] == "bootstrap.ring"]
    assert [phase["within"] for phase in rings] == ["bootstrap"]
    [gather] = document["allgathers"]
    assert (gather["steps"], gather["of_steps"], gather["transfers"]) == (64, 64, 65 * 64)
    kept, times = load(out)
    assert kept == decode(ended.out, RunResult)
    assert {len(each) for each in times.values()} == {65}
    assert np.mean(times["total"]) == pytest.approx(document["mean_total_s"])
    assert sorted(path.name for path in out.iterdir()) == [
        "pids.json",
        "ranks.npz",
        "recording.npz",
        "result.json",
    ]
    pids = json.loads((out / "pids.json").read_text())
    assert len(pids["workers"]) == 2
    assert isinstance(pids[server], int)


def test_a_failed_run_has_every_key_too(emucoll: Commands) -> None:
    refused = emucoll("run", "-np", 0, "--json").document
    failed = emucoll("run", "-np", 3, "--inject", "rank=1:raise", "--json").document
    for document in (refused, failed):
        assert document.keys() >= EVERYWHERE | RUN
        assert document["error"].keys() == ERROR
    assert refused["environment"] is None
    assert failed["environment"].keys() >= INSIDE["environment"]


@pytest.mark.parametrize("command", ["formations", "allgathers"])
def test_names(emucoll: Commands, command: str) -> None:
    ended = emucoll(command, "--json")
    names = {name.name for name in decode(ended.out, NamesResult).names}
    assert (
        names
        == {
            "formations": {"tcpstore", "nccl-root", "nccl-root-2.22", "nccl-multiroot"},
            "allgathers": {
                *("ring", "ring-bidir", "ring-bidir-headerless", "ring-pipelined"),
                "bruck",
            },
        }[command]
    )
    table = emucoll(command)
    assert {line.split()[0] for line in table.out.decode().splitlines()} == names


def test_doctor_has_the_keys_of_the_contract(emucoll: Commands) -> None:
    ended = emucoll("doctor", "-np", 8, "--formation", "nccl-root", "--json")
    assert ended.document.keys() >= EVERYWHERE | {"fits", "limits"}
    assert decode(ended.out, DoctorResult).kind == "projected"


@pytest.mark.parametrize(
    ("n", "formation", "allgather", "size"),
    [
        (1, "tcpstore", "ring", 28),
        (1, "nccl-root", "ring-pipelined", 0),
        (2, "tcpstore", "ring-pipelined", 0),
        (2, "nccl-root", "ring", 0),
        (1, "nccl-root-2.22", "ring", 0),
        (2, "nccl-root-2.22", "ring-pipelined", 28),
    ],
)
def test_one_and_two_ranks_and_records_of_no_bytes(
    emucoll: Commands, n: int, formation: str, allgather: str, size: int
) -> None:
    flags = ("--formation", formation, "--allgather", allgather, "--record-bytes", size)
    document = emucoll("run", "-np", n, *flags, "--json").document
    check_keys(document)
    check_sums(document)
    [gather] = document["allgathers"]
    assert (document["wrong"], gather["transfers"]) == (0, n * (n - 1))


@needs_ipv6
@pytest.mark.parametrize(
    ("formation", "n"),
    [
        ("tcpstore", 5),
        ("tcpstore", 64),
        ("nccl-root", 5),
        ("nccl-root", 64),
        ("nccl-root-2.22", 64),
    ],
)
def test_ipv6(emucoll: Commands, formation: str, n: int) -> None:
    ended = emucoll("run", "-np", n, "--ip", 6, "--formation", formation, "--json")
    assert (ended.exit_code, ended.document["wrong"]) == (0, 0)
    assert ended.document["spec"]["ip"] == "6"


@pytest.mark.parametrize(("n", "roots"), [(5, 5), (64, 3), (300, None)])
def test_what_several_roots_did_is_one_sum(emucoll: Commands, n: int, roots: int | None) -> None:
    asked = () if roots is None else ("--roots", roots)
    flags = ("-np", n, "--formation", "nccl-multiroot", *asked)
    document = emucoll("run", *flags, "--json").document
    count = roots or 3
    assert (document["wrong"], document["formation"]["roots"]) == (0, count)
    assert document["spec"]["roots"] == roots
    root, ranks = document["work"]["root"], document["work"]["ranks"]
    assert (ranks["connections"], ranks["retries"]) == (2 * n + count, 0)
    assert (root["connections"], root["retries"]) == (2 * n + count, 0)
    assert root["messages"] == 2 * n
    table = emucoll("run", *flags).out.decode()
    assert f" ranks/s, {count} roots\n" in table


def test_asyncio_does_where_uvloop_is_missing(emucoll: Commands, tmp_path: Path) -> None:
    (tmp_path / "uvloop.py").write_text("raise ImportError('not installed')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    without = {"env": {"PYTHONPATH": path}}
    ended = emucoll("run", "-np", 33, "--allgather", "ring", "--json", **without)
    assert (ended.exit_code, ended.document["environment"]["loop"]) == (0, "asyncio")
    doctor = emucoll("doctor", "-np", 33, "--json", **without)
    assert doctor.document["environment"]["loop"] == "asyncio"


def test_two_runs_at_once(emucoll: Commands) -> None:
    flags = ("-np", 256, "--record-bytes", 64, "--json")
    with ThreadPoolExecutor() as pool:
        both = list(
            pool.map(
                lambda formation: emucoll("run", *flags, "--formation", formation),
                ("tcpstore", "nccl-root"),
            )
        )
    for ended in both:
        assert (ended.exit_code, ended.document["wrong"]) == (0, 0)
        assert not {"strangers-dropped", "controller-strangers"} & ended.warnings.keys()
