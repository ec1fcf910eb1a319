"""Our bytes and our root's bookkeeping against NVIDIA's own root, over IPv4 loopback."""

import json
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from emucoll.servers.root_state import CollectingRootState, RootState
from emucoll.wire.address import Address
from emucoll.wire.nccl import (
    HELLO_BYTES,
    LENGTH_BYTES,
    CheckIn,
    CheckInLayout,
    SocketType,
    UniqueId,
    check_hello,
    check_in_with_previous_root,
    frame,
    layout_for,
    pack_hello,
    root_of,
    unpack_length,
)
from tests.interop.fetch import FetchError, fetch_nccl

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

NRANKS = 33
TIMEOUT_S = 30.0
VERSIONS = {"2.18.3": 64, "2.22.3": 64, "2.23.4": 172, "2.28.9": 172, "2.32.3": 176}
QUIT_AT_A_BAD_HELLO = VERSIONS.keys() - {"2.32.3"}
QUIT_AT_AN_EARLY_CLOSE = VERSIONS.keys() - {"2.28.9", "2.32.3"}
CHECKOUT = Path(__file__).parents[2]

ROOTS = """
import json, os, sys
from harness.external.libnccl import LibncclRoot, find_library
out = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)  # for the library's own talk
nccl = LibncclRoot(find_library(sys.argv[1]))
ids = [nccl.unique_id().pack().hex() for _ in range(int(sys.argv[2]))]
print(json.dumps({"version": nccl.version(), "ids": ids}), file=out)
sys.stdin.read()
"""


@pytest.fixture(scope="module", params=VERSIONS)
def library(request: pytest.FixtureRequest) -> Path:
    try:
        return fetch_nccl(request.param)
    except FetchError as error:
        pytest.skip(str(error))


@contextmanager
def real_roots(library: Path, count: int) -> Iterator[tuple[CheckInLayout, list[UniqueId]]]:
    """Roots in a process of their own, which talks as much as it can and lives as long as this."""
    with subprocess.Popen(
        [sys.executable, "-c", ROOTS, str(library), str(count)],
        cwd=CHECKOUT,
        env={"NCCL_DEBUG": "TRACE", "NCCL_DEBUG_SUBSYS": "ALL"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        yield layout_for(told["version"]), [UniqueId.unpack(bytes.fromhex(i)) for i in told["ids"]]
        process.stdin.close()
        assert process.stdout.read() == "", "NCCL wrote to stdout"
    assert process.returncode == 0


class Rank:
    """A rank of plain blocking sockets."""

    def __init__(self, rank: int, layout: CheckInLayout, ids: list[UniqueId], stack: ExitStack):
        self._layout = layout
        self._ids = ids
        self._reply, self._ring = (stack.enter_context(listener()) for _ in range(2))
        self.next: Address | None = None
        self.came_from: int | None = None
        self.check_in = CheckIn(
            rank=rank,
            nranks=NRANKS,
            iroot=root_of(rank, NRANKS, len(ids)),
            nroots=len(ids),
            offset=0,
            reply=Address(*self._reply.getsockname()),
            ring=Address(*self._ring.getsockname()),
        )

    def tell(self, c: CheckIn) -> None:
        unique_id = self._ids[c.iroot]
        with connect(unique_id.root) as sock:
            sock.sendall(pack_hello(unique_id.magic, SocketType.BOOTSTRAP))
            sock.sendall(frame(self._layout.pack(c)))

    def hear(self) -> Address:
        """Await the root's answer."""
        with accept(self._reply, self._ids[self.check_in.iroot].magic) as sock:
            size = unpack_length(receive(sock, LENGTH_BYTES), self._layout.connect_info_bytes)
            self.next = self._layout.unpack_connect_info(receive(sock, size))
            assert sock.recv(1) == b""
        return self.next

    def bootstrap(self) -> None:
        """Everything from the check-in to the ring."""
        self.tell(self.check_in)
        other = check_in_with_previous_root(self.check_in)
        if other is not None:
            self.tell(other)
        magic = self._ids[0].magic
        with connect(self.hear()) as following:
            following.sendall(pack_hello(magic, SocketType.BOOTSTRAP))
            following.sendall(frame(bytes([self.check_in.rank])))
            with accept(self._ring, magic) as previous:
                size = unpack_length(receive(previous, LENGTH_BYTES), 1)
                self.came_from = receive(previous, size)[0]


def listener() -> socket.socket:
    sock = socket.create_server(("127.0.0.1", 0))
    sock.settimeout(TIMEOUT_S)
    return sock


def connect(address: Address) -> socket.socket:
    return socket.create_connection((address.host, address.port), timeout=TIMEOUT_S)


@contextmanager
def accept(server: socket.socket, magic: int) -> Iterator[socket.socket]:
    sock, _ = server.accept()
    with sock:
        sock.settimeout(TIMEOUT_S)
        check_hello(receive(sock, HELLO_BYTES), magic, SocketType.BOOTSTRAP)
        yield sock


def receive(sock: socket.socket, size: int) -> bytes:
    """Exactly so many bytes (a socket with a timeout knows no MSG_WAITALL)."""
    data = b""
    while len(data) < size:
        more = sock.recv(size - len(data))
        assert more, f"closed after {len(data)} of {size} bytes"
        data += more
    return data


def is_quiet(server: socket.socket) -> bool:
    server.setblocking(False)
    try:
        server.accept()[0].close()
    except BlockingIOError:
        return True
    finally:
        server.settimeout(TIMEOUT_S)
    return False


@pytest.mark.parametrize("nroots", [1, 3])
def test_ranks_form_the_ring(library: Path, nroots: int) -> None:
    with real_roots(library, nroots) as (layout, ids), ExitStack() as stack:
        if nroots > 1 and not layout.has_roots:
            pytest.skip("this release knows one root alone")
        ranks = [Rank(rank, layout, ids, stack) for rank in range(NRANKS)]
        threads = [threading.Thread(target=rank.bootstrap) for rank in ranks]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for rank in range(NRANKS):
        following = ranks[(rank + 1) % NRANKS]
        assert ranks[rank].next == following.check_in.ring
        assert following.came_from == rank


@pytest.mark.parametrize("nroots", [1, 3])
@pytest.mark.parametrize("seed", range(3))
def test_our_root_does_what_the_real_one_does(library: Path, nroots: int, seed: int) -> None:
    """One check-in at a time, in any order: the real root then owes just what ours says."""
    with real_roots(library, nroots) as (layout, ids), ExitStack() as stack:
        if layout.collects:
            pytest.skip("this release owes nothing before all have come: the test below")
        ranks = [Rank(rank, layout, ids, stack) for rank in range(NRANKS)]
        by_reply = {rank.check_in.reply: rank for rank in ranks}
        own = [rank.check_in for rank in ranks]
        order = own + [c for c in map(check_in_with_previous_root, own) if c is not None]
        random.Random(seed).shuffle(order)
        states = [RootState(NRANKS, iroot, nroots) for iroot in range(nroots)]
        for c in order:
            by_reply[c.reply].tell(c)
            for reply, ring in states[c.iroot].check_in(c):
                assert by_reply[reply].hear() == ring
        assert all(state.complete and state.finish() == [] for state in states)
        assert all(rank.next is not None and is_quiet(rank._reply) for rank in ranks)


@pytest.mark.parametrize("seed", range(3))
def test_our_root_collects_as_the_real_one_does(library: Path, seed: int) -> None:
    """In any order: nobody is answered before the last has come, then all are, in rank order."""
    with real_roots(library, 1) as (layout, ids), ExitStack() as stack:
        if not layout.collects:
            pytest.skip("this release answers eagerly: the test above")
        ranks = [Rank(rank, layout, ids, stack) for rank in range(NRANKS)]
        by_reply = {rank.check_in.reply: rank for rank in ranks}
        order = random.Random(seed).sample(ranks, NRANKS)
        state = CollectingRootState(NRANKS)
        for rank in order[:-1]:
            rank.tell(rank.check_in)
            assert state.check_in(rank.check_in) == []
        time.sleep(0.1)
        assert all(is_quiet(rank._reply) for rank in ranks)
        order[-1].tell(order[-1].check_in)
        assert state.check_in(order[-1].check_in) == []
        for reply, ring in state.finish():
            assert by_reply[reply].hear() == ring
        assert all(rank.next is not None and is_quiet(rank._reply) for rank in ranks)


def test_strangers_do_not_disturb_the_root(library: Path) -> None:
    """It drops whoever brings another magic, or (but not the older ones) leaves early, and goes on
    accepting.
    """
    with real_roots(library, 1) as (layout, ids), ExitStack() as stack:
        visit(ids[0], b"GET /metrics HTTP/1.1\r\n\r\n")
        visit(ids[0], pack_hello(ids[0].magic + 1, SocketType.BOOTSTRAP))
        if library.parent.name not in QUIT_AT_AN_EARLY_CLOSE:
            visit(ids[0], b"GET")
        if library.parent.name not in QUIT_AT_A_BAD_HELLO:
            visit(ids[0], pack_hello(ids[0].magic, SocketType.PROXY))
            visit(ids[0], pack_hello(ids[0].magic, SocketType.PROXY)[:8])
        ranks = [Rank(rank, layout, ids, stack) for rank in range(NRANKS)]
        for rank in ranks:
            rank.tell(rank.check_in)
        for rank in ranks:
            assert rank.hear() == ranks[(rank.check_in.rank + 1) % NRANKS].check_in.ring


def visit(unique_id: UniqueId, hello: bytes) -> None:
    with connect(unique_id.root) as stranger:
        stranger.sendall(hello)


@pytest.mark.parametrize(
    ("size", "who"),
    [
        (HELLO_BYTES, QUIT_AT_A_BAD_HELLO),
        (8, QUIT_AT_A_BAD_HELLO),
        (3, QUIT_AT_AN_EARLY_CLOSE),
        (0, QUIT_AT_AN_EARLY_CLOSE),
    ],
    ids=["wrong type", "closed after the magic", "closed in the magic", "closed at once"],
)
def test_a_stranger_can_end_an_older_root(library: Path, size: int, who: set[str]) -> None:
    """Its listener closes, and the ranks would wait forever. To leave early no magic is needed."""
    if library.parent.name not in who:
        pytest.skip("this release drops such a peer, as the test above shows")
    with real_roots(library, 1) as (_, ids):
        visit(ids[0], pack_hello(ids[0].magic, SocketType.PROXY)[:size])
        deadline = time.monotonic() + TIMEOUT_S
        while is_open(ids[0].root):
            assert time.monotonic() < deadline
            time.sleep(0.01)


def is_open(address: Address) -> bool:
    try:
        connect(address).close()
    except (ConnectionRefusedError, ConnectionResetError):
        return False
    return True


def test_version_layout_and_address(library: Path) -> None:
    with real_roots(library, 2) as (layout, ids):
        assert layout.size == VERSIONS[library.parent.name]
        assert {unique_id.root.host for unique_id in ids} == {"127.0.0.1"}
        assert len({unique_id.root.port for unique_id in ids}) == 2
        assert len({unique_id.magic for unique_id in ids}) == 2
        assert all(unique_id.nranks == 0 for unique_id in ids)


def fails(library: Path, environment: dict[str, str]) -> str:
    """What a process of ours says that should not get a root."""
    done = subprocess.run(
        [sys.executable, "-c", ROOTS, str(library), "1"],
        cwd=CHECKOUT,
        env=environment,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 1
    assert done.stdout == ""
    return done.stderr.splitlines()[-1]


def test_an_interface_without_such_an_address(library: Path) -> None:
    said = fails(library, {"NCCL_SOCKET_FAMILY": "AF_INET6"})
    assert "UsageError" in said
    assert "Has interface lo an address of family AF_INET6 (NCCL_SOCKET_FAMILY) other" in said


def test_nccl_comm_id_leaves_the_root_to_a_rank(library: Path) -> None:
    said = fails(library, {"NCCL_COMM_ID": "127.0.0.1:4000"})
    assert "UsageError" in said
    assert "libnccl then starts no root, but expects one at 127.0.0.1:4000" in said
