"""The chain of spans that ended last: whose time is whose, and no moment twice."""

from itertools import pairwise

import numpy as np
import pytest

from emucoll.spans import NO_PEER, PEER_ALL, PEER_ROOT, PEER_STORE
from harness.analysis.waits import Waited, chain
from harness.results.recording import Recording

Row = tuple[int, str, int, float, float]


def spans_of(*rows: Row) -> Recording:
    """Rank, phase, peer, begin, end; in the order of their ends."""
    rows = tuple(sorted(rows, key=lambda row: row[4]))
    names = list(dict.fromkeys(row[1] for row in rows))
    return Recording(
        ["loop", *names],
        np.array([row[0] for row in rows], dtype=np.int32),
        np.array([1 + names.index(row[1]) for row in rows], dtype=np.uint16),
        np.array([row[2] for row in rows], dtype=np.int32),
        np.array([row[3] for row in rows]),
        np.array([row[4] for row in rows]),
    )


def seconds(found: list[Waited]) -> dict[tuple[str, str, str], float]:
    took: dict[tuple[str, str, str], float] = {}
    for each in found:
        took[each[:3]] = took.get(each[:3], 0.0) + each.until_s - each.from_s
    return took


def assert_whole(found: list[Waited], total_s: float) -> None:
    """From the start to the end, without a gap."""
    assert found[0].from_s == 0.0
    assert found[-1].until_s == total_s
    for before, after in pairwise(found):
        assert before.until_s == after.from_s


def test_who_sends_late_is_waited_for() -> None:
    found = chain(
        spans_of(
            (1, "work", NO_PEER, 0.0, 5.0), (0, "recv", 1, 1.0, 5.5), (0, "end", -1, 5.5, 6.0)
        ),
        set(),
    )
    assert_whole(found, 6.0)
    assert found == [
        Waited("rank 1", "work", "own", 0.0, 5.0),
        Waited("rank 0", "recv", "message", 5.0, 5.5),
        Waited("rank 0", "end", "own", 5.5, 6.0),
    ]


def test_who_has_sent_before_is_not() -> None:
    found = chain(
        spans_of(
            (1, "work", NO_PEER, 0.0, 1.0), (0, "busy", -1, 0.0, 3.0), (0, "recv", 1, 3.0, 4.0)
        ),
        set(),
    )
    assert_whole(found, 4.0)
    assert seconds(found) == {("rank 0", "busy", "own"): 3.0, ("rank 0", "recv", "own"): 1.0}


@pytest.mark.parametrize(("peer", "server"), [(PEER_ROOT, "root"), (PEER_STORE, "store")])
def test_a_server_serves(peer: int, server: str) -> None:
    found = chain(spans_of((0, "send", peer, 0.5, 2.0), (0, "end", NO_PEER, 2.0, 3.0)), set())
    assert_whole(found, 3.0)
    assert seconds(found)[server, "send", "serve"] == 1.5


def test_a_barrier_waits_for_the_last_to_come() -> None:
    found = chain(
        spans_of(
            (0, "barrier", PEER_ALL, 1.0, 9.1),
            (1, "barrier", PEER_ALL, 9.0, 9.2),
            (2, "barrier", PEER_ALL, 2.0, 9.3),
            (1, "slow", NO_PEER, 0.0, 9.0),
        ),
        set(),
    )
    assert_whole(found, 9.3)
    assert seconds(found)["rank 1", "slow", "own"] == 9.0


def test_so_does_an_allgather() -> None:
    rows: list[Row] = [(rank, "ring", (rank - 1) % 4, 1.0, 3.0) for rank in range(4)]
    rows[2] = (2, "ring", 1, 2.5, 3.2)
    found = chain(spans_of(*rows, (2, "late", NO_PEER, 0.0, 2.5), (0, "x", -1, 3.0, 4.0)), {"ring"})
    assert_whole(found, 4.0)
    assert seconds(found)["rank 0", "ring", "steps"] == 0.5
    assert seconds(found)["rank 2", "late", "own"] == 2.5


def test_the_innermost_span_counts() -> None:
    found = chain(
        spans_of(
            (0, "inner", NO_PEER, 0.0, 2.0),
            (0, "outer", NO_PEER, 0.0, 3.0),
            (0, "next", NO_PEER, 3.5, 4.0),
        ),
        set(),
    )
    assert_whole(found, 4.0)
    assert seconds(found)["rank 0", "inner", "own"] == 2.0
    assert seconds(found)["rank 0", "outer", "own"] == 1.0


def test_ranks_that_wait_for_each_other_end() -> None:
    """As at the two ends of a connection, which both return at the same moment."""
    found = chain(spans_of((0, "x", 1, 0.0, 1.0), (1, "x", 0, 0.0, 1.0)), set())
    assert_whole(found, 1.0)


def test_a_rank_that_is_itself_its_peer() -> None:
    assert_whole(chain(spans_of((0, "x", 0, 0.0, 1.0)), {"y"}), 1.0)


def test_nothing() -> None:
    assert chain(spans_of(), set()) == []


def test_many_ranks_at_random_are_whole() -> None:
    draws = np.random.default_rng(5)
    for _ in range(50):
        rows: list[Row] = []
        for rank in range(6):
            ends = np.sort(draws.random(8))
            rows += [
                (rank, "abc"[int(p)], int(peer), float(begin), float(end))
                for begin, end, p, peer in zip(
                    ends[:-1], ends[1:], draws.integers(3, size=7), draws.integers(-4, 6, size=7),
                    strict=True,
                )
            ]  # fmt: skip
        found = chain(spans_of(*rows), {"c"})
        assert_whole(found, max(row[4] for row in rows))
