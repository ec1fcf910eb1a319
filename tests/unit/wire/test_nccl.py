"""Bootstrap messages against bytes written by hand, whole, truncated and with trailing data."""

import struct
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.errors import LocalProtocolError, RemoteProtocolError, UsageError
from emucoll.wire.address import Address
from emucoll.wire.nccl import (
    CHECK_IN_2_18,
    CHECK_IN_2_23,
    CHECK_IN_2_29,
    CONNECT_INFO_BYTES,
    DEFAULT_COMM_MAGIC,
    HELLO_BYTES,
    LENGTH_BYTES,
    UNIQUE_ID_BYTES,
    CheckIn,
    CheckInLayout,
    SocketType,
    UniqueId,
    WrongMagic,
    WrongSocketType,
    check_hello,
    check_in_with_previous_root,
    frame,
    layout_for,
    layout_of_size,
    pack_hello,
    root_of,
    root_ranks,
    unpack_length,
    unpack_unique_ids,
    version_text,
)

MAGIC = 0x1122334455667788
REPLY = Address("127.0.0.2", 0x1F91)
RING = Address("127.0.0.3", 0x1F92)
REPLY_BYTES = bytes.fromhex("0200 1f91 7f000002") + bytes(20)
RING_BYTES = bytes.fromhex("0200 1f92 7f000003") + bytes(20)
CONNECT_INFO = RING_BYTES + bytes(100)

CHECK_IN = CheckIn(rank=5, nranks=300, iroot=1, nroots=3, offset=0, reply=REPLY, ring=RING)
CHECK_IN_172 = bytes.fromhex("05000000 2c010000 01000000 03000000") + REPLY_BYTES + CONNECT_INFO
CHECK_IN_176 = (
    bytes.fromhex("05000000 2c010000 01000000 03000000 00000000") + REPLY_BYTES + CONNECT_INFO
)
CHECK_IN_ALONE = CHECK_IN._replace(iroot=0, nroots=1)
CHECK_IN_64 = bytes.fromhex("05000000 2c010000") + REPLY_BYTES + RING_BYTES
UNIQUE_ID = UniqueId(MAGIC, REPLY, 7)
UNIQUE_ID_DATA = bytes.fromhex("8877665544332211") + REPLY_BYTES + b"\7\0\0\0" + bytes(88)

LAYOUTS = [CHECK_IN_2_18, CHECK_IN_2_23, CHECK_IN_2_29]

addresses = st.builds(
    lambda ip, port: Address(str(ip), port),
    st.ip_addresses(v=4) | st.ip_addresses(v=6),
    st.integers(0, 0xFFFF),
)
int32 = st.integers(-(2**31), 2**31 - 1)


# Hello


def test_hello_golden() -> None:
    data = pack_hello(MAGIC, SocketType.BOOTSTRAP)
    assert data == bytes.fromhex("8877665544332211 01000000")
    assert len(data) == HELLO_BYTES
    check_hello(memoryview(data), MAGIC, SocketType.BOOTSTRAP)
    assert pack_hello(DEFAULT_COMM_MAGIC, SocketType.RAS) == bytes.fromhex(
        "80028002" * 2 + "05000000"
    )


def test_socket_types_are_nccl_s() -> None:
    assert [(kind.name, kind.value) for kind in SocketType] == [
        ("BOOTSTRAP", 1),
        ("PROXY", 2),
        ("NETSOCKET", 3),
        ("NETIB", 4),
        ("RAS", 5),
    ]


@pytest.mark.parametrize("size", [0, 8, 11, 13])
def test_hello_of_another_size(size: int) -> None:
    data = (pack_hello(MAGIC, SocketType.BOOTSTRAP) + b"x")[:size]
    with pytest.raises(RemoteProtocolError, match=f"12 bytes, and {size} came"):
        check_hello(data, MAGIC, SocketType.BOOTSTRAP)


@pytest.mark.parametrize(
    ("came", "text"),
    [
        (b"GET /metrics", r"b'GET /met' came, probably an HTTP request, perhaps a metrics scrape"),
        (b"OPTIONS / HT", "an HTTP request"),
        (b"SSH-2.0-Open", "an SSH client"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\xaa", "a TLS client"),
        (b"hello world\n", "the text b'hello wo' came instead of magic 0x1122334455667788"),
        (
            pack_hello(7, SocketType.PROXY),
            "magic 0x0000000000000007 came instead of 0x11223344556677",
        ),
        (b"\xff" * 12, "magic 0xffffffffffffffff came"),
    ],
)
def test_wrong_magic_says_what_came(came: bytes, text: str) -> None:
    with pytest.raises(WrongMagic, match=text):
        check_hello(came, MAGIC, SocketType.BOOTSTRAP)


def test_wrong_type_says_what_came() -> None:
    with pytest.raises(WrongSocketType, match=r"for proxy \(2\) where bootstrap \(1\) is served"):
        check_hello(pack_hello(MAGIC, SocketType.PROXY), MAGIC, SocketType.BOOTSTRAP)
    with pytest.raises(WrongSocketType, match=r"an unknown purpose \(9\)"):
        check_hello(struct.pack("<Qi", MAGIC, 9), MAGIC, SocketType.BOOTSTRAP)


def test_a_peer_s_faults_are_remote() -> None:
    assert issubclass(WrongMagic, RemoteProtocolError)
    assert issubclass(WrongSocketType, RemoteProtocolError)


@given(st.integers(0, 2**64 - 1), st.sampled_from(SocketType))
def test_hello_round_trip(magic: int, kind: SocketType) -> None:
    check_hello(pack_hello(magic, kind), magic, kind)


@given(st.binary(min_size=12, max_size=12))
def test_any_hello_passes_or_is_refused(data: bytes) -> None:
    try:
        check_hello(data, MAGIC, SocketType.BOOTSTRAP)
    except (WrongMagic, WrongSocketType):
        return
    assert data == pack_hello(MAGIC, SocketType.BOOTSTRAP)


# Framing


def test_frame_golden() -> None:
    assert frame(b"abc") == b"\3\0\0\0abc"
    assert frame(memoryview(b"")) == b"\0\0\0\0"
    assert LENGTH_BYTES == 4


@pytest.mark.parametrize(("data", "size"), [(b"\0\0\0\0", 0), (b"\1\0\0\0", 1), (b"\0\1\0\0", 256)])
def test_length_golden(data: bytes, size: int) -> None:
    assert unpack_length(data, 256) == size


@pytest.mark.parametrize("data", [b"\1\1\0\0", b"\xff\xff\xff\xff", b"\0\0\0\x80"])
def test_length_beyond_the_limit_or_negative(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match=r"0\.\.256 are allowed"):
        unpack_length(data, 256)


@pytest.mark.parametrize("size", [0, 3, 5])
def test_length_of_another_size(size: int) -> None:
    with pytest.raises(RemoteProtocolError, match=f"4 bytes, and {size} came"):
        unpack_length(bytes(size), 256)


@given(st.binary(max_size=300))
def test_frame_round_trip(payload: bytes) -> None:
    data = frame(payload)
    assert unpack_length(data[:4], 300) == len(payload)
    assert data[4:] == payload


# Fixed messages

Unpack = Callable[[bytes], object]


@pytest.mark.parametrize(
    ("packed", "data", "unpack", "value"),
    [
        (CHECK_IN_2_23.pack(CHECK_IN), CHECK_IN_172, CHECK_IN_2_23.unpack, CHECK_IN),
        (CHECK_IN_2_29.pack(CHECK_IN), CHECK_IN_176, CHECK_IN_2_29.unpack, CHECK_IN),
        (CHECK_IN_2_18.pack(CHECK_IN_ALONE), CHECK_IN_64, CHECK_IN_2_18.unpack, CHECK_IN_ALONE),
        (
            CHECK_IN_2_29.pack_connect_info(RING),
            CONNECT_INFO,
            CHECK_IN_2_23.unpack_connect_info,
            RING,
        ),
        (
            CHECK_IN_2_18.pack_connect_info(RING),
            RING_BYTES,
            CHECK_IN_2_18.unpack_connect_info,
            RING,
        ),
        (UNIQUE_ID.pack(), UNIQUE_ID_DATA, UniqueId.unpack, UNIQUE_ID),
    ],
    ids=[
        "check-in 172",
        "check-in 176",
        "check-in 64",
        "connect info",
        "connect info of 2.22",
        "unique id",
    ],
)
def test_golden(packed: bytes, data: bytes, unpack: Unpack, value: object) -> None:
    assert packed == data
    assert unpack(data) == value
    for wrong in [data[:size] for size in range(len(data))] + [data + b"\0"]:
        with pytest.raises(
            RemoteProtocolError, match=f"has {len(data)} bytes, and {len(wrong)} came"
        ):
            unpack(wrong)


def test_sizes() -> None:
    assert CHECK_IN_2_23.size == len(CHECK_IN_172) == 172
    assert CHECK_IN_2_29.size == len(CHECK_IN_176) == 176
    assert CHECK_IN_2_18.size == len(CHECK_IN_64) == 64
    for layout in LAYOUTS:
        assert layout_of_size(layout.size) is layout
    assert len(CONNECT_INFO) == CONNECT_INFO_BYTES == 128
    assert len(UNIQUE_ID_DATA) == UNIQUE_ID_BYTES == 128


def test_padding_is_not_looked_at() -> None:
    assert CHECK_IN_2_29.unpack_connect_info(RING_BYTES + b"\xff" * 100) == RING
    assert UniqueId.unpack(UNIQUE_ID_DATA[:40] + b"\xff" * 88) == UNIQUE_ID


def test_an_unusable_address_inside() -> None:
    for unpack, size in [
        (CHECK_IN_2_29.unpack, 176),
        (CHECK_IN_2_18.unpack, 64),
        (CHECK_IN_2_29.unpack_connect_info, 128),
        (CHECK_IN_2_18.unpack_connect_info, 28),
    ]:
        with pytest.raises(RemoteProtocolError, match="family 0"):
            unpack(bytes(size))


def test_offset_lies_between_the_roots_and_the_reply_listener() -> None:
    growing = CHECK_IN._replace(offset=9)
    data = CHECK_IN_2_29.pack(growing)
    assert data == CHECK_IN_176[:16] + b"\x09\0\0\0" + CHECK_IN_176[20:]
    assert CHECK_IN_2_29.unpack(data) == growing
    with pytest.raises(LocalProtocolError, match=r"2\.23 has no offset"):
        CHECK_IN_2_23.pack(growing)


def test_the_other_layout_is_named() -> None:
    with pytest.raises(RemoteProtocolError, match=r"peer's NCCL is 2\.29 or later"):
        CHECK_IN_2_23.unpack(CHECK_IN_176)
    with pytest.raises(RemoteProtocolError, match=r"older than 2\.23"):
        CHECK_IN_2_29.unpack(bytes(64))
    with pytest.raises(RemoteProtocolError, match=r"64 bytes, and 172 came.* is 2\.23 or later"):
        CHECK_IN_2_18.unpack(CHECK_IN_172)


@pytest.mark.parametrize("change", [{"iroot": 1}, {"nroots": 2}, {"offset": 1}])
def test_what_the_oldest_layout_cannot_say(change: dict[str, int]) -> None:
    with pytest.raises(LocalProtocolError, match=r"2\.18 has neither roots nor offset"):
        CHECK_IN_2_18.pack(CHECK_IN_ALONE._replace(**change))


@given(
    st.builds(CheckIn, int32, int32, int32, int32, int32, addresses, addresses),
    st.sampled_from(LAYOUTS),
)
def test_check_in_round_trip(c: CheckIn, layout: CheckInLayout) -> None:
    c = c if layout.has_offset else c._replace(offset=0)
    c = c if layout.has_roots else c._replace(iroot=0, nroots=1)
    data = layout.pack(c)
    assert len(data) == layout.size
    assert layout.unpack(memoryview(data)) == c


def test_ids_one_after_another() -> None:
    other = UniqueId(7, RING)
    assert unpack_unique_ids(UNIQUE_ID_DATA + other.pack()) == (UNIQUE_ID, other)
    assert unpack_unique_ids(b"") == ()
    with pytest.raises(RemoteProtocolError, match="128 bytes, and 127 came"):
        unpack_unique_ids(UNIQUE_ID_DATA + UNIQUE_ID_DATA[:127])


@given(st.integers(0, 2**64 - 1), addresses, int32)
def test_unique_id_round_trip(magic: int, root: Address, nranks: int) -> None:
    assert UniqueId.unpack(UniqueId(magic, root, nranks).pack()) == (magic, root, nranks)
    for layout in LAYOUTS:
        assert layout.unpack_connect_info(layout.pack_connect_info(root)) == root


# Versions


@pytest.mark.parametrize(
    ("code", "size", "answer"),
    [
        (21803, 64, 28),
        (22203, 64, 28),
        (22304, 172, 128),
        (22809, 172, 128),
        (22902, 176, 128),
        (23007, 176, 128),
        (23203, 176, 128),
    ],
)
def test_layout_for_a_release(code: int, size: int, answer: int) -> None:
    layout = layout_for(code)
    assert (layout.size, layout.connect_info_bytes) == (size, answer)
    assert layout.collects is (code < 22300)
    assert layout.has_roots is (code >= 22300)
    assert layout.has_offset is (code >= 22900)


@pytest.mark.parametrize(("code", "name"), [(21706, "2.17.6"), (2708, "2.7.8")])
def test_releases_too_old(code: int, name: str) -> None:
    with pytest.raises(UsageError, match=rf"NCCL {name}, .* Use NCCL 2\.18 or later"):
        layout_for(code)


def test_version_text() -> None:
    assert version_text(23203) == "2.32.3"
    assert version_text(22809) == "2.28.9"
    assert version_text(2304) == "2.3.4"


# Several roots

shapes = st.integers(1, 300).flatmap(lambda n: st.tuples(st.just(n), st.integers(1, n)))


def test_roots_golden() -> None:
    assert [root_ranks(10, 3, i) for i in range(3)] == [range(4), range(4, 7), range(7, 10)]
    assert [root_of(rank, 10, 3) for rank in range(10)] == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]


@given(shapes)
def test_roots_partition_the_ranks(shape: tuple[int, int]) -> None:
    nranks, nroots = shape
    parts = [root_ranks(nranks, nroots, i) for i in range(nroots)]
    assert [rank for part in parts for rank in part] == list(range(nranks))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert all(root_of(rank, nranks, nroots) == i for i, part in enumerate(parts) for rank in part)


@pytest.mark.parametrize(("nranks", "nroots"), [(0, 1), (4, 0), (4, 5), (-1, -1)])
def test_impossible_numbers_of_roots(nranks: int, nroots: int) -> None:
    with pytest.raises(LocalProtocolError, match="roots for"):
        root_ranks(nranks, nroots, 0)
    with pytest.raises(LocalProtocolError, match="roots for"):
        root_of(0, nranks, nroots)


def test_roots_and_ranks_out_of_range() -> None:
    for outside in (-1, 4):
        with pytest.raises(LocalProtocolError, match=f"root {outside} is not one of 4"):
            root_ranks(4, 4, outside)
        with pytest.raises(LocalProtocolError, match=f"rank {outside} is not one of 4"):
            root_of(outside, 4, 2)


def test_second_check_ins() -> None:
    def second(rank: int) -> tuple[int, int] | None:
        own = CheckIn(rank, 10, root_of(rank, 10, 3), 3, 0, REPLY, RING)
        other = check_in_with_previous_root(own)
        assert other is None or (other.reply, other.ring) == (REPLY, RING)
        return other and (other.rank, other.iroot)

    expected = {0: (10, 2), 4: (4, 0), 7: (7, 1)}
    assert [second(rank) for rank in range(10)] == [expected.get(rank) for rank in range(10)]


def test_one_root_gets_no_second_check_in() -> None:
    assert check_in_with_previous_root(CheckIn(0, 10, 0, 1, 0, REPLY, RING)) is None
