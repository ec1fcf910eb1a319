import contextlib
import io
import os
import pty
import select
import subprocess
import sys
from collections.abc import Iterator

import pytest

from harness.report.progress import Progress

COUNTS = {"admission": 0, "bootstrap": 3, "allgathers": 5}


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def plain(enabled: bool = True) -> tuple[Progress, io.StringIO, Clock]:
    stream, clock = io.StringIO(), Clock()
    return Progress(enabled, stream, clock), stream, clock


def test_a_line_says_stage_share_phases_and_time_left() -> None:
    progress, stream, clock = plain()
    clock.now += 12.3
    progress.update(COUNTS, 8, "allgathers", 0.5, 80.4)
    assert stream.getvalue() == (
        "[   12.3 s] allgathers  50%  8 ranks: bootstrap 3, allgathers 5, about 1 min 20 s left\n"
    )


def test_lines_come_at_most_every_five_seconds() -> None:
    progress, stream, clock = plain()
    for _ in range(1000):
        progress.update(COUNTS, 8, "formation", 0.1)
        clock.now += 0.02
    assert len(stream.getvalue().splitlines()) == 4


def test_work_that_is_not_ranks_says_what_it_is() -> None:
    progress, stream, clock = plain()
    progress.step("calibrating", 0.25, "repeat 1 of 2: loops", None)
    progress.step("calibrating", 0.5, "too soon", None)
    clock.now += 5.0
    progress.step("calibrating", 0.75, "repeat 2 of 2: loops", 61.0)
    assert stream.getvalue() == (
        "[    0.0 s] calibrating  25%  repeat 1 of 2: loops\n"
        "[    5.0 s] calibrating  75%  repeat 2 of 2: loops, about 1 min 1 s left\n"
    )


@pytest.mark.parametrize(
    ("left", "text"),
    [
        (None, "5\n"),
        (0.0, "about 0 s left\n"),
        (59.6, "about 1 min 0 s left\n"),
        (float("inf"), "an unknown time left\n"),
        (float("nan"), "an unknown time left\n"),
        (-1.0, "an unknown time left\n"),
    ],
)
def test_any_estimate_can_be_said(left: float | None, text: str) -> None:
    progress, stream, _ = plain()
    progress.update(COUNTS, 8, "formation", 0.1, left)
    assert stream.getvalue().endswith(text)


@pytest.mark.parametrize(("fraction", "text"), [(-1.0, " 0% "), (7.0, " 100% ")])
def test_a_share_stays_a_share(fraction: float, text: str) -> None:
    progress, stream, _ = plain()
    progress.update({}, 8, "formation", fraction)
    assert text in stream.getvalue()


def test_switched_off_it_keeps_to_notes() -> None:
    progress, stream, _ = plain(enabled=False)
    progress.update(COUNTS, 8, "formation", 0.1)
    progress.note("worker 0: pid 17")
    progress.close()
    assert stream.getvalue() == "worker 0: pid 17\n"


def test_nothing_comes_after_the_end() -> None:
    progress, stream, _ = plain()
    progress.close()
    progress.close()
    progress.update(COUNTS, 8, "formation", 0.1)
    assert stream.getvalue() == ""


def test_a_pipe_gets_no_escape(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    progress, stream, _ = plain()
    progress.update(COUNTS, 8, "formation", 0.1)
    progress.close()
    assert stream.getvalue()
    assert "\x1b" not in stream.getvalue()


def test_stdout_is_never_written_to(capfd: pytest.CaptureFixture[str]) -> None:
    progress = Progress()
    progress.update(COUNTS, 8, "formation", 0.1)
    progress.note("a note")
    progress.close()
    out, err = capfd.readouterr()
    assert out == ""
    assert "a note\n" in err


class Gone(io.StringIO):
    """A stderr whose reader went away."""

    tries = 0

    def write(self, text: str) -> int:
        self.tries += 1
        raise BrokenPipeError(32, "Broken pipe")

    def flush(self) -> None:
        raise BrokenPipeError(32, "Broken pipe")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("stream", [Gone(), closed()])
def test_a_stderr_that_is_gone_ends_the_progress_only(stream: io.StringIO) -> None:
    clock = Clock()
    progress = Progress(True, stream, clock)
    for _ in range(3):
        progress.update(COUNTS, 8, "formation", 0.1)
        progress.note("a note")
        clock.now += 60.0
    progress.close()
    if isinstance(stream, Gone):
        assert stream.tries == 1


def test_a_process_without_stderr_keeps_its_stdout() -> None:
    code = (
        "from harness.report.progress import Progress\n"
        "p = Progress(); p.update({'x': 1}, 1, 's', .5); p.note('n'); p.close(); print('data')\n"
    )
    done = subprocess.run(
        ["/bin/sh", "-c", 'exec "$0" -c "$1" 2>&-', sys.executable, code],
        stdout=subprocess.PIPE,
        check=True,
    )
    assert done.stdout == b"data\n"


def test_a_process_whose_stderr_is_gone_ends_as_it_would_have() -> None:
    code = (
        "from harness.report.progress import Progress\n"
        "p = Progress(); p.note('n'); p.note('n'); p.close(); print('data'); raise SystemExit(3)\n"
    )
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=writes, check=False
    )
    os.close(writes)
    assert (done.returncode, done.stdout) == (3, b"data\n")


@contextlib.contextmanager
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, io.TextIOWrapper]]:
    """A terminal of our own: the end that shows, and the stream to write to."""
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "120")
    shows, writes = pty.openpty()
    try:
        with open(writes, "w", encoding="utf-8") as stream:
            yield shows, stream
    finally:
        with contextlib.suppress(OSError):
            os.close(shows)


def shown(descriptor: int) -> str:
    data = b""
    while select.select([descriptor], [], [], 0)[0]:
        data += os.read(descriptor, 65536)
    return data.decode()


def test_a_terminal_gets_a_bar(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with terminal(monkeypatch) as (screen, stream):
        clock = Clock()
        before = sys.stdout, sys.stderr
        progress = Progress(True, stream, clock)
        progress.update(COUNTS, 8, "allgathers", 0.5, 11.0)
        assert (sys.stdout, sys.stderr) == before, "rich took a standard stream for itself"
        text = shown(screen)
        assert "\x1b[" in text
        assert "allgathers" in text
        assert "50%" in text
        assert "bootstrap 3, allgathers 5, about 11 s left" in text
        progress.note("worker 0: pid 17 [bold]")
        assert "worker 0: pid 17 [bold]" in shown(screen)
        progress.close()
        assert "\x1b[?25h" in shown(screen), "the cursor stays hidden"
    assert capfd.readouterr().out == ""


def test_a_terminal_is_drawn_on_at_most_twice_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as (screen, stream):
        clock = Clock()
        progress = Progress(True, stream, clock)
        progress.update(COUNTS, 8, "first", 0.5)
        shown(screen)
        clock.now += 0.4
        progress.update(COUNTS, 8, "second", 0.5)
        assert shown(screen) == ""
        clock.now += 0.2
        progress.update(COUNTS, 8, "third", 0.5)
        assert "third" in shown(screen)
        progress.close()


def test_no_color_is_respected_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as (screen, stream):
        monkeypatch.setenv("NO_COLOR", "1")
        progress = Progress(True, stream, Clock())
        progress.update(COUNTS, 8, "allgathers", 0.5)
        text = shown(screen)
        progress.close()
    assert "allgathers" in text
    assert "\x1b[3" not in text, "a colour"


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as (screen, stream):
        monkeypatch.setenv("TERM", "dumb")
        progress = Progress(True, stream, Clock())
        progress.update(COUNTS, 8, "allgathers", 0.5)
        text = shown(screen)
        progress.close()
    assert text.startswith("[")
    assert "\x1b" not in text


def test_a_terminal_that_hangs_up_ends_the_progress_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with terminal(monkeypatch) as (screen, stream):
        clock = Clock()
        progress = Progress(True, stream, clock)
        progress.update(COUNTS, 8, "allgathers", 0.5)
        os.close(screen)
        for _ in range(3):
            clock.now += 60.0
            progress.update(COUNTS, 8, "allgathers", 0.6)
            progress.note("a note")
        progress.close()
        assert os.path.samestat(os.fstat(stream.fileno()), os.stat(os.devnull)), "it gave up"
