"""The real command as users start it, and a look at what it leaves behind.

Every command gets a temporary folder of its own. Its processes inherit the folder's name, so that
those of one run are found among all others, published or not.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHECKOUT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
"""No run of these tests comes near it, on whatever machine; a wait that does is a failure."""


@dataclass(frozen=True)
class Ended:
    """A command that is over, with nothing of it left."""

    exit_code: int
    out: bytes
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        document = json.loads(
            self.out, parse_constant=_no_such_number, object_pairs_hook=_without_doubles
        )
        assert isinstance(document, dict)
        if "exit_code" in document:
            assert document["exit_code"] == self.exit_code
        assert document["ok"] is (self.exit_code == 0)
        assert (document["error"] is None) is document["ok"]
        return document

    @property
    def error(self) -> dict[str, Any]:
        """Why it failed."""
        error = self.document["error"]
        assert isinstance(error, dict), "it did not fail"
        return error

    @property
    def warnings(self) -> dict[str, str]:
        """Texts by code."""
        return {warning["code"]: warning["text"] for warning in self.document["warnings"]}


def _no_such_number(text: str) -> None:
    raise AssertionError(f"{text} is not JSON")


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    assert len(keys) == len(set(keys)), f"a key stands there twice: {keys}"
    return dict(pairs)


class Running:
    """A command on its way."""

    def __init__(self, folder: Path, arguments: tuple[object, ...], **popen: Any) -> None:
        self._tmp = folder / "tmp"
        self._tmp.mkdir(parents=True)
        self._out, self._err = folder / "stdout", folder / "stderr"
        self.marks: dict[str, float] = {}
        """What a condition has noted, for the next time that it is asked."""
        command = [sys.executable, "-m", "harness.cli.main", *map(str, arguments)]
        environment = {**os.environ, "TMPDIR": str(self._tmp), **popen.pop("env", {})}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            files = {"stdout": out, "stderr": err, "stdin": subprocess.DEVNULL}
            popen = files | {"cwd": CHECKOUT} | popen
            self.process = subprocess.Popen(command, env=environment, **popen)

    @property
    def err(self) -> str:
        """What it has written to stderr so far."""
        return self._err.read_text(errors="replace")

    def pids(self) -> dict[str, int]:
        """Its processes by name ("store", "worker 1"), once it has published them."""
        for line in self.err.splitlines():
            if line.startswith("process ids: "):
                words = line.removeprefix("process ids: ").split(", ")
                return {name: int(pid) for name, _, pid in (word.rpartition(" ") for word in words)}
        return {}

    def published_pids(self) -> dict[str, int]:
        """`pids`, waited for."""
        self.until(lambda: bool(self.pids()))
        return self.pids()

    def processes(self) -> list[int]:
        """Every process of it that is alive, itself among them."""
        mark = f"TMPDIR={self._tmp}\0".encode()
        return [pid for pid in _all_pids() if mark in _environment(pid)]

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for `condition`, as long as the command runs."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert self.process.poll() is None, f"it ended meanwhile:\n{self.err}"
            assert time.monotonic() < deadline, self.err
            time.sleep(0.002)

    def end(self, within_s: float = PATIENCE_S) -> Ended:
        """Wait for its end; nothing of it may be left then."""
        exit_code = self.process.wait(within_s)
        ended = Ended(exit_code, self._out.read_bytes(), self.err)
        self.nothing_left()
        return ended

    def nothing_left(self, within_s: float = 0.0) -> None:
        """Fail if a process, and with it a port, or a file is left after `within_s` seconds."""
        deadline = time.monotonic() + within_s
        while left := self.processes():
            assert time.monotonic() < deadline, f"processes {left} are left\n{self.err}"
            time.sleep(0.01)
        assert list(self._tmp.iterdir()) == []

    def kill(self) -> None:
        """Leave nothing behind, whatever a test found."""
        while left := self.processes():
            for pid in left:
                send(pid, signal.SIGKILL)
            self.process.wait(PATIENCE_S)
        self.process.wait(PATIENCE_S)


class Commands:
    """What a test starts, each command in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    @contextmanager
    def start(self, *arguments: object, **popen: Any) -> Iterator[Running]:
        """The command, running; whatever is left of it at the end is killed."""
        self._count += 1
        running = Running(self._folder / f"command-{self._count}", arguments, **popen)
        try:
            yield running
        finally:
            running.kill()

    def __call__(self, *arguments: object, **popen: Any) -> Ended:
        """The command from start to end."""
        with self.start(*arguments, **popen) as running:
            return running.end()


def send(pid: int, number: signal.Signals) -> None:
    """A signal to a process that may have ended."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _environment(pid: int) -> bytes:
    """Empty for what has ended or is another user's."""
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


# -- sockets


def sockets(pid: int) -> set[str]:
    """The inodes of a process's sockets."""
    links = set()
    for descriptor in _listdir(f"/proc/{pid}/fd"):
        try:
            links.add(os.readlink(f"/proc/{pid}/fd/{descriptor}"))
        except OSError:  # closed meanwhile
            continue
    return {link[8:-1] for link in links if link.startswith("socket:[")}


def listeners(pid: int) -> set[tuple[str, int]]:
    """Where a process listens, over IPv4."""
    own = sockets(pid)
    found = set()
    with open("/proc/net/tcp") as table:
        next(table)
        for line in table:
            words = line.split()
            if words[3] != "0A":  # listeners come first, and connections may be many
                break
            if words[9] in own:
                host, port = words[1].split(":")
                octets = reversed(bytes.fromhex(host))
                found.add((".".join(map(str, octets)), int(port, 16)))
    return found


def _listdir(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []
