"""98,304 ranks on one machine; with EMUCOLL_SCALE=ci the same at 6,144. No time is asserted, only
ratios of times of one machine in one hour.
"""

from functools import cache
from pathlib import Path

import pytest

from emucoll.formation import FORMATIONS
from harness.results.schema import RunResult
from tests.agreement.commands import emucoll_run
from tests.interop.fetch import FetchError, fetch_nccl

pytestmark = [pytest.mark.scale, pytest.mark.timeout(1800)]

FULL, BOUNDED = 98_304, 6_144
KIB, GIB = 1 << 10, 1 << 30
MOST_BYTES_A_RANK = 16 * KIB
MOST_BYTES = 4 * GIB
STEPS = 256
NCCL = "2.32.3"
EACH_FORMATION = pytest.mark.parametrize("formation", FORMATIONS)


@pytest.fixture(scope="module")
def nranks(bounded_scale: bool) -> int:
    return BOUNDED if bounded_scale else FULL


def run(*flags: object) -> RunResult:
    result = emucoll_run(*flags, timeout_s=900.0)
    assert result.ok, result.error
    assert result.wrong == 0
    return result


@cache
def bare_worker_bytes() -> float:
    """What a worker's process takes that has one rank: the interpreter and its modules."""
    result = run("-np", 1)
    assert result.memory.rss_bytes_per_rank is not None
    return result.memory.rss_bytes_per_rank


def check_memory(result: RunResult, nranks: int) -> None:
    """At most 16 KiB a rank and 4 GiB in all. Few ranks carry more of the interpreters: what these
    take, and no more, is added to the bound then.
    """
    memory, workers = result.memory, result.workers
    assert memory.rss_bytes_per_rank is not None
    assert memory.peak_rss_bytes is not None
    assert workers is not None
    interpreters = 0.0 if nranks == FULL else workers * bare_worker_bytes() / nranks
    assert memory.rss_bytes_per_rank <= MOST_BYTES_A_RANK + interpreters
    assert memory.peak_rss_bytes <= MOST_BYTES
    assert memory.kernel_socket_bytes is not None


@EACH_FORMATION
@pytest.mark.parametrize("record_bytes", [28, 120])
def test_all_ranks_gather_all_records(formation: str, record_bytes: int, nranks: int) -> None:
    result = run(
        "-np", nranks, "--formation", formation, "--allgather", "ring-pipelined",
        "--record-bytes", record_bytes,
    )  # fmt: skip
    (gathered,) = result.allgathers
    assert gathered.transfers == nranks * (nranks - 1)
    if nranks == FULL:
        assert gathered.transfers == 9_663_578_112
    assert gathered.steps == gathered.of_steps == nranks - 1
    assert result.descriptors.held_per_rank == 3
    check_memory(result, nranks)


@EACH_FORMATION
def test_formation_takes_about_as_long_each_time(formation: str, nranks: int) -> None:
    seconds = []
    for _ in range(3):
        result = run(
            "-np", nranks, "--formation", formation, "--allgather", "ring-pipelined", "--steps", 1
        )
        assert result.formation is not None
        assert result.formation.seconds is not None
        seconds.append(result.formation.seconds)
    assert max(seconds) / min(seconds) <= 1.5, seconds


@pytest.fixture(scope="module")
def libnccl() -> Path:
    try:
        return fetch_nccl(NCCL)
    except FetchError as error:
        pytest.skip(f"libnccl {NCCL} is neither in the cache nor to be had: {error}")


def test_the_real_root_of_nccl(libnccl: Path, nranks: int) -> None:
    result = run(
        "-np", nranks, "--formation", "nccl-root", "--root", f"libnccl:{libnccl}",
        "--allgather", "ring-pipelined", "--steps", 1,
    )  # fmt: skip
    root = result.work.root
    assert root is not None
    assert root.cpu_s is not None
    assert root.cpu_s > 0
    assert root.peak_rss_bytes is not None
    assert root.peak_rss_bytes > 1 << 20
    assert root.messages is None, "a foreign program's messages are not counted"
    assert result.formation is not None
    assert result.formation.ranks_per_s is not None
    check_memory(result, nranks)


@pytest.mark.parametrize("formation", ["tcpstore"])
def test_the_first_steps_in_lockstep(formation: str, nranks: int) -> None:
    result = run("-np", nranks, "--formation", formation, "--allgather", "ring", "--steps", STEPS)
    (gathered,) = result.allgathers
    assert (gathered.flow, gathered.frames) == ("lockstep", "sized")
    assert (gathered.steps, gathered.of_steps) == (STEPS, nranks - 1)
    assert gathered.transfers == nranks * STEPS
    check_memory(result, nranks)


@EACH_FORMATION
def test_a_late_rank_delays_and_does_not_break(formation: str, bounded_scale: bool) -> None:
    """No deadline and no retry of a formation may end it for one rank that comes late."""
    nranks, late_s = (1024, 3) if bounded_scale else (4096, 20)
    result = run(
        "-np", nranks, "--formation", formation, "--start-skew", f"ranks:{nranks // 2}={late_s}s"
    )  # fmt: skip
    assert result.formation is not None
    assert result.formation.seconds is not None
    assert result.formation.seconds >= late_s - 0.01
