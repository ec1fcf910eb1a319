"""What everybody waited for: the chain of causes behind each process's present, kept as it goes.

A process's time passes in pieces. While it acts its own: CPU, or neither CPU nor message, which is
sleep. When a wait of its ends, what ended it counts, not the wait: the piece before is then the
message on its way, and before that what its sender did until it was sent. So the pieces that lead
to an end are a path through processes, without a gap from the beginning to that end: each second of
the whole is somebody's. Where a process was busy when a message came, its own work is the cause.

Recording only; what is no longer the cause of anything is forgotten.
"""

from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

What: TypeAlias = Literal["cpu", "sleep", "bytes", "latency", "syn-retry", "steps", "barrier"]


class Piece(NamedTuple):
    """From the end of the one `before` until `until`."""

    before: "Piece | None"
    until: float
    process: int
    """Number of the process that it belongs to."""
    phase: str
    """Which that was in."""
    what: What


class Path:
    """The chains of all processes of a world, by their numbers."""

    def __init__(self) -> None:
        """No process yet."""
        self._last: list[Piece | None] = []
        self._busy: list[float] = []
        """CPU seconds of each when its last piece ended."""
        self._phases: list[str] = []

    def add(self, phase: str) -> None:
        """One more process, in `phase`."""
        self._last.append(None)
        self._busy.append(0.0)
        self._phases.append(phase)

    def enter(self, process: int, phase: str, now: float, busy_s: float) -> None:
        """A process is in another phase from now on. `busy_s`: how long its CPU has worked."""
        if phase != self._phases[process]:
            self.close(process, now, busy_s)
            self._phases[process] = phase

    def close(self, process: int, now: float, busy_s: float) -> Piece | None:
        """What a process did itself since its last piece, as pieces."""
        last = self._last[process]
        since = 0.0 if last is None else last.until
        if now > since:
            cpu_s = min(now - since, busy_s - self._busy[process])
            last = self._on(last, now - cpu_s, process, "sleep")
            last = self._last[process] = self._on(last, now, process, "cpu")
        self._busy[process] = busy_s
        return last

    def goes_on(
        self, last: Piece | None, process: int, ends: tuple[tuple[float, What], ...]
    ) -> Piece | None:
        """`last`, and behind it what happens until each of `ends`, on behalf of `process`."""
        for until, what in ends:
            last = self._on(last, until, process, what)
        return last

    def woken(self, process: int, cause: Piece | None, busy_s: float) -> None:
        """A wait of a process ended by `cause`; `busy_s` is its CPU's then."""
        self._last[process] = cause
        self._busy[process] = busy_s

    def _on(self, last: Piece | None, until: float, process: int, what: What) -> Piece | None:
        if until > (0.0 if last is None else last.until):
            return Piece(last, until, process, self._phases[process], what)
        return last

    def to(self, process: int) -> list[Piece]:
        """The pieces that led to where a process is, from the beginning."""
        return list(reversed(list(_back(self._last[process]))))


def _back(piece: Piece | None) -> Iterator[Piece]:
    while piece is not None:
        yield piece
        piece = piece.before
