"""Scanners at every listener of a run: whoever does not belong is dropped, and the run goes on."""

import secrets
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
import zmq

from harness.control import messages as m
from harness.control.link import TOKEN_VARIABLE
from tests.cli.command import Commands, Running, listeners, send, sockets

pytestmark = pytest.mark.waits

TWO = ("--workers", 2, "--deadline", "60s", "--json")
STAGGER = ("--uid-stagger-threshold", 1, "--uid-stagger-rate", 20)
"""Rank r checks in after r / 20 s, its listeners are open by then."""
HTTP = b"GET /metrics HTTP/1.0\r\n\r\n"
HALF = secrets.token_bytes(6)
"""Half of NCCL's hello, more than a store's first word; then silence."""


class Scanner:
    """Visits listeners, each once, in one manner."""

    def __init__(self, manner: str) -> None:
        self._manner = manner
        self._callers = ExitStack()
        self.visited: dict[tuple[str, int], str] = {}

    def visit(self, running: Running, enough: dict[str, int]) -> None:
        """All listeners of these processes, until each has had enough visits."""
        pids = {"controller": running.process.pid} | running.pids()
        for name, count in enough.items():
            running.until(lambda name=name, count=count: self._visit(name, pids[name]) >= count)

    def _visit(self, name: str, pid: int) -> int:
        for address in listeners(pid) - self.visited.keys():
            try:
                self._knock(address)
            except ConnectionRefusedError:  # a rank that needs it no more has closed it
                assert address not in listeners(pid)
            else:
                self.visited[address] = name
        return list(self.visited.values()).count(name)

    def _knock(self, address: tuple[str, int]) -> None:
        caller = self._callers.enter_context(socket.create_connection(address, timeout=30))
        with suppress(ConnectionError):  # dropped already
            caller.sendall({"close": b"", "rubbish": HTTP, "silence": HALF}[self._manner])
        if self._manner != "silence":
            caller.close()

    def leave(self) -> None:
        """Close what was left open."""
        self._callers.close()


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """A process that waits for us, however long that takes."""
    send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        send(pid, signal.SIGCONT)


def scan_nccl_root(running: Running, scanner: Scanner, roots: int = 1) -> None:
    """While the root stands still nobody's listener has had its peer."""
    pids = running.pids()
    running.until(lambda: sum(len(sockets(pids[f"worker {i}"])) for i in (0, 1)) > 80)
    with standing_still(pids["root"]):
        scanner.visit(running, {"controller": 1, "root": roots, "worker 0": 20, "worker 1": 20})


def scan_two_roots(running: Running, scanner: Scanner) -> None:
    """Both are in one process."""
    scan_nccl_root(running, scanner, roots=2)


def scan_tcpstore(running: Running, scanner: Scanner) -> None:
    """The last rank is slow; while its worker stands still, the first rank waits for it."""
    pids = running.pids()
    running.until(lambda: len(sockets(pids["worker 0"])) > 64)
    with standing_still(pids["worker 1"]):
        scanner.visit(running, {"controller": 1, "store": 1, "worker 0": 64})


@pytest.mark.parametrize("manner", ["close", "rubbish", "silence"])
@pytest.mark.parametrize(
    ("flags", "scan"),
    [
        (("-np", 128, "--record-bytes", 0, "--inject", "rank=127:slow=500"), scan_tcpstore),
        (("-np", 40, "--formation", "nccl-root", *STAGGER), scan_nccl_root),
        (("-np", 40, "--formation", "nccl-multiroot", "--roots", 2, *STAGGER), scan_two_roots),
    ],
)
def test_a_scanner_at_every_listener(
    emucoll: Commands,
    flags: tuple[object, ...],
    scan: Callable[[Running, Scanner], None],
    manner: str,
) -> None:
    scanner = Scanner(manner)
    try:
        patience_s = 1 if manner == "silence" else 30
        with emucoll.start("run", *flags, "--handshake-timeout", patience_s, *TWO) as running:
            running.published_pids()
            scan(running, scanner)
            ended = running.end()
    finally:
        scanner.leave()
    assert (ended.exit_code, ended.document["wrong"]) == (0, 0)
    assert "turned away by ranks or servers" in ended.warnings["strangers-dropped"]


# -- the control plane


@contextmanager
def waiting_run(emucoll: Commands) -> Iterator[tuple[Running, str, str]]:
    """A run that takes two seconds, its controller's endpoint, and its token."""
    slow = ("--uid-stagger-threshold", 1, "--uid-stagger-rate", 8)
    flags = ("-np", 16, "--formation", "nccl-root", *slow)
    with emucoll.start("run", *flags, *TWO) as running:
        pids = running.published_pids()
        running.until(lambda: sum(len(sockets(pids[f"worker {i}"])) for i in (0, 1)) > 32)
        [(host, port)] = listeners(running.process.pid)
        environment = Path(f"/proc/{pids['root']}/environ").read_bytes().split(b"\0")
        [token] = [line for line in environment if line.startswith(TOKEN_VARIABLE.encode())]
        yield running, f"tcp://{host}:{port}", token.partition(b"=")[2].decode()


def hello(token: str, process: str) -> bytes:
    return m.encode(m.Hello(protocol=m.PROTOCOL, token=token, process=process, host="x", loop="y"))


def test_whoever_has_no_token_is_ignored_by_the_controller(emucoll: Commands) -> None:
    failed = m.RankFailed(rank=1, phase="x", peer=-1, kind="raised", what="a lie")
    with waiting_run(emucoll) as (running, endpoint, token), zmq.Context() as context:
        frames = [
            [hello("", "worker 0")],
            [hello(secrets.token_hex(16), "worker 1")],
            [hello("ÿ" * 32, "root")],
            [hello(token, "worker 0")],  # that name is taken
            [hello(token, "worker 7")],  # and there is no such
            [m.encode(failed)],
            [m.encode(m.Broken(kind="usage", what="a lie"))],
            [m.encode(m.Formed(addresses=b"", seconds=0.0))],
            [m.encode(m.Stop())],
            [b""],
            [HTTP],
            [b"\x82\xa4type\xa5hello\xa1x" + b"\x91" * 100_000],  # nested deeper than Python goes
            [b"\x82\xa4type\xa7waiting\xa5names\xdd\xff\xff\xff\xff"],  # a list of 4 billion
            [HTTP, HTTP, HTTP],
        ]
        with context.socket(zmq.DEALER) as stranger:
            stranger.linger = 0
            stranger.connect(endpoint)
            for each in frames:
                stranger.send_multipart(each)
            ended = running.end()
            assert not stranger.poll(0), "the controller answered a stranger"
    assert (ended.exit_code, ended.document["wrong"]) == (0, 0)
    assert ended.warnings["controller-strangers"].startswith(f"{len(frames)} messages")


def test_the_token_is_not_on_the_command_line(emucoll: Commands) -> None:
    with waiting_run(emucoll) as (running, _, token):
        assert len(token) == 32
        for pid in running.processes():
            assert token.encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()
        assert running.end().exit_code == 0
