"""The command at every size and every record, for each formation and AllGather: pairs of size and
record, not their whole product.
"""

import pytest

from emucoll.collectives import ALLGATHERS
from emucoll.formation import FORMATIONS
from tests.agreement.commands import emucoll_run

SIZES = {1, 2, 3, 5, 8, 15, 64, 257, 1024}
RECORDS = {0, 1, 28, 120, 2320, 1 << 20}

PAIRS = {
    ("tcpstore", "ring-pipelined"): [
        (1, 28), (2, 0), (3, 1), (5, 120), (8, 2320), (15, 28), (64, 1 << 20), (257, 120),
        (1024, 28),
    ],
    ("tcpstore", "ring"): [
        (1, 0), (2, 1), (3, 28), (5, 120), (8, 1 << 20), (15, 2320), (64, 28), (257, 2320),
        (1024, 0),
    ],
    ("nccl-root", "ring-pipelined"): [
        (1, 120), (2, 28), (3, 2320), (5, 0), (8, 1 << 20), (15, 1), (64, 120), (257, 28),
        (1024, 2320),
    ],
    ("nccl-root", "ring"): [
        (1, 28), (2, 120), (3, 2320), (5, 1), (8, 0), (15, 28), (64, 1 << 20), (257, 1),
        (1024, 0),
    ],
    ("tcpstore", "ring-bidir"): [
        (1, 1), (2, 28), (3, 0), (5, 2320), (8, 120), (15, 1 << 20), (64, 1), (257, 28),
        (1024, 0),
    ],
    ("nccl-root", "ring-bidir"): [
        (1, 120), (2, 1 << 20), (3, 28), (5, 0), (8, 1), (15, 120), (64, 2320), (257, 1),
        (1024, 0),
    ],
    ("tcpstore", "ring-bidir-headerless"): [
        (1, 28), (2, 0), (3, 1 << 20), (5, 1), (8, 28), (15, 120), (64, 28), (257, 2320),
        (1024, 0),
    ],
    ("nccl-root", "ring-bidir-headerless"): [
        (1, 0), (2, 1), (3, 120), (5, 28), (8, 2320), (15, 0), (64, 1 << 20), (257, 120),
        (1024, 0),
    ],
    ("tcpstore", "bruck"): [
        (1, 28), (2, 120), (3, 1), (5, 1 << 20), (8, 0), (15, 28), (64, 2320), (257, 1),
        (1024, 120),
    ],
    ("nccl-root", "bruck"): [
        (1, 120), (2, 28), (3, 0), (5, 2320), (8, 1 << 20), (15, 1), (64, 28), (257, 0),
        (1024, 28),
    ],
    ("nccl-root-2.22", "ring-pipelined"): [
        (1, 2320), (2, 1), (3, 28), (5, 28), (8, 120), (15, 0), (64, 28), (257, 2320),
        (1024, 120), (3, 1 << 20),
    ],
    ("nccl-root-2.22", "ring"): [
        (1, 1 << 20), (2, 2320), (3, 0), (5, 28), (8, 1), (15, 120), (64, 120), (257, 28),
        (1024, 0),
    ],
    ("nccl-multiroot", "ring-pipelined"): [
        (1, 1), (2, 120), (3, 28), (5, 1 << 20), (8, 0), (15, 2320), (64, 28), (257, 0),
        (1024, 28),
    ],
    ("nccl-multiroot", "ring"): [
        (1, 0), (2, 28), (3, 120), (5, 2320), (8, 1 << 20), (15, 1), (64, 0), (257, 120),
        (1024, 0),
    ],
    ("nccl-root-2.22", "ring-bidir"): [
        (1, 28), (2, 1), (3, 120), (5, 28), (8, 2320), (15, 0), (64, 120), (257, 28),
        (1024, 0), (15, 1 << 20),
    ],
    ("nccl-multiroot", "ring-bidir"): [
        (1, 0), (2, 120), (3, 1), (5, 28), (8, 1 << 20), (15, 2320), (64, 28), (257, 120),
        (1024, 0),
    ],
    ("nccl-root-2.22", "ring-bidir-headerless"): [
        (1, 1), (2, 2320), (3, 28), (5, 120), (8, 0), (15, 1 << 20), (64, 1), (257, 28),
        (1024, 0),
    ],
    ("nccl-multiroot", "ring-bidir-headerless"): [
        (1, 2320), (2, 28), (3, 0), (5, 1 << 20), (8, 1), (15, 28), (64, 120), (257, 2320),
        (1024, 0),
    ],
    ("nccl-root-2.22", "bruck"): [
        (1, 0), (2, 1), (3, 2320), (5, 120), (8, 28), (15, 1 << 20), (64, 0), (257, 28),
        (1024, 120),
    ],
    ("nccl-multiroot", "bruck"): [
        (1, 28), (2, 2320), (3, 1 << 20), (5, 0), (8, 120), (15, 28), (64, 1), (257, 120),
        (1024, 28),
    ],
}  # fmt: skip
"""Lockstep costs a microsecond of CPU or ten a message, so its 1,024 ranks send the sizes alone."""
SOME_STEPS = 32
"""As many are enough for 1,024 ranks in lockstep, once one formation has run them all."""

TURNS = {
    (formation, allgather): (i + j) % 2
    for i, formation in enumerate(FORMATIONS)
    for j, allgather in enumerate(ALLGATHERS)
}
CASES = [
    (*names, n, record)
    for names, pairs in PAIRS.items()
    for at, (n, record) in enumerate(pairs)
    if at % 2 == TURNS[names] or record == 1 << 20
]
"""Every other pair by turns, and the largest record: every formation and every AllGather still
meets each other, every size and every record.
"""


def test_nothing_is_left_out() -> None:
    assert set(PAIRS) == {(f, a) for f in FORMATIONS for a in ALLGATHERS}
    for pairs in PAIRS.values():
        assert {n for n, _ in pairs} == SIZES
        assert {record for _, record in pairs} == RECORDS
        assert all(n <= 64 for n, record in pairs if record == 1 << 20)
    for names, there in ((FORMATIONS, 0), (ALLGATHERS, 1)):
        for name in names:
            mine = [case for case in CASES if case[there] == name]
            assert {n for _, _, n, _ in mine} == SIZES, name
            assert {record for *_, record in mine} == RECORDS, name
    assert {(f, a) for f, a, *_ in CASES} == set(PAIRS)


@pytest.mark.parametrize(("formation", "allgather", "n", "record_bytes"), CASES)
def test_a_run(formation: str, allgather: str, n: int, record_bytes: int) -> None:
    workers, schedule = min(n, 2), ALLGATHERS[allgather]
    peers = schedule.peers(n)
    steps = schedule.rounds(n)
    limit: tuple[object, ...] = ()
    if schedule.frames == "sized" and n == 1024 and formation != "tcpstore":
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
