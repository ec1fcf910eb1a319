"""What the plans hold, against the table of the releases."""

import pytest

from emucoll.errors import UsageError
from emucoll.formation import FORMATIONS
from emucoll.loading import find_plan
from emucoll.plans import PLANS
from emucoll.plans.local import Extent
from emucoll.plans.steps import Barrier, Plan, host_of, under_timers

RECORDS = {
    "nccl-2.22.3": [28, 28, 8, 104, 1228],
    "nccl-2.23.4": [64, 104, 1260],
    "nccl-2.27.7": [120, 120, 2288],
    "nccl-2.28.9": [120, 120, 2292],
    "nccl-2.30.7": [120, 144, 2320],
    "ncclx": [120, 144, 2320, 264, 36, 128],
    "pytorch": [120, 120, 2292],
}
CHECK_INS = {
    "nccl-2.22.3": 64,
    "nccl-2.23.4": 172,
    "nccl-2.27.7": 172,
    "nccl-2.28.9": 172,
    "nccl-2.30.7": 176,
    "pytorch": 172,
}
BIDIRECTIONAL = {"nccl-2.28.9", "nccl-2.30.7", "ncclx", "pytorch"}
EAGER = {"nccl-2.23.4", "nccl-2.27.7", "nccl-2.28.9", "nccl-2.30.7"}


@pytest.mark.parametrize("plan", PLANS.values(), ids=lambda plan: plan.name)
def test_each_release_has_its_own_sizes_and_flow(plan: Plan) -> None:
    assert [gather.record_bytes for gather in plan.gathers] == RECORDS[plan.name]
    assert plan.held_descriptors == (4 if plan.name == "nccl-2.22.3" else 5)
    schedule = "ring-bidir" if plan.name in BIDIRECTIONAL else "ring"
    assert {gather.schedule.name for gather in plan.gathers} == {schedule}
    if plan.name in CHECK_INS:
        assert plan.formation.check_in.size == CHECK_INS[plan.name]
    else:
        assert plan.formation.server == "store"
    loops = [local.work.code.__name__ for local in plan.locals]
    assert ("_ring_check_bitmap" in loops) == (plan.name in BIDIRECTIONAL)
    assert ("_duplicate_gpu" in loops) == (plan.name in ("nccl-2.30.7", "ncclx"))
    assert sum(isinstance(step, Barrier) for step in plan.steps) == 1


def test_the_registry_is_complete() -> None:
    assert list(PLANS) == list(RECORDS)


def test_pytorch_comes_before_nccl() -> None:
    plan = PLANS["pytorch"]
    assert plan.servers == ("store", "root")
    assert plan.steps == PLANS["nccl-2.28.9"].steps
    assert plan.front is not None
    assert plan.front.leaders(300, 3) == [0, 100, 200], "who owns a root"
    assert plan.front.leaders(8, 1) == [0]


def test_timers_cover_steps_in_their_order() -> None:
    timers = [timer for timer, _ in under_timers(PLANS["nccl-2.30.7"].steps)]
    assert timers == ["bootstrap", "allgathers", "rest", "allgathers", "rest"]
    assert [len(steps) for _, steps in under_timers(PLANS["nccl-2.22.3"].steps)] == [3, 1, 1, 3, 1]


@pytest.mark.parametrize("name", sorted(EAGER))
def test_several_roots(name: str) -> None:
    plan = find_plan(f"{name}+multiroot")
    assert plan.name == f"{name}+multiroot"
    assert plan.formation.ranks_per_root == FORMATIONS["nccl-multiroot"].ranks_per_root
    assert plan.formation.check_in == PLANS[name].formation.check_in
    assert plan.steps == PLANS[name].steps


@pytest.mark.parametrize(
    ("name", "why"), [("nccl-2.22.3", "knows one root alone"), ("ncclx", "has no root")]
)
def test_where_there_cannot_be_several_roots(name: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        find_plan(f"{name}+multiroot")


def test_releases_try_connections_as_they_do() -> None:
    tries = {name: len(PLANS[name].formation.backoff()) for name in CHECK_INS}  # type: ignore[attr-defined]
    assert tries == {
        "nccl-2.22.3": 2, "nccl-2.23.4": 2, "nccl-2.27.7": 5, "nccl-2.28.9": 5, "nccl-2.30.7": 5,
        "pytorch": 5,
    }  # fmt: skip


def test_the_ranks_of_a_host() -> None:
    extent = Extent(20, 8, 2)
    assert [host_of(rank, extent) for rank in (0, 7, 8, 19)] == [
        range(0, 8), range(0, 8), range(8, 16), range(16, 20)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "n", "steps", "knows"),
    [
        ("nccl-2.27.7", 64, None, True),
        ("nccl-2.27.7", 64, 16, False),  # from one side alone
        ("nccl-2.27.7", 8, 7, True),
        ("nccl-2.30.7", 64, 16, True),
        ("nccl-2.30.7", 64, 6, False),
        ("nccl-2.30.7", 64, 7, True),
    ],
)
def test_who_knows_where_its_host_listens(
    name: str, n: int, steps: int | None, knows: bool
) -> None:
    assert PLANS[name].has_addresses(Extent(n, 8, 2), steps) is knows
