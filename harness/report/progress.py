"""How far a run is, on stderr: a bar on a terminal, else a plain line now and then.

Never writes to stdout, never fails a run (a stderr that is closed or full ends the progress, not
the run), and takes next to none of the CPU that it reports on: no thread, at most two drawings a
second. Knows no message and no socket: the controller calls `update`.
"""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Mapping
from io import TextIOBase
from typing import TYPE_CHECKING, TextIO, cast

if TYPE_CHECKING:
    from rich.progress import TaskID

PLAIN_INTERVAL_S = 5.0
DRAW_INTERVAL_S = 0.5


class Progress:
    """One run's progress. With `enabled` False only notes are written."""

    def __init__(
        self,
        enabled: bool = True,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._out = _Stderr(sys.stderr if stream is None else stream)
        self._clock = clock
        self._started = clock()
        self._last = float("-inf")
        self._enabled = enabled
        self._bar = _Bar(self._out) if enabled and self._out.draws() else None

    def update(
        self,
        phase_counts: Mapping[str, int],
        nranks: int,
        stage: str,
        fraction: float,
        time_left_s: float | None = None,
    ) -> None:
        """Say where the ranks are: how many in each phase, how much of `stage` is done (0 to 1).

        May be called as often as wanted; what comes too soon after the last is dropped.
        """
        if self._is_due():
            self._show(stage, fraction, _detail(phase_counts, nranks, time_left_s))

    def step(self, stage: str, fraction: float, detail: str, time_left_s: float | None) -> None:
        """The same for work that is not ranks: `detail` says what is being done."""
        if self._is_due():
            left = "" if time_left_s is None else f", {_left(time_left_s)} left"
            self._show(stage, fraction, detail + left)

    def _is_due(self) -> bool:
        interval = PLAIN_INTERVAL_S if self._bar is None else DRAW_INTERVAL_S
        return self._enabled and self._clock() - self._last >= interval

    def _show(self, stage: str, fraction: float, detail: str) -> None:
        now = self._last = self._clock()
        fraction = min(1.0, max(0.0, fraction))
        if self._bar is not None:
            self._bar.draw(stage, fraction, detail)
        else:
            elapsed = now - self._started
            self._out.write(f"[{elapsed:7.1f} s] {stage} {fraction:4.0%}  {detail}\n")
            self._out.flush()

    def note(self, text: str) -> None:
        """A line that stays (process ids, warnings), above the bar if there is one."""
        if self._bar is not None:
            self._bar.note(text)
        else:
            self._out.write(f"{text}\n")
            self._out.flush()

    def close(self) -> None:
        """Leave the terminal as it was; closing twice is no fault."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None
        self._enabled = False


class _Bar:
    """rich's bar, drawn only when told to. Without its thread and its hold on stdout."""

    def __init__(self, out: "_Stderr") -> None:
        # Imported here: where stderr is no terminal, rich's import would only cost time.
        from rich.console import Console
        from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
        from rich.progress import Progress as RichProgress
        from rich.table import Column

        one_line = Column(no_wrap=True, overflow="ellipsis")
        self._console = Console(file=cast(TextIO, out), highlight=False, markup=False)
        self._progress = RichProgress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[detail]}", markup=False, table_column=one_line),
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task: TaskID = self._progress.add_task("starting", total=1.0, detail="")
        self._progress.start()

    def draw(self, stage: str, fraction: float, detail: str) -> None:
        self._progress.update(self._task, description=stage, completed=fraction, detail=detail)
        self._progress.refresh()

    def note(self, text: str) -> None:
        self._console.print(text, soft_wrap=True)

    def close(self) -> None:
        self._progress.stop()


class _Stderr(TextIOBase):
    """A stream that may go away: after the first failure it swallows what is written.

    rich, on a broken pipe, would point stdout at /dev/null and end the process; it never sees one.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:  # closed
            return False

    def draws(self) -> bool:
        """Can a bar be redrawn in place there?"""
        return self.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")

    def fileno(self) -> int:
        if self._stream is None:
            raise OSError("no stderr")
        return self._stream.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        if self._stream is not None:
            try:
                self._stream.write(text)
            except (OSError, ValueError):
                self._lost()
        return len(text)

    def flush(self) -> None:
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._lost()

    def _lost(self) -> None:
        """Gone, full or closed.

        What it still buffers goes to /dev/null: Python flushes stderr at its end, and would turn
        the exit code into 120 if that failed again.
        """
        stream, self._stream = self._stream, None
        if stream is not None:
            with contextlib.suppress(OSError, ValueError):
                nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
                try:
                    os.dup2(nowhere, stream.fileno())
                finally:
                    os.close(nowhere)


def _detail(phase_counts: Mapping[str, int], nranks: int, time_left_s: float | None) -> str:
    """`98304 ranks: bootstrap 30000, allgathers 68304, about 1 min 20 s left`."""
    phases = ", ".join(f"{phase} {count}" for phase, count in phase_counts.items() if count)
    text = f"{nranks} ranks: {phases}" if phases else f"{nranks} ranks"
    return text if time_left_s is None else f"{text}, {_left(time_left_s)} left"


def _left(seconds: float) -> str:
    if not 0 <= seconds < 1e6:
        return "an unknown time"
    minutes, rest = divmod(round(seconds), 60)
    return f"about {minutes} min {rest} s" if minutes else f"about {rest} s"
