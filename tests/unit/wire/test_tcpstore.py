"""TCPStore's wire format: bytes as PyTorch 2.13's clients and servers send them, cut anyhow."""

import struct
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.errors import LocalProtocolError, RemoteProtocolError
from emucoll.wire import tcpstore
from emucoll.wire.tcpstore import LIBUV_LIMITS, VALIDATE_MAGIC, Limits, Op, Request, RequestParser

VALIDATE = bytes.fromhex("00 ce f7 85 3c")
U64_2 = "0200000000000000"
U64_3 = "0300000000000000"

# Requests that PyTorch 2.13's servers were seen to take. QUEUE_PUSH and QUEUE_LEN were not: they
# follow the layout in the source of libuv's server.
GOLDEN: list[tuple[str, bytes, str, Request]] = [
    ("PING", tcpstore.ping(0x11223344), "0d 44332211", Request(Op.PING, number=0x11223344)),
    (
        "SET",
        tcpstore.set_request(b"/a", b"hello"),
        f"01 {U64_2} 2f61 0500000000000000 68656c6c6f",
        Request(Op.SET, (b"/a",), (b"hello",)),
    ),
    ("GET", tcpstore.get_request(b"/a"), f"03 {U64_2} 2f61", Request(Op.GET, (b"/a",))),
    (
        "ADD",
        tcpstore.add_request(b"/c", 5),
        f"04 {U64_2} 2f63 0500000000000000",
        Request(Op.ADD, (b"/c",), number=5),
    ),
    (
        "ADD negative",
        tcpstore.add_request(b"/c", -7),
        f"04 {U64_2} 2f63 f9ffffffffffffff",
        Request(Op.ADD, (b"/c",), number=-7),
    ),
    (
        "CHECK",
        tcpstore.check_request([b"/a", b"/nope"]),
        f"05 {U64_2} {U64_2} 2f61 0500000000000000 2f6e6f7065",
        Request(Op.CHECK, (b"/a", b"/nope")),
    ),
    (
        "WAIT",
        tcpstore.wait_request([b"/w"]),
        f"06 0100000000000000 {U64_2} 2f77",
        Request(Op.WAIT, (b"/w",)),
    ),
    (
        "WAIT for two",
        tcpstore.wait_request((b"/k1", b"/w")),
        f"06 {U64_2} {U64_3} 2f6b31 {U64_2} 2f77",
        Request(Op.WAIT, (b"/k1", b"/w")),
    ),
    ("WAIT for nothing", tcpstore.wait_request([]), "06 0000000000000000", Request(Op.WAIT)),
    ("CANCEL_WAIT", tcpstore.cancel_wait_request(), "0c", Request(Op.CANCEL_WAIT)),
    (
        "COMPARE_SET",
        tcpstore.compare_set_request(b"/n", b"", b"x"),
        f"02 {U64_2} 2f6e 0000000000000000 0100000000000000 78",
        Request(Op.COMPARE_SET, (b"/n",), (b"", b"x")),
    ),
    (
        "APPEND",
        tcpstore.append_request(b"/a", b"!!"),
        f"09 {U64_2} 2f61 {U64_2} 2121",
        Request(Op.APPEND, (b"/a",), (b"!!",)),
    ),
    (
        "MULTI_SET",
        tcpstore.multi_set_request([(b"/k1", b"v1"), (b"/k2", b"v22")]),
        f"0b {U64_2} {U64_3} 2f6b31 {U64_2} 7631 {U64_3} 2f6b32 {U64_3} 763232",
        Request(Op.MULTI_SET, (b"/k1", b"/k2"), (b"v1", b"v22")),
    ),
    (
        "MULTI_GET",
        tcpstore.multi_get_request([b"/k1", b"/k2"]),
        f"0a {U64_2} {U64_3} 2f6b31 {U64_3} 2f6b32",
        Request(Op.MULTI_GET, (b"/k1", b"/k2")),
    ),
    (
        "DELETE_KEY",
        tcpstore.delete_request(b"/k1"),
        f"08 {U64_3} 2f6b31",
        Request(Op.DELETE_KEY, (b"/k1",)),
    ),
    ("GETNUMKEYS", tcpstore.num_keys_request(), "07", Request(Op.GETNUMKEYS)),
    ("LIST_KEYS", tcpstore.list_keys_request(), "11", Request(Op.LIST_KEYS)),
    (
        "BARRIER",
        tcpstore.barrier_request(b"/b", 2),
        f"12 {U64_2} 2f62 {U64_2}",
        Request(Op.BARRIER, (b"/b",), number=2),
    ),
    (
        "QUEUE_PUSH",
        tcpstore.queue_push_request(b"/q", b"ab"),
        f"0e {U64_2} 2f71 {U64_2} 6162",
        Request(Op.QUEUE_PUSH, (b"/q",), (b"ab",)),
    ),
    (
        "QUEUE_POP",
        tcpstore.queue_pop_request(b"/q"),
        f"0f {U64_2} 2f71",
        Request(Op.QUEUE_POP, (b"/q",)),
    ),
    (
        "QUEUE_LEN",
        tcpstore.queue_len_request(b"/q"),
        f"10 {U64_2} 2f71",
        Request(Op.QUEUE_LEN, (b"/q",)),
    ),
]
GOLDEN_IDS = [name for name, *_ in GOLDEN]


def ready_parser(limits: Limits = LIBUV_LIMITS) -> RequestParser:
    parser = RequestParser(limits)
    parser.feed(VALIDATE)
    return parser


def encode(request: Request) -> bytes:
    """The bytes of a request, written down once more and in another way."""

    def string(data: bytes) -> bytes:
        return len(data).to_bytes(8, "little") + data

    op, keys, values, number = request
    count = len(keys).to_bytes(8, "little")
    body = {
        Op.VALIDATE: lambda: struct.pack("<I", number),
        Op.PING: lambda: struct.pack("<I", number),
        Op.ADD: lambda: string(keys[0]) + struct.pack("<q", number),
        Op.BARRIER: lambda: string(keys[0]) + struct.pack("<q", number),
        Op.MULTI_SET: lambda: (
            count + b"".join(string(k) + string(v) for k, v in zip(keys, values, strict=True))
        ),
        Op.WAIT: lambda: count + b"".join(map(string, keys)),
        Op.CHECK: lambda: count + b"".join(map(string, keys)),
        Op.MULTI_GET: lambda: count + b"".join(map(string, keys)),
    }.get(op, lambda: b"".join(map(string, keys + values)))()
    return bytes((op,)) + body


def test_opcodes_are_those_of_pytorch_2_13() -> None:
    assert [op.value for op in Op] == list(range(19))
    assert {Op[name.split()[0]] for name in GOLDEN_IDS} == set(Op) - {Op.VALIDATE}


# Encoders ----------------------------------------------------------------------------------------


def test_validate_bytes() -> None:
    assert tcpstore.validate() == VALIDATE
    assert VALIDATE_MAGIC == 0x3C85F7CE


@pytest.mark.parametrize(("encoded", "golden"), [g[1:3] for g in GOLDEN], ids=GOLDEN_IDS)
def test_encoder_gives_golden_bytes(encoded: bytes, golden: str) -> None:
    assert type(encoded) is bytes
    assert encoded == bytes.fromhex(golden)


def test_user_key() -> None:
    assert tcpstore.user_key("p2/p1/x") == b"/p2/p1/x"
    assert tcpstore.user_key("/x") == b"//x"
    assert tcpstore.user_key("é") == b"/\xc3\xa9"


LONG_KEY, LONG_VALUE = b"k" * 8193, bytes((8 << 20) + 1)


@pytest.mark.parametrize(
    "request_of",
    [
        lambda: tcpstore.set_request(LONG_KEY, b""),
        lambda: tcpstore.set_request(b"k", LONG_VALUE),
        lambda: tcpstore.get_request(LONG_KEY),
        lambda: tcpstore.wait_request([LONG_KEY]),
        lambda: tcpstore.wait_request([b"k", LONG_KEY]),
        lambda: tcpstore.wait_request([b"k"] * 131_073),
        lambda: tcpstore.check_request([LONG_KEY]),
        lambda: tcpstore.check_request([b"k"] * 131_073),
        lambda: tcpstore.multi_get_request([LONG_KEY]),
        lambda: tcpstore.multi_get_request([b"k"] * 131_073),
        lambda: tcpstore.multi_set_request([(LONG_KEY, b"")]),
        lambda: tcpstore.multi_set_request([(b"k", LONG_VALUE)]),
        lambda: tcpstore.multi_set_request([(b"k", b"")] * 131_073),
        lambda: tcpstore.append_request(LONG_KEY, b""),
        lambda: tcpstore.append_request(b"k", LONG_VALUE),
        lambda: tcpstore.queue_push_request(b"k", LONG_VALUE),
        lambda: tcpstore.queue_pop_request(LONG_KEY),
        lambda: tcpstore.queue_len_request(LONG_KEY),
        lambda: tcpstore.delete_request(LONG_KEY),
        lambda: tcpstore.compare_set_request(LONG_KEY, b"", b""),
        lambda: tcpstore.compare_set_request(b"k", LONG_VALUE, b""),
        lambda: tcpstore.compare_set_request(b"k", b"", LONG_VALUE),
        lambda: tcpstore.add_request(LONG_KEY, 0),
        lambda: tcpstore.add_request(b"k", 1 << 63),
        lambda: tcpstore.add_request(b"k", -(1 << 63) - 1),
        lambda: tcpstore.barrier_request(b"k", 1 << 63),
        lambda: tcpstore.ping(-1),
        lambda: tcpstore.ping(1 << 32),
    ],
)
def test_encoders_refuse_what_servers_reset(request_of: Callable[[], bytes]) -> None:
    with pytest.raises(LocalProtocolError):
        request_of()


def test_encoders_go_up_to_the_limits() -> None:
    key, value = LONG_KEY[1:], LONG_VALUE[1:]
    assert len(tcpstore.set_request(key, value)) == 1 + 8 + len(key) + 8 + len(value)
    assert len(tcpstore.wait_request([key])) == 17 + len(key)
    assert len(tcpstore.check_request([b"k"] * 131_072)) == 9 + 9 * 131_072
    assert tcpstore.ping((1 << 32) - 1)[1:] == b"\xff" * 4


# Replies -----------------------------------------------------------------------------------------


def test_reply_numbers() -> None:
    assert tcpstore.decode_number(bytes.fromhex("feffffffffffffff")) == -2
    assert tcpstore.pack_number(-2) == bytes.fromhex("feffffffffffffff")
    assert tcpstore.decode_nonce(memoryview(bytes.fromhex("44332211"))) == 0x11223344
    assert tcpstore.pack_nonce(0x11223344) == bytes.fromhex("44332211")
    assert (tcpstore.NUMBER_BYTES, tcpstore.LENGTH_BYTES, tcpstore.NONCE_BYTES) == (8, 8, 4)


def test_value_length() -> None:
    assert tcpstore.value_length(bytes.fromhex("0500000000000000")) == 5
    assert tcpstore.value_length(tcpstore.pack_length(1 << 30)) == 1 << 30
    assert tcpstore.value_length(tcpstore.pack_length(28), limit=28) == 28
    with pytest.raises(RemoteProtocolError, match="29 B"):
        tcpstore.value_length(tcpstore.pack_length(29), limit=28)
    with pytest.raises(RemoteProtocolError):
        tcpstore.value_length(b"\xff" * 8)


def test_wait_and_check_replies() -> None:
    assert (tcpstore.STOP_WAITING, tcpstore.WAIT_CANCELED) == (0, 1)
    assert (tcpstore.READY, tcpstore.NOT_READY) == (0, 1)
    for decode in (tcpstore.stopped_waiting, tcpstore.is_ready):
        assert decode(b"\0") is True
        assert decode(b"\1") is False
        with pytest.raises(RemoteProtocolError, match="byte of 2"):
            decode(b"\2")


# The parser: golden bytes ------------------------------------------------------------------------


@pytest.mark.parametrize(("golden", "parsed"), [g[2:4] for g in GOLDEN], ids=GOLDEN_IDS)
def test_parser_reads_golden_bytes(golden: str, parsed: Request) -> None:
    data = bytes.fromhex(golden)
    assert ready_parser().feed(data) == [parsed]
    assert ready_parser().feed(data + data[:-1]) == [parsed]
    assert ready_parser().feed(data * 3) == [parsed] * 3
    one_by_one = ready_parser()
    assert [one_by_one.feed(data[i : i + 1]) for i in range(len(data))] == (
        [[]] * (len(data) - 1) + [[parsed]]
    )


@pytest.mark.parametrize("cut", range(6))
def test_validate_may_arrive_cut(cut: int) -> None:
    # libuv's server falls silent for good if it arrives as 1 + 4 bytes.
    parser = RequestParser()
    requests = parser.feed(VALIDATE[:cut]) + parser.feed(VALIDATE[cut:])
    assert requests == [Request(Op.VALIDATE, number=VALIDATE_MAGIC)]
    assert parser.feed(b"\x07") == [Request(Op.GETNUMKEYS)]


def test_validate_and_more_in_one_read() -> None:
    data = VALIDATE + b"".join(encoded for _, encoded, *_ in GOLDEN)
    assert RequestParser().feed(data) == [
        Request(Op.VALIDATE, number=VALIDATE_MAGIC),
        *(parsed for *_, parsed in GOLDEN),
    ]


def test_parsed_parts_are_plain() -> None:
    (request,) = ready_parser().feed(tcpstore.set_request(b"/a", b"1"))
    assert type(request) is Request
    assert type(request.op) is Op
    assert type(request.keys[0]) is bytes
    assert (request.op, request.keys, request.values, request.number) == request


def test_idle() -> None:
    parser = ready_parser()
    assert parser.idle
    for golden in (bytes.fromhex(g[2]) for g in GOLDEN):
        for byte in golden[:-1]:
            parser.feed(bytes((byte,)))
            assert not parser.idle
        parser.feed(golden[-1:])
        assert parser.idle


# The parser: any cut -----------------------------------------------------------------------------

short = st.binary(max_size=20)
mixed = st.one_of(short, st.binary(min_size=100, max_size=300))
i64 = st.integers(-(1 << 63), (1 << 63) - 1)
u32 = st.integers(0, (1 << 32) - 1)
lists = st.lists(short, max_size=5).map(tuple)


def requests_of(op: Op) -> st.SearchStrategy[Request]:
    key = st.tuples(short)
    keys: st.SearchStrategy[tuple[bytes, ...]] = st.just(())
    values: st.SearchStrategy[tuple[bytes, ...]] = st.just(())
    number = st.just(0)
    if op in (Op.SET, Op.APPEND, Op.QUEUE_PUSH):
        keys, values = key, st.tuples(mixed)
    elif op is Op.COMPARE_SET:
        keys, values = key, st.tuples(mixed, mixed)
    elif op in (Op.ADD, Op.BARRIER):
        keys, number = key, i64
    elif op in (Op.GET, Op.DELETE_KEY, Op.QUEUE_POP, Op.QUEUE_LEN):
        keys = key
    elif op in (Op.WAIT, Op.CHECK, Op.MULTI_GET):
        keys = lists
    elif op is Op.MULTI_SET:
        items = st.lists(st.tuples(short, mixed), max_size=4)
        return items.map(lambda kv: Request(op, tuple(k for k, _ in kv), tuple(v for _, v in kv)))
    elif op is Op.PING:
        number = u32
    return st.tuples(keys, values, number).map(lambda parts: Request(op, *parts))


streams = st.lists(
    st.one_of([requests_of(op) for op in Op if op is not Op.VALIDATE]), min_size=1, max_size=12
).map(lambda requests: [Request(Op.VALIDATE, number=VALIDATE_MAGIC), *requests])


@given(streams)
def test_whole_stream(requests: list[Request]) -> None:
    parser = RequestParser()
    assert parser.feed(b"".join(map(encode, requests))) == requests
    assert parser.idle


@given(streams)
def test_byte_by_byte(requests: list[Request]) -> None:
    parser = RequestParser()
    for request in requests:
        data = encode(request)
        for byte in data[:-1]:
            assert parser.feed(bytes((byte,))) == []
        assert parser.feed(data[-1:]) == [request]
    assert parser.idle


@given(streams, st.data())
def test_any_cuts_through_one_scratch_buffer(requests: list[Request], draw: st.DataObject) -> None:
    stream = b"".join(map(encode, requests))
    cuts = draw.draw(st.lists(st.integers(0, len(stream)), max_size=8))
    scratch = bytearray(len(stream))
    parser, parsed = RequestParser(), []
    for start, stop in pairwise([0, *sorted(cuts), len(stream)]):
        scratch[: stop - start] = stream[start:stop]
        parsed += parser.feed(memoryview(scratch)[: stop - start])
        scratch[:] = b"\xee" * len(scratch)  # whoever kept a reference reads this
    assert parsed == requests
    assert parser.idle


@given(streams, st.binary(max_size=40), st.integers(0, 10_000))
def test_damaged_streams_end_alike_however_cut(
    requests: list[Request], damage: bytes, place: int
) -> None:
    """Completed requests, and whether and why it fails, don't depend on the cuts."""
    stream = b"".join(map(encode, requests))
    place %= len(stream) + 1
    stream = stream[:place] + damage + stream[place:]

    def outcome(step: int) -> tuple[list[Request], str]:
        parser, parsed = RequestParser(Limits(key_bytes=50, value_bytes=250, keys=4)), []
        for start in range(0, len(stream), step):
            try:
                parsed += parser.feed(stream[start : start + step])
            except RemoteProtocolError as error:
                return parsed + parser.completed, str(error)
        return parsed, f"idle {parser.idle}"

    assert outcome(1) == outcome(7) == outcome(len(stream))


# The parser: what it refuses ---------------------------------------------------------------------


def refusals(stream: bytes, limits: Limits = LIBUV_LIMITS) -> list[str]:
    """Why the parser refuses a stream that comes after a VALIDATE, whole and byte by byte."""
    reasons = []
    for step in (len(stream), 1):
        parser = ready_parser(limits)
        with pytest.raises(RemoteProtocolError) as caught:  # noqa: PT012
            for start in range(0, len(stream), step):
                parser.feed(stream[start : start + step])
        reasons.append(str(caught.value))
        with pytest.raises(RemoteProtocolError, match="after it had broken"):
            parser.feed(b"\x07")
    return reasons


@pytest.mark.parametrize("opcode", [19, 71, 128, 255])
def test_unknown_opcode(opcode: int) -> None:
    assert all(f"opcode {opcode}" in reason for reason in refusals(bytes((opcode,))))


@pytest.mark.parametrize("opcode", [*range(1, 20), ord("G")])
def test_first_request_must_be_validate(opcode: int) -> None:
    # libuv's server waits silently instead, and executes what the second packet holds.
    with pytest.raises(RemoteProtocolError):
        RequestParser().feed(bytes((opcode,)))


@pytest.mark.parametrize("at", range(1, 5))
def test_bad_magic(at: int) -> None:
    data = bytearray(VALIDATE)
    data[at] ^= 1
    with pytest.raises(RemoteProtocolError, match="VALIDATE with 0x"):
        RequestParser().feed(data)


def test_second_validate() -> None:
    assert all("second time" in reason for reason in refusals(VALIDATE))


def length(n: int) -> bytes:
    return n.to_bytes(8, "little")


SMALL = Limits(key_bytes=4, value_bytes=6, keys=3)
AT_LIMIT = {
    "SET key": (b"\x01" + length(4) + b"kkkk" + length(0), 1),
    "SET value": (b"\x01" + length(1) + b"k" + length(6) + b"vvvvvv", 10),
    "GET key": (b"\x03" + length(4) + b"kkkk", 1),
    "ADD key": (b"\x04" + length(4) + b"kkkk" + bytes(8), 1),
    "WAIT key": (b"\x06" + length(1) + length(4) + b"kkkk", 9),
    "CHECK count": (b"\x05" + length(3) + length(0) * 3, 1),
    "WAIT count": (b"\x06" + length(3) + length(0) * 3, 1),
    "MULTI_GET second key": (b"\x0a" + length(2) + length(0) + length(4) + b"kkkk", 17),
    "MULTI_SET count": (b"\x0b" + length(3) + length(0) * 6, 1),
    "MULTI_SET key": (b"\x0b" + length(1) + length(4) + b"kkkk" + length(0), 9),
    "MULTI_SET value": (b"\x0b" + length(1) + length(0) + length(6) + b"vvvvvv", 17),
    "COMPARE_SET key": (b"\x02" + length(4) + b"kkkk" + length(0) * 2, 1),
    "COMPARE_SET expected": (b"\x02" + length(0) + length(6) + b"vvvvvv" + length(0), 9),
    "COMPARE_SET desired": (b"\x02" + length(0) + length(0) + length(6) + b"vvvvvv", 17),
}


@pytest.mark.parametrize(("data", "at"), AT_LIMIT.values(), ids=AT_LIMIT)
@pytest.mark.parametrize("excess", [1, 1 << 40, (1 << 64) - 100])
def test_limits(data: bytes, at: int, excess: int) -> None:
    (request,) = ready_parser(SMALL).feed(data)
    assert encode(request) == data
    bound = int.from_bytes(data[at : at + 8], "little")
    over = data[:at] + length(bound + excess)  # refused before any of it has come
    assert all(f"above {bound}" in reason for reason in refusals(over, SMALL))
    if excess == 1:
        assert refusals(over + bytes(100), SMALL)[0] == refusals(over, SMALL)[0]


def test_libuv_limits() -> None:
    assert Limits() == LIBUV_LIMITS
    assert (LIBUV_LIMITS.key_bytes, LIBUV_LIMITS.value_bytes) == (8192, 8 * 1024 * 1024)
    assert LIBUV_LIMITS.keys == 131_072
    longest = LIBUV_LIMITS.keys * LIBUV_LIMITS.key_bytes
    assert longest <= LIBUV_LIMITS.list_bytes


def test_limits_may_be_lifted() -> None:
    # As the older server has none.
    limits = Limits(key_bytes=1 << 20, value_bytes=1 << 24, keys=1 << 20)
    key, value = b"k" * 100_000, bytes((8 << 20) + 1)
    data = b"\x01" + length(len(key)) + key + length(len(value)) + value
    assert ready_parser(limits).feed(data) == [Request(Op.SET, (key,), (value,))]


def test_list_bytes() -> None:
    limits = Limits(key_bytes=4, value_bytes=6, keys=100, list_bytes=12)
    items = [(b"kkkk", b"v"), (b"kkkk", b"vvv")]
    (request,) = ready_parser(limits).feed(tcpstore.multi_set_request(items))
    assert request.values == (b"v", b"vvv")
    over = tcpstore.multi_set_request([*items, (b"k", b"")])
    assert all("MULTI_SET above 12 B" in reason for reason in refusals(over, limits))
    # Each list begins from nothing.
    assert len(ready_parser(limits).feed(tcpstore.multi_set_request(items) * 3)) == 3


def test_completed_before_a_breach() -> None:
    parser = ready_parser()
    good = tcpstore.set_request(b"/a", b"1") + tcpstore.num_keys_request()
    with pytest.raises(RemoteProtocolError):
        parser.feed(good + b"\xff")
    assert parser.completed == [Request(Op.SET, (b"/a",), (b"1",)), Request(Op.GETNUMKEYS)]
    with pytest.raises(RemoteProtocolError):
        parser.feed(good)
    assert parser.completed == []


# The parser: cost --------------------------------------------------------------------------------


def test_a_long_list_is_the_same_whole_in_pieces_and_again() -> None:
    keys = [b"%d" % number * 9 for number in range(1000)]
    wait, get = tcpstore.wait_request(keys), tcpstore.multi_get_request(keys)
    wanted = [Request(Op.WAIT, tuple(keys)), Request(Op.MULTI_GET, tuple(keys))]
    for chunks in ([wait, get], [wait + get], [wait[:5000], wait[5000:] + get], [wait, get]):
        parser = ready_parser()
        parsed = [request for chunk in chunks for request in parser.feed(chunk)]
        assert parsed == wanted
        assert parser.idle
        assert parser.feed(tcpstore.get_request(b"x")) == [Request(Op.GET, (b"x",))]


def test_a_long_list_that_is_refused_is_refused_again() -> None:
    limits = replace(LIBUV_LIMITS, keys=500)
    wait = tcpstore.wait_request([b"%d" % number * 9 for number in range(501)])
    for _ in range(2):
        parser = ready_parser(limits)
        with pytest.raises(RemoteProtocolError, match="WAIT of 501 keys, above 500"):
            parser.feed(wait)
        with pytest.raises(RemoteProtocolError, match="more after"):
            parser.feed(wait)
    assert len(ready_parser().feed(wait)) == 1


def calls_to_parse(stream: bytes, step: int) -> int:
    """Calls into Python and C: the parser's work, whatever else the machine does meanwhile."""
    parser, calls = ready_parser(), 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        for start in range(0, len(stream), step):
            parser.feed(stream[start : start + step])
    finally:
        sys.setprofile(None)
    assert parser.idle
    return calls


def test_a_cut_list_is_read_once() -> None:
    def stream(keys: int) -> bytes:
        return tcpstore.multi_set_request([(b"/key-%06d" % i, bytes(64)) for i in range(keys)])

    once, twice = calls_to_parse(stream(4_000), 4096), calls_to_parse(stream(8_000), 4096)
    assert 4_000 * 2 < once < 4_000 * 2 * 4  # a few for each string
    assert twice < 2.2 * once
    assert calls_to_parse(stream(1_000), 1) < 20 * len(stream(1_000))


def test_100_000_keys_in_4_kib_pieces() -> None:
    items = [(b"/bootstrapAddr-%d" % i, b"%028d" % i) for i in range(100_000)]
    stream, parser, parsed = tcpstore.multi_set_request(items), ready_parser(), []
    for start in range(0, len(stream), 4096):
        parsed += parser.feed(stream[start : start + 4096])
        assert len(parser._partial) < 64  # never more than the argument under way
    (request,) = parsed
    assert list(zip(request.keys, request.values, strict=True)) == items


def test_a_large_value_in_pieces() -> None:
    value = bytes(range(256)) * (1 << 15)
    stream, parser, parsed = tcpstore.set_request(b"/a", value), ready_parser(), []
    for start in range(0, len(stream), 65_536):
        parsed += parser.feed(memoryview(stream)[start : start + 65_536])
        assert len(parser._partial) <= 8 + len(value)
    assert parsed == [Request(Op.SET, (b"/a",), (value,))]
    assert len(parser._partial) == 0
    assert calls_to_parse(stream, 4096) < 12 * len(stream) / 4096
