"""Heat maps of ranks over time, on recordings that are small enough to be looked at."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.heat import NONE, heat, lane, notable_ranks
from harness.results.recording import Recording

NAMES = ["outer", "inner", "after"]
OUTER, INNER, AFTER = 1, 2, 3
"""As cells hold them."""
Span = tuple[int, int, float, float]


def recorded(*spans: Span) -> Recording:
    """Of (rank, phase, begin, end), which stand in the order of their ends, inner ones first."""
    rank, phase, begin, end = zip(*spans, strict=True) if spans else ((), (), (), ())
    return Recording(
        NAMES,
        np.array(rank, np.int32),
        np.array(phase, np.uint16),
        np.full(len(rank), -1, np.int32),
        np.array(begin, np.float64),
        np.array(end, np.float64),
    )


def test_a_rank_is_in_its_innermost_span() -> None:
    seen = heat(recorded((0, 1, 2.0, 4.0), (0, 0, 1.0, 6.0), (0, 2, 6.0, 8.0)), columns=8)
    assert seen is not None
    assert seen.cells.tolist() == [[NONE, OUTER, INNER, INNER, OUTER, OUTER, AFTER, AFTER]]
    assert seen.time_edges_s.tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8]
    assert seen.shares.tolist() == [1 / 8, 3 / 8, 2 / 8, 2 / 8]


def test_a_span_that_begins_and_ends_with_the_outer_one_covers_it() -> None:
    seen = heat(recorded((0, 1, 0.0, 4.0), (0, 0, 0.0, 4.0)), columns=4)
    assert seen is not None
    assert seen.cells.tolist() == [[INNER] * 4]


def test_a_cell_is_what_most_of_its_ranks_are_in() -> None:
    two, one = ((rank, 0, 0.0, 1.0) for rank in (0, 1)), (2, 2, 0.0, 1.0)
    seen = heat(recorded(*two, one), columns=1, rows=1)
    assert seen is not None
    assert seen.cells.tolist() == [[OUTER]]
    assert seen.rank_edges.tolist() == [0, 3]
    assert seen.shares.tolist() == pytest.approx([0, 2 / 3, 0, 1 / 3])


def test_rows_hold_all_ranks_once_and_none_is_empty() -> None:
    spans = [(rank, 2 if rank >= 64 else 0, 0.0, 1.0) for rank in range(101)]
    seen = heat(recorded(*spans), columns=2, rows=7)
    assert seen is not None
    assert seen.rank_edges[0] == 0
    assert seen.rank_edges[-1] == 101
    assert (np.diff(seen.rank_edges) > 0).all()
    assert seen.cells[0].tolist() == [OUTER] * 2
    assert seen.cells[-1].tolist() == [AFTER] * 2


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 2), st.integers(0, 19), st.integers(1, 20)),
        min_size=1,
        max_size=20,
    )
)
def test_every_cell_is_as_painted_one_by_one(spans: list[tuple[int, int, int, int]]) -> None:
    # By 0.3 off: no span begins or ends in the middle of a column.
    given_ = [(rank, phase, at + 0.3, at + long + 0.3) for rank, phase, at, long in spans]
    seen = heat(recorded(*given_), columns=40, rows=6)
    assert seen is not None
    width = seen.time_edges_s[1]
    for rank in range(max(each[0] for each in spans) + 1):
        for column in range(40):
            middle = (column + 0.5) * width
            over = [
                each[1] + 1 for each in given_ if each[0] == rank and each[2] <= middle < each[3]
            ]
            assert seen.cells[rank, column] == (over[0] if over else NONE)


def test_nothing_recorded_is_no_picture() -> None:
    assert heat(recorded()) is None
    assert notable_ranks(recorded()) == {}


def test_which_ranks_are_notable() -> None:
    lengths = [3.0, 1.0, 9.0, 4.0, 2.0]
    spans = [(rank, 0, 1.0, 1.0 + length) for rank, length in enumerate(lengths)]
    assert notable_ranks(recorded(*spans)) == {"slowest": 2, "median": 0, "fastest": 1}
    assert notable_ranks(recorded(*spans[1:])) == {"slowest": 2, "median": 3, "fastest": 1}
    assert notable_ranks(recorded((0, 0, 0.0, 1.0))) == {"slowest": 0}
    assert notable_ranks(recorded(*spans, (0, 2, 3.0, 3.5), (4, 2, 9.5, 11.0)))["slowest"] == 4


def test_a_lane_has_the_outer_spans_first_and_says_what_it_leaves_out() -> None:
    recording = recorded(
        (0, 1, 2.0, 4.0), (1, 0, 0.0, 9.0), (0, 1, 4.0, 4.5), (0, 0, 1.0, 6.0), (0, 2, 6.0, 8.0)
    )
    whole = lane(recording, 0)
    assert whole.phase.tolist() == [2, 0, 1, 1]
    assert whole.depth.tolist() == [0, 0, 1, 1]
    assert whole.own_s.tolist() == [2.0, 2.5, 0.5, 2.0]
    assert whole.left_out == 0
    longest = lane(recording, 0, most=2)
    assert (longest.end - longest.begin).tolist() == [2.0, 5.0]
    assert longest.left_out == 2
