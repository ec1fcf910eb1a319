"""What many ranks did over time, as a picture of few cells: in each, the phase in which most of its
ranks were, and the spans of single ranks.

A rank's phase is that of its innermost span. Time is looked at in the middle of each bin, so a span
that lies between two of these is in no cell. Arithmetic on arrays: 2 million spans take seconds.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

NONE = 0
"""The cell of ranks that are in no phase: not started, between two phases, or done."""


class Spans(Protocol):
    """Those of all ranks, in the order of their ends; `harness.results.recording` has them."""

    @property
    def names(self) -> list[str]: ...  # noqa: D102
    @property
    def rank(self) -> npt.NDArray[np.int32]: ...  # noqa: D102
    @property
    def phase(self) -> npt.NDArray[np.uint16]: ...  # noqa: D102
    @property
    def begin(self) -> npt.NDArray[np.float64]: ...  # noqa: D102
    @property
    def end(self) -> npt.NDArray[np.float64]: ...  # noqa: D102


@dataclass(frozen=True)
class Heat:
    """Rows of ranks by columns of time."""

    cells: npt.NDArray[np.int32]
    """`NONE`, or an index into the spans' names and 1."""
    time_edges_s: npt.NDArray[np.float64]
    """One more than columns."""
    rank_edges: npt.NDArray[np.int64]
    """One more than rows: a row's ranks are those from one edge up to the next."""
    shares: npt.NDArray[np.float64]
    """Of all ranks' time, by cell value: what no cell shows is in it too."""


@dataclass(frozen=True)
class Lane:
    """One rank's spans, the outer ones first."""

    rank: int
    phase: npt.NDArray[np.uint16]
    begin: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    depth: npt.NDArray[np.int64]
    """How many of these spans a span is within."""
    own_s: npt.NDArray[np.float64]
    """Of its time, what no span within it covers."""
    left_out: int
    """The shortest, where there are too many."""


def heat(all_spans: Spans, columns: int = 400, rows: int = 300) -> Heat | None:
    """None where there are no spans."""
    if not len(all_spans.rank):
        return None
    nranks = int(all_spans.rank.max()) + 1
    from_s = min(0.0, float(all_spans.begin.min()))
    until_s = max(float(all_spans.end.max()), from_s + 1e-9)
    per_s = columns / (until_s - from_s)
    first = np.ceil((all_spans.begin - from_s) * per_s - 0.5).astype(np.int64)
    last = np.ceil((all_spans.end - from_s) * per_s - 0.5).astype(np.int64)
    # Spans stand in the order of their ends: backwards the outer come first, so what is painted
    # later is further in.
    seen = np.flatnonzero(last > first)[::-1]
    rank_edges = -(-np.arange(min(rows, nranks) + 1, dtype=np.int64) * nranks // min(rows, nranks))
    row = np.searchsorted(rank_edges, all_spans.rank[seen], side="right") - 1
    by_row = np.argsort(row, kind="stable")
    seen, bounds = seen[by_row], np.searchsorted(row[by_row], np.arange(len(rank_edges)))
    values = len(all_spans.names) + 1
    cells = np.zeros((len(rank_edges) - 1, columns), dtype=np.int32)
    shares = np.zeros(values)
    for at, (low, high) in enumerate(pairwise(rank_edges)):
        spans = seen[bounds[at] : bounds[at + 1]]
        grid = _painted(all_spans, spans, first[spans], last[spans], int(low), int(high), columns)
        counts = np.bincount(
            (grid + values * np.arange(columns)).ravel(), minlength=values * columns
        )
        by_column = counts.reshape(columns, values)
        cells[at] = by_column.argmax(axis=1)
        shares += by_column.sum(axis=0)
    edges_s = np.linspace(from_s, until_s, columns + 1)
    return Heat(cells, edges_s, rank_edges, shares / (nranks * columns))


def _painted(
    all_spans: Spans,
    spans: npt.NDArray[np.int64],
    first: npt.NDArray[np.int64],
    last: npt.NDArray[np.int64],
    low: int,
    high: int,
    columns: int,
) -> npt.NDArray[np.int64]:
    """By rank and column the innermost phase and 1, of the ranks from `low` up to `high`."""
    grid = np.zeros((high - low, columns), dtype=np.int64)
    lengths = last - first
    starts = (all_spans.rank[spans].astype(np.int64) - low) * columns + first
    before = np.cumsum(lengths) - lengths
    # The cells of all spans one after another; of equal ones numpy keeps the last.
    at = np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))
    grid.ravel()[at] = np.repeat(all_spans.phase[spans].astype(np.int64) + 1, lengths)
    return grid


def notable_ranks(all_spans: Spans) -> dict[str, int]:
    """The slowest, the median and the fastest by the time from a rank's first span to the end of
    its last, and rank 0; each rank once.
    """
    if not len(all_spans.rank):
        return {}
    nranks = int(all_spans.rank.max()) + 1
    began, ended = np.full(nranks, np.inf), np.full(nranks, -np.inf)
    np.minimum.at(began, all_spans.rank, all_spans.begin)
    np.maximum.at(ended, all_spans.rank, all_spans.end)
    there = np.flatnonzero(np.isfinite(began))
    order = there[np.argsort((ended - began)[there], kind="stable")]
    asked = {"slowest": order[-1], "median": order[len(order) // 2], "fastest": order[0]}
    if began[0] < np.inf:
        asked["first"] = 0
    found: dict[str, int] = {}
    for name, rank in asked.items():
        if int(rank) not in found.values():
            found[name] = int(rank)
    return found


def lane(all_spans: Spans, rank: int, most: int = 500) -> Lane:
    """The spans of `rank`, the longest `most` of them."""
    spans = np.flatnonzero(all_spans.rank == rank)[::-1]
    lengths = all_spans.end[spans] - all_spans.begin[spans]
    kept = np.sort(np.argsort(-lengths, kind="stable")[:most])
    spans = spans[kept]
    begin, end = all_spans.begin[spans], all_spans.end[spans]
    around = (begin[:, None] <= begin) & (end[:, None] >= end)
    around = np.triu(around, k=1)  # those that stand before it
    depth = around.sum(axis=0)
    own_s = end - begin
    for at in np.flatnonzero(depth):
        own_s[np.flatnonzero(around[:, at])[-1]] -= end[at] - begin[at]
    left_out = len(lengths) - len(kept)
    return Lane(rank, all_spans.phase[spans], begin, end, depth, own_s, left_out)
