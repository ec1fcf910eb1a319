"""Process groups by the command: every member verified, connections and requests by formula."""

import json
from pathlib import Path

import pytest

from harness.results.schema import RunResult
from tests.agreement.commands import emucoll_run

REQUESTS = {"new": 0, "split": 0, "ncclx": 5}
"""To the store, a member: VALIDATE, PING, SET, WAIT, GET."""


def check_groups(result: RunResult, init: str, members: int) -> None:
    """A member makes two connections: to root, store or (split) the rank before it; and to the one
    after it.
    """
    assert result.ok, result.error
    for group in result.groups:
        assert (group.connections, group.requests, group.wrong) == (
            2 * members, REQUESTS[init] * members, 0
        )  # fmt: skip
        assert group.seconds is not None and group.seconds > 0
    means = [phase.mean_s or 0.0 for phase in result.phases if phase.within is None]
    assert sum(means) == pytest.approx(result.mean_total_s)
    names = {phase.name for phase in result.phases}
    assert {f"groups.{group.kind}" for group in result.groups} <= names


@pytest.mark.parametrize(
    ("init", "what"),
    [
        ("new", "--formation tcpstore"),
        pytest.param("new", "--plan nccl-2.22.3", marks=pytest.mark.broad),
        ("split", "--formation nccl-root-2.22"),
        pytest.param("split", "--plan nccl-2.22.3", marks=pytest.mark.broad),
        ("split", "--plan nccl-2.27.7"),
        ("ncclx", "--plan nccl-2.27.7"),
    ],
)
def test_a_grid_of_groups(init: str, what: str) -> None:
    flags = ("--groups", "tp=2,pp=3,dp=5", "--group-init", init, "--workers", 3)
    result = emucoll_run("-np", 30, *what.split(), *flags)
    shapes = [(group.kind, group.count, group.size) for group in result.groups]
    assert shapes == [("tp", 15, 2), ("pp", 10, 3), ("dp", 6, 5)]
    check_groups(result, init, 30)
    kept = 3 if "--formation" in what else 5 if "2.27.7" in what else 4
    assert result.descriptors.held_per_rank == 4 * kept


@pytest.mark.parametrize("init", ["new", "split", "ncclx"])
def test_listed_groups_of_uneven_size(init: str, tmp_path: Path) -> None:
    """Some ranks are in no group, one is alone in its own, and order is the file's."""
    path = tmp_path / "groups.json"
    groups = [[7, 2, 5], [0], [11, 10, 9, 8]]
    path.write_text(json.dumps({"odd": groups}))
    result = emucoll_run("-np", 12, "--groups", path, "--group-init", init, "--workers", 2)
    check_groups(result, init, 8)


def test_several_kinds_several_times() -> None:
    result = emucoll_run(
        "-np", 24, "--groups", "a=4,b=6", "--group-init", "new", "--restarts", 2,
        "--formation", "nccl-multiroot", "--roots", 3,
    )  # fmt: skip
    check_groups(result, "new", 24)
    assert [each.wrong for each in result.restarts] == [0, 0, 0]
    # Each of the last bring-up's ranks: 2 for all ranks and 2 a kind; 3 first ranks check in twice.
    assert result.restarts[-1].connections == 24 * 6 + 3
    root = result.work.root
    assert root is not None
    assert root.connections == 3 * (24 * 3 + 3 + 24 * 3), "check-ins and answers of all bring-ups"


@pytest.mark.parametrize("formation", ["tcpstore", "nccl-root", "nccl-root-2.22", "nccl-multiroot"])
def test_restarts(formation: str) -> None:
    result = emucoll_run("-np", 20, "--formation", formation, "--restarts", 3, "--workers", 2)
    assert result.ok, result.error
    assert len(result.restarts) == 4
    for each in result.restarts:
        assert (each.connections, each.retries, each.wrong) == (40, 0, 0)
        assert each.formation_s is not None and each.formation_s < each.total_s
    assert result.descriptors.held_per_rank == 3, "nothing is left of the bring-ups before"


def test_restarts_of_pytorch_have_keys_of_their_own() -> None:
    result = emucoll_run("-np", 20, "--plan", "pytorch", "--roots", 2, "--restarts", 1)
    assert result.ok, result.error
    store = result.work.store
    assert store is not None
    assert store.connections == 40
