"""PyTorch's TCPStore protocol, sans-IO. Here the client's half; the server's is handed on.

Source: TCPStore.cpp, TCPStoreBackend.hpp and TCPStoreLibUvBackend.cpp of PyTorch 2.13; the bytes
were compared with what its clients and servers send.

A request is an opcode byte and its arguments. Nothing frames or numbers it: a reply is known by
its place in the stream. Integers are little-endian and unpadded (PyTorch sends host order, and
its hosts are little-endian). A string, be it a key or a value, is a u64 length and its bytes; a
list is a u64 count and its strings. Replies carry no status: a server refuses by closing.

Holds true: a request is encoded in one piece, and within `LIBUV_LIMITS` or not at all. Must not
know: sockets, clocks, what is asked for when.
"""

import struct
from collections.abc import Sequence
from typing import Final, NoReturn

from emucoll.errors import LocalProtocolError, RemoteProtocolError
from emucoll.wire.address import Buffer
from emucoll.wire.tcpstore_parser import (
    LIBUV_LIMITS,
    VALIDATE_MAGIC,
    Limits,
    Op,
    Request,
    RequestParser,
)

__all__ = [
    "BATCH_KEYS",
    "LENGTH_BYTES",
    "LIBUV_LIMITS",
    "NONCE_BYTES",
    "NOT_READY",
    "NUMBER_BYTES",
    "READY",
    "STOP_WAITING",
    "VALIDATE_MAGIC",
    "WAIT_CANCELED",
    "Limits",
    "Op",
    "Request",
    "RequestParser",
    "add_request",
    "append_request",
    "barrier_request",
    "cancel_wait_request",
    "check_request",
    "compare_set_request",
    "decode_nonce",
    "decode_number",
    "delete_request",
    "get_request",
    "is_ready",
    "list_keys_request",
    "multi_get_request",
    "multi_set_request",
    "num_keys_request",
    "pack_length",
    "pack_nonce",
    "pack_number",
    "ping",
    "queue_len_request",
    "queue_pop_request",
    "queue_push_request",
    "set_request",
    "stopped_waiting",
    "user_key",
    "validate",
    "value_length",
    "wait_request",
]

BATCH_KEYS: Final = 128
"""Keys that a list had better have at most: libuv's server starts it anew with each 4 KiB read."""

_U32: Final = struct.Struct("<I")
_I64: Final = struct.Struct("<q")
_U64: Final = struct.Struct("<Q")

# Integers as they stand in a reply.
pack_nonce: Final = _U32.pack
pack_number: Final = _I64.pack
pack_length: Final = _U64.pack

_pack_op_u32: Final = struct.Struct("<BI").pack
_pack_op_u64: Final = struct.Struct("<BQ").pack
_pack_op_two_u64: Final = struct.Struct("<BQQ").pack

_KEY_BYTES: Final = LIBUV_LIMITS.key_bytes
_VALUE_BYTES: Final = LIBUV_LIMITS.value_bytes

# Plain ints: to read a member off an enum costs more than to pack it.
_SET: Final = int(Op.SET)
_GET: Final = int(Op.GET)
_WAIT: Final = int(Op.WAIT)
_PING: Final = int(Op.PING)

_VALIDATE_REQUEST: Final = _pack_op_u32(Op.VALIDATE, VALIDATE_MAGIC)
_NUM_KEYS_REQUEST: Final = bytes((Op.GETNUMKEYS,))
_CANCEL_WAIT_REQUEST: Final = bytes((Op.CANCEL_WAIT,))
_LIST_KEYS_REQUEST: Final = bytes((Op.LIST_KEYS,))


# Requests ---------------------------------------------------------------------------------------
#
# Keys are taken as they travel, whether `user_key` made them or not ("init/" has no slash before
# it). Above the limits, where libuv's server would reset the connection, LocalProtocolError is
# raised; likewise for integers that do not fit.


def user_key(key: str) -> bytes:
    """A user's key as it travels: PyTorch's client puts a slash before it."""
    return b"/" + key.encode()


def validate() -> bytes:
    """The first request of a connection; no reply.

    To be sent at once and whole: libuv's server ignores a connection whose five bytes arrive in
    two pieces. The next request may follow in the same send.
    """
    return _VALIDATE_REQUEST


def ping(nonce: int) -> bytes:
    """Reply: the nonce, a u32."""
    try:
        return _pack_op_u32(_PING, nonce)
    except struct.error as error:
        raise LocalProtocolError(f"PING: {nonce} does not fit 32 unsigned bits") from error


def set_request(key: bytes, value: bytes) -> bytes:
    """No reply."""
    key_bytes, value_bytes = len(key), len(value)
    if key_bytes > _KEY_BYTES or value_bytes > _VALUE_BYTES:
        _refuse(key, value)
    return _pack_op_u64(_SET, key_bytes) + key + pack_length(value_bytes) + value


def get_request(key: bytes) -> bytes:
    """Reply: a value. For an absent key libuv's server gives an empty one, the older one closes."""
    key_bytes = len(key)
    if key_bytes > _KEY_BYTES:
        _refuse(key)
    return _pack_op_u64(_GET, key_bytes) + key


def wait_request(keys: Sequence[bytes]) -> bytes:
    """Reply: STOP_WAITING, once each key has existed.

    While it is due, no other WAIT or BARRIER may be sent on the connection: servers count the
    missing keys per connection, so that one of the two would never be replied to.
    """
    if len(keys) != 1:
        return _key_list(Op.WAIT, keys)
    key = keys[0]
    key_bytes = len(key)
    if key_bytes > _KEY_BYTES:
        _refuse(key)
    return _pack_op_two_u64(_WAIT, 1, key_bytes) + key


def check_request(keys: Sequence[bytes]) -> bytes:
    """Reply: READY or NOT_READY, at once."""
    return _key_list(Op.CHECK, keys)


def multi_get_request(keys: Sequence[bytes]) -> bytes:
    """Reply: the keys' values, one after the other and without a count."""
    return _key_list(Op.MULTI_GET, keys)


def multi_set_request(items: Sequence[tuple[bytes, bytes]]) -> bytes:
    """Sets each key to its value. No reply."""
    parts = [_pack_op_u64(Op.MULTI_SET, _checked_count(items))]
    for key, value in items:
        if len(key) > _KEY_BYTES or len(value) > _VALUE_BYTES:
            _refuse(key, value)
        parts += (pack_length(len(key)), key, pack_length(len(value)), value)
    return b"".join(parts)


def add_request(key: bytes, delta: int) -> bytes:
    """Reply: the new total, an i64."""
    return _key_number(Op.ADD, key, delta)


def barrier_request(key: bytes, nranks: int) -> bytes:
    """Reply: STOP_WAITING, once `nranks` of these have come for the key; see `wait_request`."""
    return _key_number(Op.BARRIER, key, nranks)


def compare_set_request(key: bytes, expected: bytes, desired: bytes) -> bytes:
    """Reply: the key's value thereafter, or `expected` for a key that is and remains absent.

    It is written if its value is `expected`, or if it is absent and `expected` is empty.
    """
    if len(desired) > _VALUE_BYTES:
        _refuse(key, desired)
    head = _key_value(Op.COMPARE_SET, key, expected)
    return head + pack_length(len(desired)) + desired


def append_request(key: bytes, value: bytes) -> bytes:
    """No reply."""
    return _key_value(Op.APPEND, key, value)


def delete_request(key: bytes) -> bytes:
    """Reply: how many keys were deleted, an i64 of 0 or 1."""
    return _one_key(Op.DELETE_KEY, key)


def num_keys_request() -> bytes:
    """Reply: an i64."""
    return _NUM_KEYS_REQUEST


def list_keys_request() -> bytes:
    """Reply: an i64 count and the keys, in no order, as they travelled."""
    return _LIST_KEYS_REQUEST


def cancel_wait_request() -> bytes:
    """Reply: WAIT_CANCELED. A STOP_WAITING that was under way already may come before it."""
    return _CANCEL_WAIT_REQUEST


def queue_push_request(key: bytes, value: bytes) -> bytes:
    """No reply. PyTorch's older server has no queues."""
    return _key_value(Op.QUEUE_PUSH, key, value)


def queue_pop_request(key: bytes) -> bytes:
    """Reply: how long the queue was, an i64, and unless that is 0 its first value."""
    return _one_key(Op.QUEUE_POP, key)


def queue_len_request(key: bytes) -> bytes:
    """Reply: an i64."""
    return _one_key(Op.QUEUE_LEN, key)


def _one_key(op: Op, key: bytes) -> bytes:
    if len(key) > _KEY_BYTES:
        _refuse(key)
    return _pack_op_u64(op, len(key)) + key


def _key_value(op: Op, key: bytes, value: bytes) -> bytes:
    if len(value) > _VALUE_BYTES:
        _refuse(key, value)
    return _one_key(op, key) + pack_length(len(value)) + value


def _key_number(op: Op, key: bytes, number: int) -> bytes:
    try:
        return _one_key(op, key) + pack_number(number)
    except struct.error as error:
        raise LocalProtocolError(f"{op.name}: {number} does not fit 64 signed bits") from error


def _key_list(op: Op, keys: Sequence[bytes]) -> bytes:
    parts = [_pack_op_u64(op, _checked_count(keys))]
    for key in keys:
        if len(key) > _KEY_BYTES:
            _refuse(key)
        parts += (pack_length(len(key)), key)
    return b"".join(parts)


def _checked_count(items: Sequence[object]) -> int:
    if len(items) > LIBUV_LIMITS.keys:
        raise LocalProtocolError(
            f"{len(items)} keys in one request; a store takes {LIBUV_LIMITS.keys}"
        )
    return len(items)


def _refuse(key: bytes, value: bytes = b"") -> NoReturn:
    raise LocalProtocolError(
        f"key {key[:80]!r} of {len(key)} B with a value of {len(value)} B; "
        f"a store takes keys of {_KEY_BYTES} B and values of {_VALUE_BYTES} B"
    )


# Replies ----------------------------------------------------------------------------------------

NUMBER_BYTES: Final = _I64.size
"""The reply to ADD, DELETE_KEY, GETNUMKEYS, QUEUE_LEN; begins that to LIST_KEYS, QUEUE_POP."""
LENGTH_BYTES: Final = _U64.size
"""What a value or a key begins with."""
NONCE_BYTES: Final = _U32.size
"""The reply to PING."""

STOP_WAITING: Final = 0
"""The reply to WAIT and BARRIER, one byte."""
WAIT_CANCELED: Final = 1
"""The reply to CANCEL_WAIT, one byte."""
READY: Final = 0
"""The reply to CHECK if all keys exist, one byte."""
NOT_READY: Final = 1
"""The reply to CHECK otherwise, one byte."""


def decode_number(data: Buffer) -> int:
    """The i64 in NUMBER_BYTES bytes."""
    number: int = _I64.unpack(data)[0]
    return number


def decode_nonce(data: Buffer) -> int:
    """The u32 in NONCE_BYTES bytes."""
    nonce: int = _U32.unpack(data)[0]
    return nonce


def value_length(data: Buffer, limit: int = LIBUV_LIMITS.stored_bytes) -> int:
    """How many bytes of a value or key follow these LENGTH_BYTES bytes.

    Raises RemoteProtocolError above `limit`. Unless the caller knows better, it is not that for
    values in requests, for APPEND may have made this one longer.
    """
    length: int = _U64.unpack(data)[0]
    if length > limit:
        raise RemoteProtocolError(f"the store announces a value of {length} B, above {limit} B")
    return length


def stopped_waiting(reply: Buffer) -> bool:
    """Whether a reply byte is STOP_WAITING, not WAIT_CANCELED; RemoteProtocolError if neither."""
    return _is_first(reply[0], STOP_WAITING, WAIT_CANCELED, "a wait")


def is_ready(reply: Buffer) -> bool:
    """Whether a reply byte is READY, not NOT_READY; RemoteProtocolError if neither."""
    return _is_first(reply[0], READY, NOT_READY, "CHECK")


def _is_first(reply: int, first: int, second: int, name: str) -> bool:
    if reply != first and reply != second:
        raise RemoteProtocolError(f"the store replied to {name} with a byte of {reply}")
    return reply == first
