"""Ranks, workers, servers and controllers that fail: the run ends, and says who it was."""

import re
import signal
from pathlib import Path

import psutil
import pytest

from tests.cli.command import Commands, Running, send, sockets

pytestmark = pytest.mark.waits

FORMATIONS = [
    ("tcpstore", "store"),
    ("nccl-root", "root"),
    ("nccl-root-2.22", "root"),
    ("nccl-multiroot", "root"),
]
LONG_ALLGATHER = ("-np", 512, "--allgather", "ring", "--record-bytes", 120)
LONG_FORMATION = (
    *("-np", 64, "--formation", "nccl-root"),
    *("--uid-stagger-threshold", 1, "--uid-stagger-rate", 4),
)
"""Rank r checks in after r / 4 s."""

GATHERING = "(the records were handed out|the AllGather was running)"
"""What such a run was doing when it had formed: handing out takes a moment."""


def gathering(running: Running) -> bool:
    """Has the AllGather of `LONG_ALLGATHER` begun? A rank has three sockets then, none of them at
    the store, and what has formed works again.
    """
    pids = running.pids()
    held = sum(len(sockets(pid)) for name, pid in pids.items() if name != "store")
    if held < 3 * 512 or len(sockets(pids["store"])) >= 50:
        return False
    cpu_s = psutil.Process(pids["worker 0"]).cpu_times().user
    return cpu_s > running.marks.setdefault("formed", cpu_s) + 0.04


def forming(running: Running) -> bool:
    """Are all ranks of `LONG_FORMATION` on their way? A socket a rank at least."""
    pids = running.pids()
    return sum(len(sockets(pid)) for name, pid in pids.items() if name != "root") >= 128


@pytest.mark.parametrize(("formation", "server"), FORMATIONS)
def test_a_rank_that_raises(emucoll: Commands, formation: str, server: str) -> None:
    flags = ("-np", 16, "--formation", formation, "--workers", 2)
    ended = emucoll("run", *flags, "--inject", "rank=9:raise", "--json")
    assert ended.exit_code == 1
    assert ended.error["what"] == "rank 9 failed in phase bootstrap"
    assert "injected: rank 9 raises" in ended.error["evidence"]
    assert (ended.error["rank"], ended.error["worker"]) == (9, 1)


def test_a_worker_that_is_killed(emucoll: Commands) -> None:
    flags = ("-np", 64, "--allgather", "ring", "--workers", 3)
    ended = emucoll("run", *flags, "--inject", "worker=1:kill", "--json")
    assert ended.exit_code == 3
    assert ended.error["what"] == "worker 1 was lost"
    assert "was ended by SIGKILL while the AllGather was running" in ended.error["evidence"]
    assert (ended.error["worker"], ended.error["phase"]) == (1, "gathering")


@pytest.mark.parametrize(("formation", "server"), FORMATIONS)
def test_a_server_that_is_killed(emucoll: Commands, formation: str, server: str) -> None:
    flags = ("-np", 65, "--formation", formation, "--inject", f"{server}:kill")
    ended = emucoll("run", *flags, "--json")
    assert ended.exit_code == 3
    assert ended.error["what"] == f"{server} was lost"
    assert "was ended by SIGKILL while the ring was forming" in ended.error["evidence"]
    assert (ended.error["peer"], ended.error["phase"]) == (server, "forming")


@pytest.mark.parametrize("victim", ["worker 0", "root"])
def test_killed_from_outside_while_the_ring_forms(emucoll: Commands, victim: str) -> None:
    with emucoll.start("run", *LONG_FORMATION, "--json") as running:
        running.until(lambda: forming(running))
        send(running.pids()[victim], signal.SIGKILL)
        ended = running.end()
    assert ended.exit_code == 3
    assert ended.error["what"] == f"{victim} was lost"
    assert f"its process {running.pids()[victim]} was ended by SIGKILL" in ended.error["evidence"]
    assert "while the ring was forming" in ended.error["evidence"]
    assert "kernel log" in ended.error["next"]


@pytest.mark.parametrize("victim", ["worker 1", "store"])
def test_killed_from_outside_in_the_allgather(
    emucoll: Commands, tmp_path: Path, victim: str
) -> None:
    out = tmp_path / "kept"
    with emucoll.start("run", *LONG_ALLGATHER, "--out", out, "--json") as running:
        running.until(lambda: gathering(running))
        send(running.pids()[victim], signal.SIGKILL)
        ended = running.end()
    assert ended.exit_code == 3
    assert re.search(f"was ended by SIGKILL while {GATHERING}", ended.error["evidence"])
    assert ended.error["worker"] == (1 if victim == "worker 1" else None)
    assert (out / "result.json").read_bytes() == ended.out


def test_a_server_killed_before_it_has_reported(emucoll: Commands) -> None:
    """Nobody waits for it till the deadline."""
    with emucoll.start("run", *LONG_ALLGATHER, "--steps", 60, "--json") as running:
        running.until(lambda: gathering(running))
        pids = running.pids()
        send(pids["store"], signal.SIGSTOP)
        running.until(lambda: set(running.processes()) == {running.process.pid, pids["store"]})
        send(pids["store"], signal.SIGKILL)
        ended = running.end(within_s=10)
    assert (ended.exit_code, ended.error["what"]) == (3, "store was lost")
    assert "while the run was closing" in ended.error["evidence"]


def test_killed_while_the_processes_start(emucoll: Commands) -> None:
    with emucoll.start("run", "-np", 8, "--workers", 2, "--json") as running:
        send(running.published_pids()["worker 1"], signal.SIGKILL)
        ended = running.end()
    assert (ended.exit_code, ended.error["worker"]) == (3, 1)
    assert "was ended by SIGKILL" in ended.error["evidence"]


# -- the deadline


@pytest.mark.parametrize(
    ("formation", "phase", "rank"),
    [
        ("tcpstore", "bootstrap.get_key", 5),
        ("nccl-root", "bootstrap.recv", 5),
        ("nccl-multiroot", "bootstrap.recv", 5),
        ("tcpstore", "bootstrap.get_key", 0),
    ],
)
def test_a_rank_that_never_starts(emucoll: Commands, formation: str, phase: str, rank: int) -> None:
    n = 12
    flags = ("-np", n, "--formation", formation, "--workers", 2, "--deadline", "5s")
    ended = emucoll("run", *flags, "--inject", f"rank={rank}:never-start", "--json")
    error = ended.error
    assert ended.exit_code == 3
    assert error["what"] == (
        f"the deadline of 5 s passed while the ring was forming: rank {rank} holds it up"
    )
    assert (error["rank"], error["phase"], error["peer"]) == (rank, "never-started", None)
    assert error["worker"] == (0 if rank < n / 2 else 1)
    before, after = (rank - 1) % n, (rank + 1) % n
    assert f"rank {rank} is in phase never-started and waits for nobody" in error["evidence"]
    low, high = sorted((before, after))
    assert f"ranks {low}, {high} wait for it" in error["evidence"]
    assert error["waiting"][:2] == sorted(
        [
            {"rank": before, "phase": phase, "for": rank},
            {"rank": after, "phase": "bootstrap.accept", "for": rank},
        ],
        key=lambda wait: wait["rank"],
    )
    assert len(error["waiting"]) == n - 1


def test_a_rank_that_never_starts_keeps_all_from_a_root_that_collects(emucoll: Commands) -> None:
    flags = ("-np", 12, "--formation", "nccl-root-2.22", "--workers", 2, "--deadline", "5s")
    ended = emucoll("run", *flags, "--inject", "rank=5:never-start", "--json")
    error = ended.error
    assert ended.exit_code == 3
    assert error["what"].endswith("while the ring was forming: rank 5 holds it up")
    assert (error["rank"], error["phase"], error["worker"]) == (5, "never-started", 0)
    assert "11 ranks wait for all ranks, this one among them" in error["evidence"]
    assert error["cause"] == "injected: --inject rank=5:never-start"
    assert {wait["phase"] for wait in error["waiting"]} == {"bootstrap.recv"}
    assert len(error["waiting"]) == 11


def test_a_root_that_has_collected_all_and_answers_nobody(emucoll: Commands) -> None:
    """It stands still while the ranks check in: the kernel takes what they say. Meanwhile nothing
    moves, and a line of progress comes each five seconds all the same.
    """
    flags = ("-np", 500, "--formation", "nccl-root-2.22", "--workers", 1, "--deadline", "7s")
    with emucoll.start("run", *flags, "--json") as running:
        pids = running.published_pids()
        running.until(lambda: len(sockets(pids["worker 0"])) > 500)
        send(pids["root"], signal.SIGSTOP)
        ended = running.end()
    assert (ended.exit_code, ended.error["peer"]) == (3, "root")
    assert ended.error["what"].endswith("while the ring was forming: the root does not answer")
    assert "500 of 500 ranks wait for the root" in ended.error["evidence"]
    assert ended.err.count("bootstrap.recv 500") >= 1


def test_the_only_rank_never_starts(emucoll: Commands) -> None:
    flags = ("-np", 1, "--deadline", "5s", "--inject", "rank=0:never-start")
    ended = emucoll("run", *flags)
    assert ended.exit_code == 3
    assert "rank 0 is in phase never-started and waits for nobody" in " ".join(ended.err.split())


def test_a_deadline_that_passes_at_once(emucoll: Commands) -> None:
    ended = emucoll("run", "-np", 4, "--deadline", "1ms", "--json")
    assert ended.exit_code == 3
    assert "deadline of 0.001 s passed while the processes were starting" in ended.error["what"]
    assert "--deadline" in ended.error["next"]


# -- the controller


def test_a_killed_controller_takes_its_processes_along(emucoll: Commands) -> None:
    with emucoll.start("run", *LONG_FORMATION) as running:
        running.until(lambda: forming(running))
        send(running.process.pid, signal.SIGKILL)
        assert running.process.wait() == -signal.SIGKILL
        running.nothing_left(within_s=10)


def test_a_controller_killed_at_once_takes_its_processes_along(emucoll: Commands) -> None:
    """They have not reached it yet, and never will."""
    with emucoll.start("run", "-np", 8, "--workers", 4) as running:
        running.until(lambda: len(running.processes()) > 1)
        send(running.process.pid, signal.SIGKILL)
        assert running.process.wait() == -signal.SIGKILL
        running.nothing_left(within_s=10)
