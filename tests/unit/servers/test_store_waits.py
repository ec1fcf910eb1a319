"""Waiting in a TCPStore: by the algorithm of libuv's server, through disconnects, and its cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.servers.store_state import StoreState
from emucoll.wire.tcpstore import Op, Request

STOP = b"\0"
CANCELED = b"\1"


def i64(n: int) -> bytes:
    return n.to_bytes(8, "little", signed=True)


# Disappearing while others are woken ------------------------------------------------------------


@pytest.mark.parametrize("queue", [False, True])
def test_wake_may_disconnect(queue: bool) -> None:
    woken = []

    def wake(client: int, _reply: bytes) -> None:
        woken.append(client)
        for gone in (client, client + 1, client + 2):
            state.disconnect(gone)

    state: StoreState[int] = StoreState(wake)
    for client in range(6):
        state.handle(client, Request(Op.WAIT, (b"k", b"k")))
    push = Request(Op.QUEUE_PUSH if queue else Op.SET, (b"k",), (b"",))
    state.handle(9, push)
    assert woken == ([0] if queue else [0, 3])
    state.handle(9, push)
    assert woken == [0, 3]
    state.handle(9, push)
    assert state.stuck_waits() == []


# Against the real algorithm ---------------------------------------------------------------------


class Naive:
    """WAIT, CANCEL_WAIT, BARRIER and SET as libuv's server does them: lists, searched through."""

    def __init__(self) -> None:
        self.keys: dict[bytes, int] = {}
        self.waiting: dict[bytes, list[int]] = {}
        self.awaited: dict[int, int] = {}

    def do(self, client: int, request: Request) -> tuple[bytes, list[int]]:
        """Reply and woken clients."""
        match request.op:
            case Op.ADD:
                self.keys[request.keys[0]] = total = self.keys.get(request.keys[0], 0) + 1
                return i64(total), self.wake(request.keys[0])
            case Op.BARRIER:
                key = request.keys[0]
                self.keys[key] = self.keys.get(key, 0) + 1
                if self.keys[key] >= request.number:
                    return STOP, self.wake(key)
                self.waiting.setdefault(key, []).append(client)
                self.awaited[client] = 1
            case Op.DELETE_KEY:
                return i64(self.keys.pop(request.keys[0], None) is not None), []
            case Op.CANCEL_WAIT:
                self.forget(client)
                return CANCELED, []
            case Op.WAIT:
                missing = [key for key in request.keys if key not in self.keys]
                if not missing:
                    return STOP, []
                for key in missing:
                    self.waiting.setdefault(key, []).append(client)
                self.awaited[client] = len(missing)
        return b"", []

    def wake(self, key: bytes) -> list[int]:
        woken = []
        for client in self.waiting.pop(key, []):
            self.awaited[client] -= 1
            if self.awaited[client] == 0:
                woken.append(client)
        return woken

    def forget(self, client: int) -> None:
        self.awaited.pop(client, None)
        for key, clients in list(self.waiting.items()):
            self.waiting[key] = [other for other in clients if other != client]
            if not self.waiting[key]:
                del self.waiting[key]


some_key = st.sampled_from([b"a", b"b", b"c", b"d"])
one_key = st.tuples(some_key)
steps = st.one_of(
    st.builds(lambda keys: Request(Op.ADD, keys, (), 1), one_key),
    st.builds(lambda keys: Request(Op.DELETE_KEY, keys), one_key),
    st.builds(lambda keys: Request(Op.WAIT, tuple(keys)), st.lists(some_key, max_size=4)),
    st.builds(lambda keys, n: Request(Op.BARRIER, keys, (), n), one_key, st.integers(0, 4)),
    st.just(Request(Op.CANCEL_WAIT)),
    st.just(None),  # the client disconnects
)


@given(st.lists(st.tuples(st.integers(0, 4), steps), max_size=60))
def test_waits_are_those_of_libuvs_server(script: list[tuple[int, Request | None]]) -> None:
    woken: list[int] = []
    state: StoreState[int] = StoreState(lambda client, _reply: woken.append(client))
    naive = Naive()
    for client, request in script:
        if request is None:
            state.disconnect(client)
            naive.forget(client)
            continue
        woken.clear()
        reply = state.handle(client, request)
        expected_reply, expected_woken = naive.do(client, request)
        # Sorted: who names a key twice is woken where it named it first, not where it did last.
        assert (reply, sorted(woken)) == (expected_reply, sorted(expected_woken))
        registered = {key: len(set(clients)) for key, clients in naive.waiting.items()}
        assert dict(state.stuck_waits()) == registered
    for client in range(5):
        state.disconnect(client)
    assert state.stuck_waits() == []
    assert state._waits == {}


# Cost -------------------------------------------------------------------------------------------


class Counted:
    """A client that counts how often clients are compared or hashed: the steps of a search."""

    steps = 0

    def __eq__(self, other: object) -> bool:
        Counted.steps += 1
        return self is other

    def __hash__(self) -> int:
        Counted.steps += 1
        return id(self) >> 4


def test_disconnect_costs_what_the_client_waited_for() -> None:
    clients = [Counted() for _ in range(5_000)]
    state: StoreState[Counted] = StoreState(lambda _client, _reply: None)
    for client in clients:
        state.handle(client, Request(Op.WAIT, (b"hot", b"x")))
    Counted.steps = 0
    for client in reversed(clients[1_000:]):
        state.disconnect(client)
    assert 0 < Counted.steps < 40 * len(clients)
    assert state.stuck_waits() == [(b"hot", 1_000), (b"x", 1_000)]


def test_100_000_waiters_for_one_key() -> None:
    woken: list[int] = []
    state: StoreState[int] = StoreState(lambda client, _reply: woken.append(client))
    for client in range(100_000):
        assert state.handle(client, Request(Op.WAIT, (b"k",))) == b""
    assert state.stuck_waits() == [(b"k", 100_000)]
    state.handle(-1, Request(Op.SET, (b"k",), (b"",)))
    assert woken == list(range(100_000))
    assert state._waits == {}
    assert state.requests == 100_001
