"""Every span is kept, with whom it waited for, in the order of the ends."""

import random
from array import array
from typing import Any, cast

import pytest

from emucoll.rank import Rank
from emucoll.spans import PEER_ALL, PEER_ROOT, PER_RANK, SpanLog, peer_number
from emucoll.trace import Trace


def test_spans_are_kept_with_their_peers() -> None:
    clock = iter(range(100))
    trace = Trace(2, lambda: float(next(clock)))
    trace.spans = SpanLog(2)
    nothing = cast(Any, None)
    rank = Rank(8, 1, nothing, nothing, trace, random.Random(1))
    with rank.span("outer"), rank.span("inner", peer="root"):
        pass
    with rank.span("inner", peer=7):
        pass
    packed = trace.spans.packed()
    inner, outer = trace.phase("inner"), trace.phase("outer")
    assert array("i", packed["slots"]).tolist() == [1, 1, 1]
    assert array("H", packed["phases"]).tolist() == [inner, outer, inner]
    assert array("i", packed["peers"]).tolist() == [PEER_ROOT, -1, 7]
    assert array("d", packed["begins"]).tolist() == [1, 0, 4]
    assert array("d", packed["ends"]).tolist() == [2, 3, 5]


def test_there_is_room_for_more_than_expected() -> None:
    log = SpanLog(1)
    for number in range(5 * PER_RANK):
        log.add(0, number % 7, number, float(number), number + 0.5)
    packed = log.packed()
    assert array("i", packed["peers"]).tolist() == list(range(5 * PER_RANK))
    assert array("d", packed["ends"])[-1] == 5 * PER_RANK - 0.5


def test_without_ranks_there_is_nothing() -> None:
    log = SpanLog(0)
    assert log.packed()["ends"] == b""
    log.add(0, 1, "all", 0.0, 1.0)
    assert array("i", log.packed()["peers"]).tolist() == [PEER_ALL]


@pytest.mark.parametrize(("peer", "number"), [(None, -1), ("root", -2), ("store", -3), (5, 5)])
def test_peers_are_numbers(peer: int | str | None, number: int) -> None:
    assert peer_number(peer) == number
