"""Scanners at every listener of a run: whoever does not belong is dropped, and the run goes on."""

import secrets
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import zmq

from harness.control import messages as m
from harness.control.link import TOKEN_VARIABLE
from tests.cli.command import Commands, Ended, Running, listeners, send, sockets

SHORT = ("--handshake-timeout", "1s", "--workers", 2, "--json")
HTTP = b"GET /metrics HTTP/1.0\r\n\r\n"
HALF = secrets.token_bytes(6)
"""Half of NCCL's hello, more than a store's first word; then silence."""


class Scanner:
    """Visits listeners, each once, in one manner."""

    def __init__(self, manner: str) -> None:
        self._manner = manner
        self._silent = ExitStack()
        self.visited: dict[tuple[str, int], str] = {}

    def visit(self, running: Running, names: dict[str, int]) -> None:
        """All listeners of these processes."""
        for name, pid in names.items():
            for address in listeners(pid) - self.visited.keys():
                try:
                    self._knock(address)
                except ConnectionError:  # a rank that needs its listener no more has closed it
                    running.until(lambda pid=pid, address=address: address not in listeners(pid))
                else:
                    self.visited[address] = name

    def _knock(self, address: tuple[str, int]) -> None:
        with ExitStack() as short:
            caller = short.enter_context(socket.create_connection(address, timeout=5))
            if self._manner == "rubbish":
                caller.sendall(HTTP)
            elif self._manner == "silence":
                caller.sendall(HALF)
                self._silent.enter_context(short.pop_all())  # stays open till the run has ended

    def leave(self) -> None:
        """Close what was left open."""
        self._silent.close()

    def visits(self, name: str) -> int:
        """To how many listeners of process `name`?"""
        return list(self.visited.values()).count(name)


def scan_nccl_root(emucoll: Commands, scanner: Scanner) -> Ended:
    """Ranks sleep in their stagger when their ring and reply listeners are open already."""
    slow = ("--uid-stagger-threshold", 1, "--uid-stagger-rate", 20)
    flags = ("-np", 40, "--formation", "nccl-root", *slow, *SHORT)
    with emucoll.start("run", *flags) as running:
        pids = running.published_pids() | {"controller": running.process.pid}
        running.until(lambda: sum(len(sockets(pids[f"worker {i}"])) for i in (0, 1)) > 80)
        scanner.visit(running, pids)
        return running.end()


def scan_tcpstore(emucoll: Commands, scanner: Scanner) -> Ended:
    """While one worker stands still, the ranks of the other that wait for its ranks are open."""
    with emucoll.start("run", "-np", 128, *SHORT) as running:
        pids = running.published_pids() | {"controller": running.process.pid}
        running.until(lambda: len(sockets(pids["worker 0"])) > 10)
        send(pids["worker 1"], signal.SIGSTOP)
        try:
            running.until(lambda: len(listeners(pids["worker 0"])) == 64)
            scanner.visit(running, pids)
        finally:
            send(pids["worker 1"], signal.SIGCONT)
        return running.end()


@pytest.mark.parametrize("manner", ["close", "rubbish", "silence"])
@pytest.mark.parametrize("formation", ["tcpstore", "nccl-root"])
def test_a_scanner_at_every_listener(emucoll: Commands, formation: str, manner: str) -> None:
    scanner = Scanner(manner)
    try:
        scan = {"tcpstore": scan_tcpstore, "nccl-root": scan_nccl_root}[formation]
        ended = scan(emucoll, scanner)
    finally:
        scanner.leave()
    assert (ended.exit_code, ended.document["wrong"]) == (0, 0)
    assert scanner.visits("controller") == 1
    assert scanner.visits("store" if formation == "tcpstore" else "root") == 1
    assert scanner.visits("worker 0") >= 20
    assert "turned away by ranks or servers" in ended.warnings["strangers-dropped"]
    if formation == "nccl-root":
        assert scanner.visits("worker 1") >= 20


# -- the control plane


@contextmanager
def waiting_run(emucoll: Commands) -> Iterator[tuple[Running, str, str]]:
    """A run that takes two seconds, its controller's endpoint, and its token."""
    slow = ("--uid-stagger-threshold", 1, "--uid-stagger-rate", 8)
    flags = ("-np", 16, "--formation", "nccl-root", *slow)
    with emucoll.start("run", *flags, *SHORT) as running:
        pids = running.published_pids()
        running.until(lambda: sum(len(sockets(pids[f"worker {i}"])) for i in (0, 1)) > 32)
        [(host, port)] = listeners(running.process.pid)
        environment = Path(f"/proc/{pids['root']}/environ").read_bytes().split(b"\0")
        [token] = [line for line in environment if line.startswith(TOKEN_VARIABLE.encode())]
        yield running, f"tcp://{host}:{port}", token.partition(b"=")[2].decode()


def hello(token: str, process: str) -> bytes:
    return m.encode(
        m.Hello(protocol=m.PROTOCOL, token=token, process=process, pid=1, host="x", loop="y")
    )


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
