"""Faults from public issues that live on a socket, each with the behaviour that they ask for.

Scanners (nccl #1612) are in test_strangers, a stuck rank named (nccl #1324) in test_faults, a full
backlog and its retries in the preflight's tests and `tests/unit/formation`.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.command import CHECKOUT, Commands, send
from tests.cli.test_external import RECORD, be, wait_for

pytestmark = pytest.mark.waits


def test_interrupted_system_calls_are_made_again(emucoll: Commands) -> None:
    """nccl #1757: accept failed with EINTR. A process that is stopped and goes on has its waits
    interrupted so.
    """
    stagger = ("--uid-stagger-threshold", 1, "--uid-stagger-rate", 100)
    with emucoll.start(
        "run", "-np", 150, "--formation", "nccl-root", *stagger, "--workers", 2, "--json"
    ) as running:
        pids = running.published_pids()
        running.until(lambda: "forming" in running.err)
        for _ in range(40):
            for pid in pids.values():
                send(pid, signal.SIGSTOP)
                send(pid, signal.SIGCONT)
            if running.process.poll() is not None:
                break
            threading.Event().wait(0.02)
        document = running.end().document
    assert (document["ok"], document["wrong"]) == (True, 0)
    assert document["work"]["ranks"]["retries"] == 0


@pytest.mark.parametrize(("n", "host"), [(15, 8), (15, 7), (17, 8), (9, 8)])
@pytest.mark.parametrize("plan", ["nccl-2.22.3", "nccl-2.30.7"])
def test_uneven_hosts(emucoll: Commands, plan: str, n: int, host: int) -> None:
    """nccl #2385: 7 + 8 ranks on two nodes deadlocked. Barrier and node numbering take any host."""
    flags = ("--plan", plan, "--ranks-per-host", host, "--workers", 2, "--json")
    document = emucoll("run", "-np", n, *flags).document
    assert (document["ok"], document["wrong"]) == (True, 0)
    names = {phase["name"]: phase for phase in document["phases"]}
    assert names["rest.barrier"]["max_s"] > 0


DIVERGED = """
from emucoll.formation.base import Formation
from emucoll.formation.store_client import StoreClient

class Counted(Formation):
    '''Keys by a counter of each process's own, one ahead where a communicator was skipped.'''
    server = "store"
    async def form(self, rank, job):
        counter = 1 if rank.rank == 5 else 0
        with rank.span("bootstrap.create_store", peer="store"):
            store = await StoreClient.open(rank, job)
        await store.set(b"comm-%d-rank-%d" % (counter, rank.rank), b"here")
        following = (rank.rank + 1) % job.nranks
        with rank.span("bootstrap.get_key", peer=following):
            await store.get(b"comm-%d-rank-%d" % (counter, following), 4)
        raise AssertionError("not reached")
"""


def test_keys_that_diverged_are_named(emucoll: Commands, tmp_path: Path) -> None:
    """torchcomms #3093: some ranks skipped a communicator and a per-process counter made keys
    differ. Which keys are stuck, and how many wait, is told.
    """
    (tmp_path / "diverged.py").write_text(
        DIVERGED.replace("raise", "import asyncio; await asyncio.sleep(99); raise")
    )
    flags = ("--formation", "diverged:Counted", "--deadline", "5s", "--json")
    ended = emucoll("run", "-np", 8, *flags, cwd=tmp_path)
    assert ended.exit_code == 3
    evidence = ended.error["evidence"]
    assert "keys that clients of the store wait for" in evidence
    assert "b'comm-0-rank-5' (1)" in evidence
    assert "b'comm-1-rank-6' (1)" in evidence
    stuck = {(wait["rank"], wait["for"]) for wait in ended.error["waiting"]}
    assert {(4, 5), (5, 6)} <= stuck


def test_an_error_in_an_allgather_reaches_everybody(emucoll: Commands, tmp_path: Path) -> None:
    """torchcomms #3331, #3350: one rank's error was swallowed and its peers blocked. Here a rank of
    another program leaves in the middle: the run ends, and says who had gone.
    """
    out = tmp_path / "out"
    flags = ("--formation", "nccl-root", "--external-ranks", 3, "--out", out, "--deadline", "60s")
    record = ("--allgather", "ring", "--record-bytes", RECORD, "--json")
    with emucoll.start("run", "-np", 8, *flags, *record) as running:
        wait_for(running, out / "rendezvous.json")
        be(3, out / "rendezvous.json", 3)  # three of seven steps
        ended = running.end(within_s=30)
    assert ended.exit_code == 1
    assert ended.error["phase"] == "bootstrap.ring"
    assert ended.error["rank"] in (2, 4), "a neighbour of the one that left"
    assert ended.error["peer"] == 3
    assert "rank 3 beside it is external" in ended.error["cause"]
    assert any(word in ended.error["evidence"] for word in ("closed", "connection was lost"))


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("unshare") is None, reason="needs unshare -n")
def test_ports_that_run_out_are_told_before_the_run(tmp_path: Path) -> None:
    """nccl #1882: EADDRINUSE at 2,048 ranks. In a network namespace of 200 ports, over IPv6, where
    all workers share one address, the run is refused, with the arithmetic.
    """
    commands = (
        "ip link set lo up && sysctl -qw net.ipv4.ip_local_port_range='40000 40199' && "
        f"exec {sys.executable} -m harness.cli.main run -np 300 --formation nccl-root --ip 6 --json"
    )
    done = subprocess.run(
        ["unshare", "-n", "sh", "-c", commands], cwd=CHECKOUT, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    if "unshare" in done.stderr or "sysctl" in done.stderr or "not found" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 2, done.stderr
    assert "ports" in done.stdout
    assert "600" in done.stdout, "two listeners a rank"
    assert "most that fits" in done.stdout


def test_a_dropped_connection_is_tried_again_and_has_a_deadline(emucoll: Commands) -> None:
    """nccl #1618: a connect error was not retried, and 1,024 ranks hung. A root that goes away
    before anybody has come is tried again, until the deadline says who waits for what.
    """
    root = socket.create_server(("127.0.0.1", 0))
    flags = ("--formation", "nccl-root", "--root", f"127.0.0.1:{root.getsockname()[1]}")
    with emucoll.start("run", "-np", 4, *flags, "--deadline", "5s", "--json") as running:
        running.published_pids()
        root.close()
        ended = running.end()
    assert ended.exit_code == 3
    assert "the root does not answer" in ended.error["what"]
