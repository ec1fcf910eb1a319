"""How the processes of a run are started on this machine, and ended.

A worker or server is a command that takes the controller's address, so that Slurm or a shell on
another host can start it too. Each gets a process group of its own, so that Ctrl-C reaches the
controller alone, and the run's token in its environment, where `ps` does not show it. They stay in
one session: where the kernel schedules by session (autogroup), niceness counts only within one.
What a process says goes into a file without a name, which nobody has to remove, not even after the
controller was killed.
"""

import asyncio
import contextlib
import os
import random
import signal
import socket
import sys
import tempfile
from typing import IO

from emucoll.errors import HarnessError
from harness.control.link import TOKEN_VARIABLE

_MODULES = {"worker": "harness.control.worker", "server": "harness.control.server"}
_LAST_WORDS_BYTES = 4096


class Process:
    """One started process."""

    def __init__(self, name: str, handle: asyncio.subprocess.Process, log: IO[bytes]) -> None:
        """`log` holds what it writes to stdout and stderr."""
        self.name = name
        self.pid = handle.pid
        self._handle = handle
        self._log = log

    @classmethod
    async def start(cls, name: str, endpoint: str, token: str) -> "Process":
        """Start worker or server `name`. Raises HarnessError."""
        module = _MODULES["worker" if name.startswith("worker") else "server"]
        # One thread a process is enough; without these numpy's BLAS would allocate for every core.
        threads = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        with contextlib.ExitStack() as stack:
            try:
                log = stack.enter_context(tempfile.TemporaryFile())
                handle = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", module, endpoint, name),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **threads, TOKEN_VARIABLE: token},
                    process_group=0,
                )
            except OSError as error:
                raise HarnessError(f"{name} could not be started: {error.strerror}") from None
            stack.pop_all()
        return cls(name, handle, log)

    async def wait(self) -> int:
        """Its exit code; the negative signal number if a signal ended it."""
        return await self._handle.wait()

    def last_words(self, lines: int = 3) -> str:
        """The end of what it said; empty once it is known to have stopped."""
        if self._log.closed:
            return ""
        # The process writes where the file's offset stands: it is read without moving that.
        descriptor = self._log.fileno()
        start = max(0, os.fstat(descriptor).st_size - _LAST_WORDS_BYTES)
        said = os.pread(descriptor, _LAST_WORDS_BYTES, start).decode(errors="replace")
        return "\n".join(said.strip().splitlines()[-lines:])

    def kill(self) -> None:
        """SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self._handle.kill()

    async def stopped(self, patience_s: float) -> bool:
        """Wait until it has ended, by SIGKILL if it takes too long; whether it ended by itself."""
        try:
            async with asyncio.timeout(patience_s):
                await self._handle.wait()
        except TimeoutError:
            self.kill()
            await self._handle.wait()
            return False
        finally:
            self._log.close()
        return True


def describe_exit(code: int) -> str:
    """An exit code in words."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"was ended by signal {-code}"


class SourceAddresses:
    """Unused 127/8 addresses for one run, so that neither another run's ports nor its TIME_WAIT are
    in the way.

    Each is reserved by an abstract Unix socket of its name, which ends with this process.
    """

    def __init__(self, draw: random.Random) -> None:
        """Draw from `draw`."""
        self._draw = draw
        self._reservations: list[socket.socket] = []

    def take(self, ip: str) -> str:
        """A fresh address; IPv6 has ::1 alone."""
        if ip == "6":
            return "::1"
        while True:
            draw = self._draw.randrange
            address = f"127.{draw(1, 255)}.{draw(256)}.{draw(1, 255)}"
            if self._reserve(address):
                return address

    def _reserve(self, address: str) -> bool:
        reservation = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            reservation.bind(f"\0emucoll/{address}")
        except OSError:
            reservation.close()
            return False
        self._reservations.append(reservation)
        return True

    def release(self) -> None:
        """Give all of them back."""
        for reservation in self._reservations:
            reservation.close()
        self._reservations.clear()
