"""The command over formations, AllGathers, sizes and records: every pair of two of them meets in
some run, not all four together.
"""

from itertools import combinations, product

import pytest

from emucoll.collectives import ALLGATHERS
from emucoll.formation import FORMATIONS
from tests.agreement.commands import emucoll_run

SIZES = (1, 2, 3, 5, 8, 15, 64, 257, 1024)
RECORDS = (0, 1, 28, 120, 2320, 1 << 20)
SOME_STEPS = 32
"""Lockstep costs microseconds of CPU a message: of 1,024 ranks the first steps are enough, once
NCCL's ring has run them all."""

Case = tuple[str, str, int, int]


def possible() -> list[Case]:
    """All but those whose records would fill the memory."""
    everything = product(FORMATIONS, ALLGATHERS, SIZES, RECORDS)
    return [case for case in everything if case[2] <= 64 or case[3] < 1 << 20]


def pairs_of(case: Case) -> set[tuple[int, int, object, object]]:
    """Which two values of which two of the four meet in it."""
    return {(i, j, case[i], case[j]) for i, j in combinations(range(len(case)), 2)}


def covering(cases: list[Case]) -> list[Case]:
    """Some of them in which all pairs meet: always the one with the most that have not yet."""
    pairs = {case: pairs_of(case) for case in cases}
    missing, chosen = set().union(*pairs.values()), []
    while missing:
        chosen.append(max(cases, key=lambda case: len(pairs[case] & missing)))
        missing -= pairs[chosen[-1]]
    return chosen


CASES = covering(possible())
AT_ONCE = [case for case in CASES if case[2] <= 64][::2]
"""What `make test` runs; the others are for `make test-scale`."""


def test_all_pairs_meet() -> None:
    met = set().union(*map(pairs_of, CASES))
    assert met == set().union(*map(pairs_of, possible()))
    assert {(f, a) for f, a, *_ in CASES} == set(product(FORMATIONS, ALLGATHERS))
    assert {(n, r) for *_, n, r in CASES} == {
        (n, r) for n, r in product(SIZES, RECORDS) if n <= 64 or r < 1 << 20
    }


@pytest.mark.parametrize(("formation", "allgather", "n", "record_bytes"), AT_ONCE)
def test_a_run(formation: str, allgather: str, n: int, record_bytes: int) -> None:
    check(formation, allgather, n, record_bytes)


@pytest.mark.broad
@pytest.mark.parametrize(
    ("formation", "allgather", "n", "record_bytes"), [case for case in CASES if case not in AT_ONCE]
)
def test_the_other_runs(formation: str, allgather: str, n: int, record_bytes: int) -> None:
    check(formation, allgather, n, record_bytes)


def check(formation: str, allgather: str, n: int, record_bytes: int) -> None:
    workers, schedule = min(n, 2), ALLGATHERS[allgather]
    peers = schedule.peers(n)
    steps = schedule.rounds(n)
    limit: tuple[object, ...] = ()
    if schedule.flow == "lockstep" and n == 1024 and not peers and allgather != "ring":
        steps = SOME_STEPS
        limit = ("--steps", steps)
    result = emucoll_run(
        "-np", n, "--formation", formation, "--allgather", allgather, *limit,
        "--record-bytes", record_bytes, "--workers", workers, "--deadline", "90s",
    )  # fmt: skip
    assert result.ok, result.error
    assert result.exit_code == 0
    assert result.wrong == 0
    assert result.workers == workers
    *before, gathered = result.allgathers
    assert [each.name for each in before] == (["ring-pipelined"] if peers else [])
    assert (gathered.name, gathered.record_bytes) == (allgather, record_bytes)
    assert gathered.wrong == 0
    assert (gathered.steps, gathered.of_steps) == (steps, schedule.rounds(n))
    assert gathered.transfers == n * schedule.traffic(n, steps, record_bytes).blocks
    if not limit:
        assert all(each.transfers == n * (n - 1) for each in result.allgathers)
    assert result.descriptors.held_per_rank == 3
    assert result.work.ranks is not None
    assert result.formation is not None
    roots = result.formation.roots or 0
    assert roots == {"tcpstore": 0, "nccl-multiroot": -(-n // 128)}.get(formation, 1)
    again = roots if roots > 1 else 0
    each = 2 + (len(peers) if record_bytes else 0)
    assert result.work.ranks.connections == n * each + again
