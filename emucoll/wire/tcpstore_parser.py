"""The server's half of the TCPStore protocol, sans-IO: a byte stream to requests.

Source: TCPStoreBackend.hpp (opcodes) and TCPStoreLibUvBackend.cpp (layouts, limits) of PyTorch
2.13. `emucoll.wire.tcpstore` tells how the bytes look, and hands on the names defined here.

Holds true: a string that has been read is never read again, however the stream is cut; nothing
refers to the caller's buffer afterwards; what is kept is bounded by `Limits`. Must not know:
sockets, clocks, what the requests do.
"""

import enum
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple, NoReturn

from emucoll.errors import RemoteProtocolError
from emucoll.wire.address import Buffer

VALIDATE_MAGIC: Final = 0x3C85F7CE
"""What a client proves itself with, lest a port scan be taken for requests (pytorch#107607)."""


class Op(enum.IntEnum):
    """Opcodes of PyTorch 2.13. Before 2.2 there was no VALIDATE, and all others were one lower."""

    VALIDATE = 0
    SET = 1
    COMPARE_SET = 2
    GET = 3
    ADD = 4
    CHECK = 5
    WAIT = 6
    GETNUMKEYS = 7
    DELETE_KEY = 8
    APPEND = 9
    MULTI_GET = 10
    MULTI_SET = 11
    CANCEL_WAIT = 12
    PING = 13
    QUEUE_PUSH = 14
    QUEUE_POP = 15
    QUEUE_LEN = 16
    LIST_KEYS = 17
    BARRIER = 18


@dataclass(frozen=True)
class Limits:
    """How much a server takes. The first three are those of PyTorch's libuv server, the rest ours.

    PyTorch's older server has none.
    """

    key_bytes: int = 8192
    """Of one key, prefixes included."""
    value_bytes: int = 8 << 20
    """Of one value in a request."""
    keys: int = 131_072
    """In one list."""
    list_bytes: int = 1 << 30
    """Of a list, keys and values together: just what the longest list of the longest keys has."""
    stored_bytes: int = 1 << 30
    """Of a value that APPEND has made long."""


LIBUV_LIMITS: Final = Limits()


class Request(NamedTuple):
    """One request. What its op has no use for is empty or 0."""

    op: Op
    keys: tuple[bytes, ...] = ()
    values: tuple[bytes, ...] = ()
    """SET, APPEND, QUEUE_PUSH: one. COMPARE_SET: expected, desired. MULTI_SET: one for each key."""
    number: int = 0
    """VALIDATE: the magic. PING: the nonce. ADD: the delta. BARRIER: how many must come."""


_U32: Final = struct.Struct("<I")
_I64: Final = struct.Struct("<q")
_U64: Final = struct.Struct("<Q")


class _Layout(NamedTuple):
    """An op's arguments: strings, then perhaps an integer.

    The strings come in groups of `period`, a key and then values: one group, or as many as a count
    before them says.
    """

    counted: bool
    period: int
    trailer: struct.Struct | None = None


_NOTHING: Final = _Layout(False, 0)
_U32_ONLY: Final = _Layout(False, 0, _U32)
_KEY: Final = _Layout(False, 1)
_KEY_I64: Final = _Layout(False, 1, _I64)
_KEY_VALUE: Final = _Layout(False, 2)
_KEY_TWO_VALUES: Final = _Layout(False, 3)
_KEYS: Final = _Layout(True, 1)
_KEYS_VALUES: Final = _Layout(True, 2)

_LAYOUTS: Final[dict[Op, _Layout]] = {
    Op.VALIDATE: _U32_ONLY,
    Op.SET: _KEY_VALUE,
    Op.COMPARE_SET: _KEY_TWO_VALUES,
    Op.GET: _KEY,
    Op.ADD: _KEY_I64,
    Op.CHECK: _KEYS,
    Op.WAIT: _KEYS,
    Op.GETNUMKEYS: _NOTHING,
    Op.DELETE_KEY: _KEY,
    Op.APPEND: _KEY_VALUE,
    Op.MULTI_GET: _KEYS,
    Op.MULTI_SET: _KEYS_VALUES,
    Op.CANCEL_WAIT: _NOTHING,
    Op.PING: _U32_ONLY,
    Op.QUEUE_PUSH: _KEY_VALUE,
    Op.QUEUE_POP: _KEY,
    Op.QUEUE_LEN: _KEY,
    Op.LIST_KEYS: _NOTHING,
    Op.BARRIER: _KEY_I64,
}
_OPS: Final = tuple(Op)

# Which shape `_read_whole` sees behind each of the 256 opcodes there could be.
_ODD, _WHOLE_KEY_VALUE, _WHOLE_KEYS, _WHOLE_KEY, _WHOLE_U32, _WHOLE_KEY_I64 = range(6)
_WHOLE: Final = {
    _KEY_VALUE: _WHOLE_KEY_VALUE,
    _KEYS: _WHOLE_KEYS,
    _KEY: _WHOLE_KEY,
    _KEY_I64: _WHOLE_KEY_I64,
    _U32_ONLY: _WHOLE_U32,
}
_SHAPES: Final = bytes(
    _WHOLE.get(_LAYOUTS[_OPS[byte]], _ODD) if Op.VALIDATE < byte < len(_OPS) else _ODD
    for byte in range(256)
)

_read_u32: Final = _U32.unpack_from
_read_i64: Final = _I64.unpack_from
_read_u64: Final = _U64.unpack_from
_read_two_u64: Final = struct.Struct("<QQ").unpack_from
_new_tuple: Final = tuple.__new__  # a NamedTuple's own constructor is Python, and takes far longer

_GREETING: Final = bytes((Op.VALIDATE,)) + _U32.pack(VALIDATE_MAGIC)
_GREETED: Final = Request(Op.VALIDATE, number=VALIDATE_MAGIC)

# What a parser's `_op` is outside a request.
_FRESH: Final = -1
_IDLE: Final = -2
_FAILED: Final = -3


_LONG: Final = 4096


@lru_cache(maxsize=8)
def _alone(data: bytes, limits: Limits) -> Request | None:
    """The request, if `data` is one and no more. Ranks ask for the same thousand keys in the same
    bytes, which are read once.
    """
    parser = RequestParser(limits)
    parser._op = _IDLE
    try:
        requests = parser._feed(data)
    except RemoteProtocolError:  # the parser that was fed will find out
        return None
    return requests[0] if len(requests) == 1 and parser.idle else None


class RequestParser:
    """The requests of one connection, from its bytes, however these are cut.

    The first request must be a VALIDATE with the right magic, and no other may be one. (After a bad
    or missing VALIDATE, libuv's server stays silent and may even execute what follows; if the five
    bytes of a good one come in two pieces, it stays silent too. This parser raises, and takes it.)
    """

    __slots__ = (
        "completed", "_limits", "_key_bytes", "_value_bytes", "_partial", "_need",
        "_op", "_layout", "_count_due", "_left", "_strings", "_list_bytes",
    )  # fmt: skip

    def __init__(self, limits: Limits = LIBUV_LIMITS) -> None:
        assert limits.list_bytes >= limits.key_bytes + limits.value_bytes, "a list may be of one"
        self.completed: list[Request] = []
        """What the last `feed` completed. If it raised, a server has these to execute still."""
        self._limits = limits
        self._key_bytes = limits.key_bytes
        self._value_bytes = limits.value_bytes
        self._partial = bytearray()  # the argument that is under way, until it has all of
        self._need = 0  # these bytes
        self._op = _FRESH
        self._layout = _NOTHING
        self._count_due = False
        self._left = 0  # strings to come
        self._strings: list[bytes] = []  # strings that came
        self._list_bytes = 0  # in them

    @property
    def idle(self) -> bool:
        """Whether the stream may end here: no request is half received."""
        return self._op < 0

    def feed(self, data: Buffer) -> list[Request]:
        """Take the next bytes of the stream; return the requests that they complete, in order.

        Raises RemoteProtocolError for an unknown opcode, a first request other than a proper
        VALIDATE, and whatever exceeds the limits, as soon as it shows; and always from then on.
        """
        if type(data) is not bytes:
            data = bytes(data)
        if len(data) >= _LONG and self._op == _IDLE:
            request = _alone(data, self._limits)
            if request is not None:
                self.completed = [request]
                return self.completed
        return self._feed(data)

    def _feed(self, data: bytes) -> list[Request]:
        requests: list[Request] = []
        self.completed = requests
        if self._partial:
            self._partial += data
            if len(self._partial) < self._need:
                return requests
            data = bytes(self._partial)
            self._partial.clear()
        at, end = 0, len(data)
        if self._op == _FRESH and data.startswith(_GREETING):
            requests.append(_GREETED)
            self._op = _IDLE
            at = len(_GREETING)
        while at < end:
            if self._op == _IDLE:
                at = self._read_whole(data, at, requests)
                if at == end:
                    break
            at = self._resume(data, at)
        return requests

    def _read_whole(self, data: bytes, at: int, requests: list[Request]) -> int:
        """Read requests of the usual shapes, as many as `data` has whole; return where they end.

        The fast path, in one function for that reason. It judges nothing: what is odd in any way,
        above a limit for one, stops it, and `_resume` takes it from there.
        """
        end = len(data)
        key_limit, value_limit = self._key_bytes, self._value_bytes
        keys: tuple[bytes, ...]
        values: tuple[bytes, ...]
        try:
            while at < end:
                opcode = data[at]
                shape = _SHAPES[opcode]
                keys, values, number = (), (), 0
                if shape == _WHOLE_KEY_VALUE:
                    (key_bytes,) = _read_u64(data, at + 1)
                    if key_bytes > key_limit:
                        break
                    middle = at + 9 + key_bytes
                    (value_bytes,) = _read_u64(data, middle)
                    stop = middle + 8 + value_bytes
                    if stop > end or value_bytes > value_limit:
                        break
                    keys = (data[at + 9 : middle],)
                    values = (data[middle + 8 : stop],)
                elif shape == _WHOLE_KEYS:
                    count, key_bytes = _read_two_u64(data, at + 1)
                    stop = at + 17 + key_bytes
                    if count != 1 or stop > end or key_bytes > key_limit:
                        break
                    keys = (data[at + 17 : stop],)
                elif shape == _WHOLE_KEY:
                    (key_bytes,) = _read_u64(data, at + 1)
                    stop = at + 9 + key_bytes
                    if stop > end or key_bytes > key_limit:
                        break
                    keys = (data[at + 9 : stop],)
                elif shape == _WHOLE_U32:
                    (number,) = _read_u32(data, at + 1)
                    stop = at + 5
                elif shape == _WHOLE_KEY_I64:
                    (key_bytes,) = _read_u64(data, at + 1)
                    if key_bytes > key_limit:
                        break
                    stop = at + 17 + key_bytes
                    (number,) = _read_i64(data, stop - 8)
                    keys = (data[at + 9 : stop - 8],)
                else:
                    break
                requests.append(_new_tuple(Request, (_OPS[opcode], keys, values, number)))
                at = stop
        except struct.error:  # an integer would end beyond the end
            pass
        return at

    def _resume(self, data: bytes, at: int) -> int:
        """Begin a request, or go on with the one begun; return where it or `data` ends."""
        if self._op < 0:
            self._begin(data[at])
            at += 1
        end = len(data)
        if self._count_due:
            if end - at < 8:
                return self._keep(data, at, 8)
            self._set_count(_read_u64(data, at)[0])
            at += 8
        if self._left:
            at = self._read_strings(data, at)
            if self._left:
                return at
        number, trailer = 0, self._layout.trailer
        if trailer is not None:
            if end - at < trailer.size:
                return self._keep(data, at, trailer.size)
            (number,) = trailer.unpack_from(data, at)
            at += trailer.size
        self._finish(number)
        return at

    def _keep(self, data: bytes, at: int, need: int) -> int:
        """Put the rest of `data` by, until there are `need` bytes of it."""
        self._need = need
        self._partial += data[at:]
        return len(data)

    def _begin(self, opcode: int) -> None:
        if self._op == _FAILED:
            self._fail("more after it had broken the protocol")
        if opcode >= len(_OPS):
            self._fail(f"unknown opcode {opcode}")
        op = _OPS[opcode]
        if self._op == _FRESH and op is not Op.VALIDATE:
            self._fail(f"{op.name} before VALIDATE")
        if self._op != _FRESH and op is Op.VALIDATE:
            self._fail("VALIDATE a second time")
        self._op = opcode
        self._layout = layout = _LAYOUTS[op]
        self._count_due = layout.counted
        self._left = 0 if layout.counted else layout.period
        self._list_bytes = 0

    def _set_count(self, count: int) -> None:
        if count > self._limits.keys:
            self._fail(f"{_OPS[self._op].name} of {count} keys, above {self._limits.keys}")
        self._count_due = False
        self._left = count * self._layout.period

    def _read_strings(self, data: bytes, at: int) -> int:
        """Read the strings that are due, as far as they are there; return where they end."""
        start, end = at, len(data)
        strings, left, period = self._strings, self._left, self._layout.period
        before = len(strings)
        need = 8
        while left and end - at >= 8:
            (length,) = _read_u64(data, at)
            is_key = left % period == 0
            if length > (self._key_bytes if is_key else self._value_bytes):
                self._fail_length(length, is_key)
            stop = at + 8 + length
            if stop > end:
                need = 8 + length
                break
            strings.append(data[at + 8 : stop])
            left -= 1
            at = stop
        self._left = left
        self._list_bytes += at - start - 8 * (len(strings) - before)
        if self._layout.counted and self._list_bytes > self._limits.list_bytes:
            self._fail(f"{_OPS[self._op].name} above {self._limits.list_bytes} B")
        return self._keep(data, at, need) if left else at

    def _finish(self, number: int) -> None:
        """Hand over the request whose last byte has come."""
        op, period, strings = _OPS[self._op], self._layout.period, self._strings
        if op is Op.VALIDATE and number != VALIDATE_MAGIC:
            self._fail(f"VALIDATE with {number:#010x} instead of {VALIDATE_MAGIC:#010x}")
        step = period or 1
        keys = tuple(strings[::step])
        del strings[::step]
        self.completed.append(Request(op, keys, tuple(strings), number))
        self._op = _IDLE
        self._strings = []

    def _fail_length(self, length: int, is_key: bool) -> NoReturn:
        what, limit = ("key", self._key_bytes) if is_key else ("value", self._value_bytes)
        self._fail(f"{_OPS[self._op].name} with a {what} of {length} B, above {limit} B")

    def _fail(self, what: str) -> NoReturn:
        self._op = _FAILED
        self._partial.clear()
        self._strings = []
        raise RemoteProtocolError(f"a TCPStore client sent {what}")
