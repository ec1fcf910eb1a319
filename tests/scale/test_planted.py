"""Bottlenecks that were planted are what `emucoll profile` names first, with their entity and law;
without one it finds none.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import tests.planted
from tests.cli.command import Commands, Ended

pytestmark = pytest.mark.scale

PLANTED = Path(tests.planted.__file__).parent
SMALL, MIDDLE, LARGE = "16,32,64,128,256", "32,64,128,256,512", "128,256,512,1024,2048"


class Case(NamedTuple):
    """What is planted, and what has to be said of it."""

    name: str
    sizes: str
    what: tuple[object, ...]
    entity: str
    phase: str
    resource: str
    laws: set[str]
    server: str | None = None
    target: int = 98_304
    known: str | None = None


@pytest.fixture
def emucoll(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def profiled(emucoll: Commands, *arguments: object, **popen: Any) -> Ended:
    with emucoll.start("profile", *arguments, "--no-sample", "--json", **popen) as running:
        return running.end(1700)


def formation(name: str, allgather: str = "ring") -> tuple[object, ...]:
    return ("--formation", f"bottlenecks:{name}", "--allgather", allgather)


CASES = (
    Case("nested-ring-check", LARGE, ("--plan", "bottlenecks:NestedRingCheck", "--channels", 8),
         "rank", "allgathers.ring_check", "cpu", {"n²"}, known="ring check by nested loops"),
    Case("slow-root", LARGE, ("--formation", "nccl-root", "--allgather", "ring"),
         "root", "serve", "wait", {"n"}, server="slow-root", known="one root serves"),
    Case("fixed-stagger", MIDDLE, formation("FixedStagger"),
         "rank", "bootstrap.delay", "wait", {"n"}, known="fixed stagger"),
    Case("hot-key", MIDDLE, formation("HotKey"),
         "store", "serve", "cpu", {"n"}, known="one store serves"),
    Case("small-backlog", LARGE, formation("SmallBacklog"),
         "rank", "bootstrap.hello", "wait", {"constant", "log n", "none fits"}, target=8192,
         known="overflows a backlog"),
    Case("scanning-store", LARGE, ("--formation", "tcpstore", "--allgather", "ring"),
         "store", "serve", "cpu", {"n²", "n² log n"}, server="scanning-store",
         known="one store serves"),
    Case("busy-polling", SMALL, formation("BusyPolling"),
         "rank", "bootstrap.poll", "cpu", {"n²", "n² log n"}),
    Case("connection-per-message", SMALL, formation("ConnectionPerMessage"),
         "rank", "all", "connections", {"n²"}, known="connections grow"),
    Case("result-per-rank", MIDDLE, formation("ResultPerRank"),
         "rank", "all", "memory", {"n²"}, known="each rank keeps"),
    Case("slow-rank", SMALL, formation("SlowRank"),
         "rank 7", "bootstrap.create", "wait", {"constant"}),
    Case("full-mesh", MIDDLE, formation("FullMesh"),
         "rank", "all", "connections", {"n²"}, known="connections grow"),
    Case("store-barrier", MIDDLE, formation("StoreBarrier"),
         "store", "serve", "cpu", {"n", "n²"}, known="one store serves"),
)  # fmt: skip


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_what_was_planted_is_named_first(
    emucoll: Commands, case: Case, bounded_scale: bool
) -> None:
    if bounded_scale:
        pytest.skip("minutes; tests/cli/test_profile.py has a smaller one")
    paths = [str(PLANTED / "servers"), *filter(None, [os.environ.get("PYTHONPATH")])]
    env = {"PYTHONPATH": os.pathsep.join(paths)}
    if case.server is not None:
        env["PLANTED"] = case.server
    told = profiled(
        emucoll, *case.what, "-np", case.sizes, "--target", case.target,
        "--repeat", 2, "--steps", 16, cwd=PLANTED, env=env,
    )  # fmt: skip
    assert told.exit_code == 0, told.err
    verdict = told.document["verdict"]
    named = (verdict["entity"], verdict["phase"], verdict["resource"])
    assert named == (case.entity, case.phase, case.resource), verdict["text"]
    assert set(verdict["laws"]) & case.laws, verdict["text"]
    if case.known is not None:
        assert case.known in verdict["text"]


@pytest.mark.timeout(1800)
def test_where_nothing_was_planted_it_is_the_steps(emucoll: Commands, bounded_scale: bool) -> None:
    if bounded_scale:
        pytest.skip("minutes")
    told = profiled(
        emucoll, "--plan", "ncclx", "-np", LARGE, "--target", 98_304, "--repeat", 2, "--steps", 16
    )
    assert told.exit_code == 0
    verdict = told.document["verdict"]
    assert (verdict["entity"], verdict["phase"]) == ("rank", "AllGathers"), verdict["text"]
    assert "step chain" in verdict["text"]
