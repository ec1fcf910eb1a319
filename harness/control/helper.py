"""A small process of ours beside the controller's: started, spoken with in lines, and ended.

For what is measured in a process of its own without a run around it. Each line is one JSON value.
Whatever happens, Ctrl-C included, no helper outlives the `with` in which it was started.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any

from emucoll.errors import HarnessError

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LAST_WORDS_BYTES = 4096
PATIENCE_S = 5.0


def begin() -> None:
    """In a helper, before all else: Ctrl-C is its starter's business, who also held signals back
    while it was started.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)


def tell(value: object) -> None:
    """In a helper: one line to whoever started it."""
    sys.stdout.write(json.dumps(value) + "\n")
    sys.stdout.flush()


class Helper:
    """`python -m MODULE ARGUMENTS`, with its stdin and stdout."""

    def __init__(self, module: str, *arguments: object) -> None:
        """Start it. Raises HarnessError."""
        self._module = module
        self._read = b""
        with contextlib.ExitStack() as stack:
            self._said = stack.enter_context(tempfile.TemporaryFile())
            try:
                with _held_back():  # none may come between its start and our knowing of it
                    self._process = subprocess.Popen(
                        [sys.executable, "-P", "-m", module, *map(str, arguments)],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=self._said,
                        process_group=0,
                    )
                    stack.callback(self._end)
            except OSError as error:
                raise HarnessError(f"{module} could not be started: {error.strerror}") from None
            stack.pop_all()

    def __enter__(self) -> "Helper":
        """Use it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End it: by the end of its stdin, by SIGKILL where that is of no use."""
        try:
            self.finish()
            if kind is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(PATIENCE_S)
        finally:
            self._end()
            self._said.close()

    def kill(self) -> None:
        """End it at once: whoever hears it learns that it is lost."""
        self._process.kill()

    def _end(self) -> None:
        self._process.kill()
        self._process.wait()
        self.finish()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def say(self, value: object) -> None:
        """One line to it. Raises HarnessError if it has gone."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(value).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._lost() from None

    def finish(self) -> None:
        """There is nothing more to say to it."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()

    def hear(self, patience_s: float) -> Any:
        """The next line that it tells. Raises HarnessError if it ends, or takes too long."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        deadline = time.monotonic() + patience_s
        while b"\n" not in self._read:
            left_s = max(0.0, deadline - time.monotonic())
            if not select.select([descriptor], [], [], left_s)[0]:
                raise HarnessError(f"{self._module} said nothing for {patience_s:g} s")
            more = os.read(descriptor, 1 << 16)
            if not more:
                raise self._lost()
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)

    def _lost(self) -> HarnessError:
        descriptor = self._said.fileno()
        start = max(0, os.fstat(descriptor).st_size - _LAST_WORDS_BYTES)
        said = os.pread(descriptor, _LAST_WORDS_BYTES, start).decode(errors="replace").split("\n")
        words = [line for line in said if line.strip()]
        return HarnessError(f"{self._module} ended early: {words[-1] if words else self._end_of()}")

    def _end_of(self) -> str:
        """What is known of the end of one that has said nothing."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._process.wait(PATIENCE_S)
            if code == -signal.SIGKILL:
                return "killed by SIGKILL, as the kernel does when memory runs out"
            if code < 0:
                return f"killed by {signal.Signals(-code).name}"
        return "no word why"


@contextlib.contextmanager
def _held_back() -> Iterator[None]:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
