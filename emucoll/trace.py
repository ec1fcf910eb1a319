"""Spans and counters: what each rank spent its time on, and whose phase the CPU went to. Recording
only.

A worker has one Trace for all its ranks. Wall time is kept per rank and phase; CPU per phase,
summed over ranks: the thread's CPU between two resumptions belongs to the phase of the rank that
was resumed first, the remainder to `loop`. The clock of CPU time is read only when the phase
changes, so that a thousand ranks in one phase cost nothing.

Holds no view of what phases mean; the names come from the formations and follow NCCL's timing
lines.
"""

import asyncio
import time
from array import array
from collections.abc import Callable, Coroutine, Generator
from functools import partial
from typing import Any, Protocol

from emucoll.spans import SpanLog

LOOP = "loop"
IDLE = "starting"
"""The phase of a rank that is in none yet."""


class Strangers(list[str]):
    """Why peers were turned away: the first texts, and how many there were in all."""

    KEPT = 100

    def __init__(self) -> None:
        """None yet."""
        super().__init__()
        self.in_all = 0

    def append(self, reason: str) -> None:
        """One more."""
        self.in_all += 1
        if len(self) < self.KEPT:
            super().append(reason)


class Trace:
    """Phases and counters of `count` ranks that share one thread."""

    def __init__(self, count: int, now: Callable[[], float] = time.monotonic) -> None:
        """`now` is the ranks' clock."""
        self.count = count
        self.now = now
        self.names: list[str] = [LOOP]
        self.wall: list[array[float]] = [array("d", bytes(8 * count))]
        self.cpu: list[float] = [0.0]
        self._index = {LOOP: 0}
        self._resumptions: dict[int, Callable[[], None]] = {}
        self._slot = 0
        self._last = time.thread_time()
        self.moved: Callable[[Timed], None] | None = None
        """Called with a rank that is in another phase now."""
        self.spans: SpanLog | None = None
        """Where spans are kept, if they are."""
        self.retries = 0
        self.requests = 0
        self.dropped = Strangers()
        """Why strangers were turned away, one text each."""

    def phase(self, name: str) -> int:
        """The index of phase `name`, made on first use."""
        index = self._index.get(name)
        if index is None:
            index = self._index[name] = len(self.names)
            self.names.append(name)
            self.wall.append(array("d", bytes(8 * self.count)))
            self.cpu.append(0.0)
        return index

    def switch(self, phase: int) -> None:
        """From now on this thread's CPU belongs to `phase`."""
        if phase != self._slot:
            now = time.thread_time()
            self.cpu[self._slot] += now - self._last
            self._last = now
            self._slot = phase

    def resumption(self, phase: int) -> Callable[[], None]:
        """`switch` to `phase`: one object for all ranks."""
        resumption = self._resumptions.get(phase)
        if resumption is None:
            resumption = self._resumptions[phase] = partial(self.switch, phase)
        return resumption

    def to_loop(self) -> None:
        """From now on this thread's CPU belongs to no rank."""
        self.switch(0)

    def within(self, prefix: str) -> "Trace":
        """The same, with counters of its own and `prefix` for what precedes the last dot of a
        phase's name.
        """
        return _Within(self, prefix)


class Unmetered(Trace):
    """The same without CPU: in virtual time this thread's says nothing of a rank's."""

    def switch(self, phase: int) -> None:
        """Nothing to read."""


class _Within(Trace):
    """See Trace.within."""

    def __init__(self, whole: Trace, prefix: str) -> None:
        self._whole = whole
        self._prefix = prefix
        self.count, self.now = whole.count, whole.now
        self.names, self.wall, self.cpu = whole.names, whole.wall, whole.cpu
        self.moved, self.spans = whole.moved, whole.spans
        self.retries = self.requests = 0
        self.dropped = whole.dropped

    def phase(self, name: str) -> int:
        return self._whole.phase(self._prefix + name.rpartition(".")[2])

    def switch(self, phase: int) -> None:
        self._whole.switch(phase)

    def resumption(self, phase: int) -> Callable[[], None]:
        return self._whole.resumption(phase)


class Timed(Protocol):
    """Whose time is taken: what spans and meters know of a rank."""

    slot: int
    """Index among the ranks of its trace."""
    trace: Trace
    phase: int
    peer: int | str | None
    """Whom it may wait for."""
    youngest: "Span | None"
    """Its innermost open span."""
    slow: float
    """How many times as long its work takes."""


class Span:
    """`with rank.span("bootstrap.recv", peer="root"):` one phase of one rank, nested spans
    included.

    Spans of Tasks that a rank runs side by side may overlap: the rank is in the phase of the
    youngest one that is open.
    """

    __slots__ = ("_open", "_outer", "_outer_peer", "_outer_phase", "_peer", "_phase", "_rank",
                 "_since", "_start")  # fmt: skip

    def __init__(self, rank: "Timed", phase: int, peer: int | str | None) -> None:
        """`peer` is what the rank may wait for here: a rank, or a server's name."""
        self._rank = rank
        self._phase = phase
        self._peer = peer

    def __enter__(self) -> None:
        """Begin."""
        rank = self._rank
        self._outer, self._outer_phase, self._outer_peer = rank.youngest, rank.phase, rank.peer
        self._open = True
        rank.youngest, rank.phase, rank.peer = self, self._phase, self._peer
        trace = rank.trace
        trace.switch(self._phase)
        if trace.moved is not None:
            trace.moved(rank)
        self._start = self._since = trace.now()

    @property
    def outer(self) -> "Span | None":
        """The one that it is within."""
        return self._outer

    def excuse(self, s: float) -> None:
        """Take `s` seconds for not having passed."""
        self._start += s

    def __exit__(self, kind: object, *_: object) -> None:
        """End; when it ends by an error, the rank stays in the phase, for whoever reports it."""
        rank = self._rank
        trace = rank.trace
        now = trace.now()
        trace.wall[self._phase][rank.slot] += now - self._start
        if trace.spans is not None:
            trace.spans.add(rank.slot, self._phase, self._peer, self._since, now)
        self._open = False
        if kind is None:
            # The CPU clock is read at the next span or resumption: in between little happens.
            span = rank.youngest
            while span is not None and not span._open:
                rank.phase, rank.peer = span._outer_phase, span._outer_peer
                span = rank.youngest = span._outer
            if span is not None:
                rank.phase, rank.peer = span._phase, span._peer
            if trace.moved is not None:
                trace.moved(rank)


class Metered(Coroutine[Any, Any, Any]):
    """A rank's coroutine, metered at every resumption; slowed down when the rank is injected to be
    slow.
    """

    __slots__ = ("_coroutine", "_rank", "_slow")

    def __init__(self, coroutine: Coroutine[Any, Any, Any], rank: "Timed") -> None:
        """Wrap one Task's coroutine."""
        self._coroutine = coroutine
        self._rank = rank
        self._slow = rank.slow

    @property
    def rank(self) -> "Timed":
        """Whose it is."""
        return self._rank

    def send(self, value: Any) -> Any:
        """Resume."""
        rank = self._rank
        rank.trace.switch(rank.phase)
        if self._slow > 1:
            return slowly(self._coroutine.send, value, self._slow)
        return self._coroutine.send(value)

    def throw(self, *error: Any) -> Any:
        """Resume with an exception."""
        self._rank.trace.switch(self._rank.phase)
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """Close."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, Any]:
        """Await the wrapped coroutine."""
        return self._coroutine.__await__()


def slowly(call: Callable[[Any], Any], value: Any, factor: float) -> Any:
    """Call, then burn CPU until it took `factor` times as long: a rank on a slower core."""
    start = time.thread_time()
    try:
        return call(value)
    finally:
        until = start + factor * (time.thread_time() - start)
        while time.thread_time() < until:
            pass


def current_rank(loop: asyncio.AbstractEventLoop | None = None) -> "Timed | None":
    """The rank to which the running Task belongs, by its coroutine: no context for each rank."""
    task = asyncio.current_task(loop)
    coroutine = None if task is None else task.get_coro()
    return coroutine.rank if isinstance(coroutine, Metered) else None
