"""Whom everybody waited for in a run that was measured: the chain of spans that ended last.

From the end of the run back to its start: where a rank was in a span in which it waited for
somebody, and that one came after it, the time since belongs to the wait, and the chain goes on with
whoever was waited for; where it did not, the time is the rank's own. Each moment of the run is in
exactly one stretch. Messages carry no times (their bytes are the real ones), so when one was sent
is known from its sender's spans alone. Pure.
"""

from collections.abc import Set
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from emucoll.spans import NO_PEER, PEER_ALL, PEER_ROOT, PEER_STORE
from harness.analysis import heat

_SERVERS = {PEER_ROOT: "root", PEER_STORE: "store"}


class Waited(NamedTuple):
    """A stretch of the chain."""

    who: str
    """`rank 7`, `root` or `store`."""
    phase: str
    what: str
    """`own` work and its wait for a core; what a server took to `serve`; a `message` on its way, or
    in a queue; the `steps` of an AllGather.
    """
    from_s: float
    until_s: float


class Spans(heat.Spans, Protocol):
    """With whom each waited for."""

    @property
    def peer(self) -> npt.NDArray[np.int32]: ...  # noqa: D102


class _Leaf(NamedTuple):
    """A stretch of a rank's time in which its innermost span is one and the same."""

    phase: int
    peer: int
    begin: float
    """Of the span."""
    since: float
    """Of this stretch: the span may have had others inside it before."""
    end: float


def chain(spans: Spans, gathers: Set[str]) -> list[Waited]:
    """The chain, in the order of time; `gathers` are the phases of AllGathers, whose steps are not
    told apart. Empty without spans.
    """
    if not len(spans.rank):
        return []
    index = _Index(spans, gathers)
    found: list[Waited] = []
    rank, now = index.last()
    here = set[int]()
    """Ranks that were asked at this moment: who asks in a circle has waited for nobody."""
    while now > 0:
        here.add(rank)
        leaf = index.leaf(rank, now)
        if leaf is None:  # before its first span
            found.append(Waited(f"rank {rank}", "admission", "own", 0.0, now))
            break
        name = spans.names[leaf.phase]
        cause, since, what = index.cause(rank, leaf)
        who = f"rank {rank}"
        if isinstance(cause, int) and since >= now and cause not in here:
            rank = cause
            continue
        if isinstance(cause, int) and since < now:
            found.append(Waited(who, name, what, since, now))
            rank, now = cause, since
        elif isinstance(cause, str):
            found.append(Waited(cause, name, what, leaf.since, now))
            now = leaf.since
        else:
            found.append(Waited(who, name, "own", leaf.since, now))
            now = leaf.since
        here.clear()
    return _joined(found[::-1])


class _Index:
    """Spans by rank and by phase."""

    def __init__(self, spans: Spans, gathers: Set[str]) -> None:
        self._spans = spans
        inner_last = -np.arange(len(spans.rank))  # of those that begin and end together
        order = np.lexsort((inner_last, -spans.end, spans.begin, spans.rank))
        self._order = order
        ranks = spans.rank[order]
        count = int(ranks[-1]) + 1
        self._first = np.searchsorted(ranks, np.arange(count + 1))
        self._gathers = {number for number, name in enumerate(spans.names) if name in gathers}
        self._last_in: dict[int, tuple[int, float]] = {}

    def last(self) -> tuple[int, float]:
        """The rank that was done last, and when."""
        at = int(self._spans.end.argmax())
        return int(self._spans.rank[at]), float(self._spans.end[at])

    def leaf(self, rank: int, now: float) -> _Leaf | None:
        """What a rank was in just before `now`."""
        spans = self._spans
        of_rank = self._order[self._first[rank] : self._first[rank + 1]]
        begins, ends = spans.begin[of_rank], spans.end[of_rank]
        inside = np.flatnonzero((begins < now) & (ends >= now))
        before = ends[ends < now]
        since = float(before.max()) if len(before) else 0.0
        if not len(inside):  # between two spans, which is its own time
            return None if not len(before) else _Leaf(0, NO_PEER, since, since, now)
        at = of_rank[inside[-1]]  # of those that hold it the one that began last
        begin = float(spans.begin[at])
        return _Leaf(int(spans.phase[at]), int(spans.peer[at]), begin, max(begin, since), now)

    def cause(self, rank: int, leaf: _Leaf) -> tuple[int | str | None, float, str]:
        """Who made the stretch end when it did, since when it was only on its way, and as what.
        None: the rank itself.
        """
        if leaf.phase in self._gathers or leaf.peer == PEER_ALL:
            last, since = self._last_to_begin(leaf.phase)
            what = "steps" if leaf.phase in self._gathers else "message"
            return (last, since, what) if last != rank else (None, 0.0, "own")
        if leaf.peer in _SERVERS:
            return _SERVERS[leaf.peer], leaf.since, "serve"
        if leaf.peer == NO_PEER or leaf.peer == rank or leaf.peer + 1 >= len(self._first):
            return None, 0.0, "own"
        sent = self._ended_before(leaf.peer, leaf.end)
        return (leaf.peer, sent, "message") if sent > leaf.since else (None, 0.0, "own")

    def _ended_before(self, rank: int, now: float) -> float:
        """When the last span of a rank ended before `now`: not later can it have sent what ends a
        wait for it.
        """
        of_rank = self._order[self._first[rank] : self._first[rank + 1]]
        ends = self._spans.end[of_rank]
        before = ends[ends <= now]
        return float(before.max()) if len(before) else 0.0

    def _last_to_begin(self, phase: int) -> tuple[int, float]:
        """The rank that came to a phase last, and when."""
        if phase not in self._last_in:
            of_phase = np.flatnonzero(self._spans.phase == phase)
            at = of_phase[self._spans.begin[of_phase].argmax()]
            self._last_in[phase] = int(self._spans.rank[at]), float(self._spans.begin[at])
        return self._last_in[phase]


def _joined(found: list[Waited]) -> list[Waited]:
    """Stretches in a row that are of one kind, as one."""
    joined: list[Waited] = []
    for each in found:
        last = joined[-1] if joined else None
        if last is not None and last[:3] == each[:3]:
            joined[-1] = last._replace(until_s=each.until_s)
        else:
            joined.append(each)
    return joined
