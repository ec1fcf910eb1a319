"""Ranks and servers of other programs: they join, or what they do wrong is told."""

import json
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from emucoll.wire.nccl import DEFAULT_COMM_MAGIC, UniqueId
from tests.cli.command import Commands, Running
from tests.cli.refusals import refusal
from tests.servers import serve_root, serve_store

pytestmark = pytest.mark.waits

EXAMPLE = Path(__file__).parents[2] / "examples" / "external_rank.py"
RECORD = 64
RING = ("--allgather", "ring", "--record-bytes", RECORD, "--json")


def be(rank: int, rendezvous: Path, *steps: int) -> "subprocess.CompletedProcess[str]":
    """The example, as one rank."""
    command = [sys.executable, EXAMPLE, rendezvous, *map(str, (rank, RECORD, *steps))]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@contextmanager
def being(rank: int, rendezvous: Path, *steps: int) -> Iterator[None]:
    """The example beside whatever else happens; ended with it."""
    command = [sys.executable, EXAMPLE, rendezvous, *map(str, (rank, RECORD, *steps))]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            yield
        finally:
            process.kill()


def wait_for(running: Running, path: Path) -> dict[str, Any]:
    running.until(path.exists)
    rendezvous = json.loads(path.read_text())
    assert isinstance(rendezvous, dict)
    return rendezvous


@pytest.mark.parametrize("formation", ["nccl-root", "nccl-root-2.22", "nccl-multiroot"])
def test_a_rank_of_another_program(emucoll: Commands, tmp_path: Path, formation: str) -> None:
    out = tmp_path / "out"
    flags = ("--formation", formation, "--external-ranks", 3, "--out", out, "--workers", 2)
    with emucoll.start("run", "-np", 8, *flags, *RING) as running:
        wait_for(running, out / "rendezvous.json")
        external = be(3, out / "rendezvous.json")
        document = running.end().document
    assert (external.returncode, external.stderr) == (0, "")
    assert external.stdout == "rank 3 has the records of 8 of 8 ranks\n"
    [gather] = document["allgathers"]
    assert (document["ok"], gather["wrong"], gather["transfers"]) == (True, 0, 7 * 7)
    assert document["descriptors"]["held_per_rank"] == 3
    assert document["spec"]["external_ranks"] == [3]
    means = [phase["mean_s"] for phase in document["phases"] if phase["within"] is None]
    assert sum(means) == pytest.approx(document["mean_total_s"])


def test_four_ranks_among_1020(emucoll: Commands, tmp_path: Path) -> None:
    """They find id and environment on stderr and in the rendezvous."""
    out = tmp_path / "out"
    flags = ("--formation", "nccl-root", "--external-ranks", "0-3", "--out", out, "--steps", 20)
    with emucoll.start("run", "-np", 1024, *flags, *RING) as running:
        rendezvous = wait_for(running, out / "rendezvous.json")
        with ExitStack() as externals:
            for rank in range(4):
                externals.enter_context(being(rank, out / "rendezvous.json", 20))
            ended = running.end()
    assert (ended.document["ok"], ended.document["wrong"]) == (True, 0)
    [gather] = ended.document["allgathers"]
    assert (gather["steps"], gather["transfers"]) == (20, 1020 * 20)
    assert f"unique id {rendezvous['unique_ids'][0]}" in ended.err
    for rank, environment in enumerate(rendezvous["environment"]):
        assert environment["RANK"] == environment["LOCAL_RANK"] == str(rank)
        assert (environment["WORLD_SIZE"], environment["LOCAL_WORLD_SIZE"]) == ("1024", "8")
        at = f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"
        assert at == rendezvous["roots"][0]
        assert f"RANK={rank} WORLD_SIZE=1024" in ended.err


def test_a_worker_all_of_whose_ranks_are_external(emucoll: Commands, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ("--formation", "nccl-root", "--external-ranks", "2-3", "--out", out, "--workers", 2)
    with emucoll.start("run", "-np", 4, *flags, *RING) as running:
        rendezvous = wait_for(running, out / "rendezvous.json")
        assert rendezvous["external_ranks"] == [2, 3]
        with being(2, out / "rendezvous.json"), being(3, out / "rendezvous.json"):
            document = running.end().document
    assert (document["ok"], document["wrong"]) == (True, 0)


def test_a_record_that_changes_on_its_way_is_found(emucoll: Commands, tmp_path: Path) -> None:
    """What rank 3 sends nobody knows before, but it must be the same everywhere: rank 4 passes it
    on flipped, to a rank of the same worker, or to one of another.
    """
    for workers in (1, 8):
        out = tmp_path / f"out-{workers}"
        flags = ("--formation", "nccl-root", "--external-ranks", 3, "--out", out)
        faults = ("--workers", workers, "--inject", "rank=4:corrupt=forwarded")
        with emucoll.start("run", "-np", 8, *flags, *faults, *RING) as running:
            wait_for(running, out / "rendezvous.json")
            be(3, out / "rendezvous.json")
            ended = running.end()
        assert (ended.exit_code, ended.document["ok"]) == (1, False)
        assert ended.document["wrong"] >= 1
        assert {wrong["block"] for wrong in ended.document["wrong_blocks"]} == {3}


def test_one_that_never_comes(emucoll: Commands) -> None:
    flags = ("--formation", "nccl-root", "--external-ranks", 3, "--deadline", "4s")
    ended = emucoll("run", "-np", 8, *flags, *RING)
    assert (ended.error["rank"], ended.error["phase"]) == (3, "external")
    assert "the program that should be it has not come" in ended.error["cause"]


def test_one_with_a_wrong_magic(emucoll: Commands, tmp_path: Path) -> None:
    """It is a stranger: dropped, and the rank has not come."""
    out = tmp_path / "out"
    flags = ("--formation", "nccl-root", "--external-ranks", 3, "--out", out, "--deadline", "5s")
    with emucoll.start("run", "-np", 8, *flags, *RING) as running:
        rendezvous = wait_for(running, out / "rendezvous.json")
        mistaken = tmp_path / "mistaken.json"
        other = bytes(8) + bytes.fromhex(rendezvous["unique_ids"][0])[8:]
        mistaken.write_text(json.dumps(rendezvous | {"unique_ids": [other.hex()]}))
        with being(3, mistaken):
            ended = running.end()
    assert ended.error["rank"] == 3
    assert "strangers-dropped" in ended.warnings


def test_a_rank_taken_twice(emucoll: Commands, tmp_path: Path) -> None:
    """Rank 2 runs here; an external program says that it is rank 2, before it or after it."""
    out = tmp_path / "out"
    flags = ("--formation", "nccl-root", "--external-ranks", 3, "--out", out, "--deadline", "20s")
    with emucoll.start("run", "-np", 8, *flags, *RING) as running:
        wait_for(running, out / "rendezvous.json")
        with being(2, out / "rendezvous.json"):
            ended = running.end()
    assert ended.exit_code == 3
    assert "rank 2" in ended.error["what"]
    assert "external are 3" in ended.error["cause"]


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--external-ranks 3-1", "3-1 is no range"),
        ("--external-ranks x", "expected ranks and ranges of them, as in 3,7-9"),
        ("--external-ranks 3,2-4", "rank 3 is named twice"),
        ("--external-ranks 8", "there is no rank 8, expected 0 to 7"),
        ("--external-ranks 0-7", "all 8 ranks are external"),
        ("--external-ranks 3 --allgather ring-pipelined", "does not bring records one by one"),
        ("--store 127.0.0.1:1 --formation nccl-root", "formation nccl-root has no store"),
        ("--store 10.1.2.3:80", "ranks have loopback addresses"),
        ("--store 127.0.0.1:99999", "there is no port 99999"),
        ("--store no-such-host.invalid:1", "--store no-such-host.invalid:1"),
        ("--root 127.0.0.1:1", "formation tcpstore has no root"),
        ("--root 127.0.0.1:1 --formation nccl-multiroot --roots 2", "this run needs 2"),
        ("--root 127.0.0.1:1 --formation nccl-root --restarts 1", "this run needs 2"),
        ("--root 127.0.0.1:1 --formation nccl-root --unique-id /none", "No such file"),
        ("--root 127.0.0.1:1 --formation nccl-root --inject root:kill", "was not started here"),
        ("--unique-id x", "it is of a root that runs already"),
    ],
)
def test_what_cannot_be_external(flags: str, why: str) -> None:
    assert why in refusal("-np", 8, *flags.split())


# -- servers


def test_a_store_that_runs_already(emucoll: Commands) -> None:
    with serve_store() as (address, _):
        for _ in range(2):  # each run has keys of its own
            document = emucoll("run", "-np", 12, "--store", address, "--json").document
            assert (document["ok"], document["wrong"]) == (True, 0)
            assert document["servers"] == {"store": f"at {address}"}
            assert document["work"]["store"] is None


def test_a_store_with_the_unique_ids_of_another_run(emucoll: Commands) -> None:
    """PyTorch's keys are the same in every run."""
    with serve_store() as (address, _):
        flags = ("-np", 2, "--store", address, "--plan", "pytorch", "--json")
        assert emucoll("run", *flags).exit_code == 0
        failed = emucoll("run", *flags, "--start-skew", "ranks:0=1s")  # rank 1 reads before it
    assert failed.exit_code == 1
    assert "the store holds unique ids of another run" in failed.error["evidence"]
    assert "it holds what another run has left" in failed.error["cause"]


@pytest.mark.parametrize("given", ["nothing", "raw", "hexadecimal"])
def test_a_root_that_runs_already(emucoll: Commands, tmp_path: Path, given: str) -> None:
    magic = DEFAULT_COMM_MAGIC if given == "nothing" else 0x1234_5678_9ABC_DEF0
    with serve_root(8, magic) as address:
        flags: tuple[object, ...] = ("--formation", "nccl-root", "--root", address)
        if given != "nothing":
            data = UniqueId(magic, address).pack()
            path = tmp_path / "id"
            path.write_bytes(data if given == "raw" else data.hex().encode() + b"\n")
            flags = (*flags, "--unique-id", path)
        document = emucoll("run", "-np", 8, *flags, "--json").document
    assert (document["ok"], document["wrong"]) == (True, 0)
    assert document["servers"] == {"root": f"at {address}"}


def test_nobody_at_that_address(emucoll: Commands) -> None:
    with serve_store() as (address, _):
        pass
    ended = emucoll("run", "-np", 2, "--store", address, "--json")
    assert ended.exit_code == 2
    assert f"--store {address}: nobody listens there" in ended.error["what"]


def test_one_that_stands_there_and_says_nothing(emucoll: Commands) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        ended = emucoll("run", "-np", 2, "--store", address, "--deadline", "4s", "--json")
    assert ended.exit_code == 3
    assert "the store does not answer" in ended.error["what"]
    assert f"at {address}" in ended.error["evidence"]
