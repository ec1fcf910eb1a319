"""What a TCPStore server keeps and decides, without the serving: requests to replies and wake-ups.

Source: TCPStoreLibUvBackend.cpp of PyTorch 2.13, whose behaviour it has, except where that one
does what no client can want:

- COMPARE_SET wakes waiters if it writes. libuv's server also wakes them when it does not, though
  the key may be absent still; the older server never does, and they hang.
- WAIT takes a queue that holds something for there, also if other keys are missing. libuv's
  server then waits for one more push.
- QUEUE_PUSH drops the waiters that it passes. libuv's server keeps them, and the next push counts
  for them again, whatever they wait for by then.
- What one client waits for, and how long APPEND may make a value, have bounds.

Holds true: a client's disappearance costs as many steps as it waited for keys, however many other
clients wait. Must not know: connections, and how or when a reply travels.
"""

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar

from emucoll.errors import RemoteProtocolError
from emucoll.wire.tcpstore import (
    LIBUV_LIMITS,
    NOT_READY,
    READY,
    STOP_WAITING,
    WAIT_CANCELED,
    Limits,
    Op,
    Request,
    pack_length,
    pack_nonce,
    pack_number,
)

Client = TypeVar("Client", bound=Hashable)

_STOP_WAITING: Final = bytes((STOP_WAITING,))
_WAIT_CANCELED: Final = bytes((WAIT_CANCELED,))
_READY: Final = bytes((READY,))
_NOT_READY: Final = bytes((NOT_READY,))
_EMPTY_VALUE: Final = pack_length(0)
_ZERO: Final = pack_number(0)
_MANY: Final = 64


class _Wait:
    """What one client waits for.

    `missing` decides when it is woken: at 0, by coming down to it. A second WAIT sets it anew but
    leaves the keys of the first registered, as real servers do; they are the `excess`. So
    `missing + excess` keys are registered, and `missing` may go below 0.
    """

    __slots__ = ("excess", "keys", "missing")

    def __init__(self, keys: Sequence[bytes]) -> None:
        self.missing = len(keys)
        self.excess = 0
        self.keys: Sequence[bytes] | set[bytes] = keys  # all registered ones, and some that were


class StoreState(Generic[Client]):
    """One store. Clients are known by tokens of the caller's, anything hashable."""

    __slots__ = (
        "_last_keys",
        "_last_reply",
        "_last_version",
        "_limits",
        "_queues",
        "_values",
        "_version",
        "_waiting",
        "_waits",
        "requests",
        "wake",
    )

    def __init__(
        self, wake: Callable[[Client, bytes], None], limits: Limits = LIBUV_LIMITS
    ) -> None:
        self.wake = wake
        """Called with a client and the reply that its earlier WAIT or BARRIER gets now.

        The client may be the one whose request is being handled; the reply then comes before that
        of this request, and after those of its earlier requests, whether they were sent or not.
        From within, `disconnect` may be called, `handle` may not.
        """
        self.requests = 0
        """How many requests were handled, of any kind."""
        self._limits = limits
        self._values: dict[bytes, bytes | bytearray] = {}  # a bytearray, where it was appended to
        self._queues: dict[bytes, deque[bytes]] = {}  # none of them empty
        # Who waits for a key, in order of arrival, and how often it named the key; none empty.
        self._waiting: dict[bytes, dict[Client, int]] = {}
        self._waits: dict[Client, _Wait] = {}
        self._version = 0
        """Another one whenever a value may be."""
        self._last_keys: Sequence[bytes] | None = None
        self._last_version = -1
        self._last_reply = b""
        """To the last MULTI_GET of many, its keys, and when it was: ranks ask for the same
        thousand.
        """

    def handle(self, client: Client, request: Request) -> bytes:
        """Do what a client asks; return what it is to be sent now, nothing for b"".

        Raises RemoteProtocolError where a real server closes the connection: ADD and BARRIER on a
        value that is no number. Nothing has changed then.
        """
        self.requests += 1
        op = request[0]
        if op in _CHANGING:
            self._version += 1
        return _HANDLERS[op](self, client, request)

    def disconnect(self, client: Client) -> None:
        """Forget what a client waits for, if anything. What it has written remains."""
        wait = self._waits.pop(client, None)
        if wait is None:
            return
        for key in wait.keys:
            waiters = self._waiting.get(key)
            if waiters is not None and waiters.pop(client, 0) and not waiters:
                del self._waiting[key]

    def stuck_waits(self) -> list[tuple[bytes, int]]:
        """The keys that are waited for and how many clients do, the most waited for first."""
        stuck = [(key, len(waiters)) for key, waiters in self._waiting.items()]
        return sorted(stuck, key=lambda item: (-item[1], item[0]))

    # Waiting ------------------------------------------------------------------------------------

    def _exists(self, key: bytes) -> bool:
        return key in self._values or key in self._queues

    def _register(self, client: Client, keys: Sequence[bytes]) -> None:
        """Let a client wait until each of these keys, all of them missing, has been woken."""
        wait = self._waits.get(client)
        if wait is None:
            self._waits[client] = _Wait(keys)
        else:
            self._overwrite(client, wait, keys)
        waiting = self._waiting
        for key in keys:
            waiters = waiting.get(key)
            if waiters is None:
                waiting[key] = {client: 1}
            else:
                waiters[client] = waiters.get(client, 0) + 1

    def _overwrite(self, client: Client, wait: _Wait, keys: Sequence[bytes]) -> None:
        """Let a client that waits already, which it should not, wait for other keys."""
        registered = wait.missing + wait.excess + len(keys)
        if registered > self._limits.keys:
            raise RemoteProtocolError(f"a TCPStore client waits for {registered} keys at a time")
        all_keys = wait.keys if isinstance(wait.keys, set) else set(wait.keys)
        if len(all_keys) > 2 * registered:
            all_keys = {key for key in all_keys if client in self._waiting.get(key, ())}
        all_keys.update(keys)
        wait.keys = all_keys
        wait.excess += wait.missing
        wait.missing = len(keys)

    def _wake_all(self, key: bytes) -> None:
        """A key has come that somebody waits for."""
        for client, times in self._waiting.pop(key).items():
            self._lessen(client, times)

    def _wake_one(self, key: bytes) -> None:
        """One value has come into a queue that somebody waits for; only one client shall get it."""
        waiters = self._waiting[key]
        if not isinstance(waiters, OrderedDict):  # to take a dict's first over and over is slow
            waiters = self._waiting[key] = OrderedDict(waiters)
        woken = False
        while waiters and not woken:
            client, times = waiters.popitem(last=False)
            if not waiters:
                del self._waiting[key]
            woken = self._lessen(client, times)

    def _lessen(self, client: Client, times: int) -> bool:
        """Count down what a client misses, and wake it if that was all; return whether it was."""
        wait = self._waits.get(client)
        if wait is None:  # disconnected by a `wake` just before
            return False
        before = wait.missing
        wait.missing = missing = before - times
        if missing > 0:
            return False
        if missing + wait.excess == 0:
            del self._waits[client]
        if before <= 0:
            return False
        self.wake(client, _STOP_WAITING)
        return True

    # Requests -----------------------------------------------------------------------------------

    def _validate(self, client: Client, request: Request) -> bytes:
        return b""

    def _ping(self, client: Client, request: Request) -> bytes:
        return pack_nonce(request.number)

    def _set(self, client: Client, request: Request) -> bytes:
        key = request.keys[0]
        self._values[key] = request.values[0]
        if key in self._waiting:
            self._wake_all(key)
        return b""

    def _multi_set(self, client: Client, request: Request) -> bytes:
        for key, value in zip(request.keys, request.values, strict=True):
            self._values[key] = value
            if key in self._waiting:
                self._wake_all(key)
        return b""

    def _get(self, client: Client, request: Request) -> bytes:
        value = self._values.get(request.keys[0])
        return _EMPTY_VALUE if value is None else pack_length(len(value)) + value

    def _multi_get(self, client: Client, request: Request) -> bytes:
        if self._is_as_before(request.keys):
            return self._last_reply
        values = [self._values.get(key, b"") for key in request.keys]
        parts: list[bytes | bytearray] = []
        for value in values:
            parts += (pack_length(len(value)), value)
        reply = b"".join(parts)
        if len(values) >= _MANY and all(map(self._values.__contains__, request.keys)):
            self._last_keys, self._last_version = request.keys, self._version
            self._last_reply = reply
        return reply

    def _is_as_before(self, keys: Sequence[bytes]) -> bool:
        """Were these the keys of the last MULTI_GET of many, which all had values, and has nothing
        changed since?
        """
        return self._version == self._last_version and keys == self._last_keys

    def _compare_set(self, client: Client, request: Request) -> bytes:
        key = request.keys[0]
        expected, desired = request.values
        value = self._values.get(key)
        if value is None and expected:
            return pack_length(len(expected)) + expected
        if value is None or value == expected:
            self._values[key] = value = desired
            if key in self._waiting:
                self._wake_all(key)
        return pack_length(len(value)) + value

    def _append(self, client: Client, request: Request) -> bytes:
        key, more = request.keys[0], request.values[0]
        value = self._values.get(key)
        if value is None:
            self._values[key] = more
        elif len(value) + len(more) > self._limits.stored_bytes:
            raise RemoteProtocolError(
                f"APPEND would make {key[:80]!r} longer than {self._limits.stored_bytes} B"
            )
        elif isinstance(value, bytearray):
            value += more
        else:
            self._values[key] = bytearray(value + more)
        if key in self._waiting:
            self._wake_all(key)
        return b""

    def _add(self, client: Client, request: Request) -> bytes:
        key, total = request.keys[0], request.number
        value = self._values.get(key)
        if value is not None:
            total = _wrapped(total + _parse_number(key, value))
        self._values[key] = b"%d" % total
        if key in self._waiting:
            self._wake_all(key)
        return pack_number(total)

    def _barrier(self, client: Client, request: Request) -> bytes:
        # The counter is a key like others: at once there for a WAIT that comes now, but those who
        # wait already are woken by the last arrival alone. It never starts again.
        key, count = request.keys[0], 1
        value = self._values.get(key)
        if value is not None:
            count = _wrapped(1 + _parse_number(key, value))
        if count < request.number:
            self._register(client, request.keys)
            self._values[key] = b"%d" % count
            return b""
        self._values[key] = b"%d" % count
        if key in self._waiting:
            self._wake_all(key)
        return _STOP_WAITING

    def _delete(self, client: Client, request: Request) -> bytes:
        return pack_number(self._values.pop(request.keys[0], None) is not None)

    def _check(self, client: Client, request: Request) -> bytes:
        return _READY if all(map(self._exists, request.keys)) else _NOT_READY

    def _wait(self, client: Client, request: Request) -> bytes:
        if self._is_as_before(request.keys):
            return _STOP_WAITING
        values, queues = self._values, self._queues
        missing = [key for key in request.keys if key not in values and key not in queues]
        if not missing:
            return _STOP_WAITING
        self._register(client, missing)
        return b""

    def _cancel_wait(self, client: Client, request: Request) -> bytes:
        self.disconnect(client)
        return _WAIT_CANCELED

    def _num_keys(self, client: Client, request: Request) -> bytes:
        return pack_number(len(self._values))

    def _list_keys(self, client: Client, request: Request) -> bytes:
        parts = [pack_number(len(self._values))]
        for key in self._values:
            parts += (pack_length(len(key)), key)
        return b"".join(parts)

    def _queue_push(self, client: Client, request: Request) -> bytes:
        key = request.keys[0]
        self._queues.setdefault(key, deque()).append(request.values[0])
        if key in self._waiting:
            self._wake_one(key)
        return b""

    def _queue_pop(self, client: Client, request: Request) -> bytes:
        key = request.keys[0]
        queue = self._queues.get(key)
        if queue is None:
            return _ZERO
        length, value = len(queue), queue.popleft()
        if not queue:
            del self._queues[key]
        return pack_number(length) + pack_length(len(value)) + value

    def _queue_len(self, client: Client, request: Request) -> bytes:
        return pack_number(len(self._queues.get(request.keys[0], ())))


_BY_OP: Final[dict[Op, Callable[[Any, Any, Request], bytes]]] = {
    Op.VALIDATE: StoreState._validate,
    Op.SET: StoreState._set,
    Op.COMPARE_SET: StoreState._compare_set,
    Op.GET: StoreState._get,
    Op.ADD: StoreState._add,
    Op.CHECK: StoreState._check,
    Op.WAIT: StoreState._wait,
    Op.GETNUMKEYS: StoreState._num_keys,
    Op.DELETE_KEY: StoreState._delete,
    Op.APPEND: StoreState._append,
    Op.MULTI_GET: StoreState._multi_get,
    Op.MULTI_SET: StoreState._multi_set,
    Op.CANCEL_WAIT: StoreState._cancel_wait,
    Op.PING: StoreState._ping,
    Op.QUEUE_PUSH: StoreState._queue_push,
    Op.QUEUE_POP: StoreState._queue_pop,
    Op.QUEUE_LEN: StoreState._queue_len,
    Op.LIST_KEYS: StoreState._list_keys,
    Op.BARRIER: StoreState._barrier,
}
_CHANGING: Final = frozenset(int(op) for op in Op) - {
    int(op)
    for op in (
        Op.VALIDATE,
        Op.GET,
        Op.CHECK,
        Op.WAIT,
        Op.GETNUMKEYS,
        Op.MULTI_GET,
        Op.CANCEL_WAIT,
        Op.PING,
        Op.QUEUE_LEN,
        Op.LIST_KEYS,
    )
}
_HANDLERS: Final = tuple(_BY_OP[op] for op in Op)  # by opcode; to hash an Op is slow

_NUMBER: Final = re.compile(rb"\s*([+-]?)0*([0-9]*)")
_SAFE_DIGITS: Final = 18


def _parse_number(key: bytes, value: bytes | bytearray) -> int:
    """A stored counter as C++'s `std::stoll` reads it: white space, a sign, digits, then anything.

    Raises RemoteProtocolError if there is no digit, or the number is no i64.
    """
    if len(value) <= _SAFE_DIGITS and value.isdigit():
        return int(value)
    match = _NUMBER.match(value)
    assert match is not None
    sign, digits = match.groups()
    ends_in_digit = match.end() > match.end(1)
    if ends_in_digit and len(digits) <= 19:
        number = int(sign + (digits or b"0"))
        if -(1 << 63) <= number < 1 << 63:
            return number
    raise RemoteProtocolError(f"key {key[:80]!r} holds {bytes(value[:80])!r}, not a 64-bit number")


def _wrapped(number: int) -> int:
    """An i64 out of a sum of two, as it overflows in two's complement."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)
