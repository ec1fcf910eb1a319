"""Addresses against bytes written by hand, and there and back."""

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.errors import LocalProtocolError, RemoteProtocolError
from emucoll.wire.address import ADDRESS_BYTES, Address, pack_address, unpack_address

V4 = Address("127.0.0.1", 0x1F90)
V4_BYTES = bytes.fromhex("0200 1f90 7f000001") + bytes(20)
V6 = Address("fe80::1", 443, flowinfo=0x000ABCDE, scope_id=3)
V6_BYTES = bytes.fromhex(
    "0a00 01bb 000abcde fe80000000000000 0000000000000001 03000000"
)  # flowinfo in network order, scope in host order

ports = st.integers(0, 0xFFFF)
ipv4 = st.builds(lambda ip, port: Address(str(ip), port), st.ip_addresses(v=4), ports)
ipv6 = st.builds(
    Address,
    st.ip_addresses(v=6).map(str),
    ports,
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
)


@pytest.mark.parametrize(("address", "data"), [(V4, V4_BYTES), (V6, V6_BYTES)])
def test_golden(address: Address, data: bytes) -> None:
    assert len(data) == ADDRESS_BYTES
    assert pack_address(address) == data
    for buffer in (data, bytearray(data), memoryview(data)):
        assert unpack_address(buffer) == address


@pytest.mark.parametrize("data", [V4_BYTES, V6_BYTES])
def test_truncated_and_trailing(data: bytes) -> None:
    for size in range(ADDRESS_BYTES):
        with pytest.raises(RemoteProtocolError, match=f"28 bytes, and {size} came"):
            unpack_address(data[:size])
    assert unpack_address(data + b"more") == unpack_address(data)


def test_unused_bytes_of_an_ipv4_address_are_ignored() -> None:
    assert unpack_address(V4_BYTES[:8] + b"\xff" * 20) == V4


@pytest.mark.parametrize("family", [0, 1, 0x0200, 0xFFFF])
def test_unknown_family(family: int) -> None:
    data = family.to_bytes(2, "little") + V4_BYTES[2:]
    with pytest.raises(RemoteProtocolError, match=f"family {family} "):
        unpack_address(memoryview(data))


@given(ipv4 | ipv6)
def test_round_trip(address: Address) -> None:
    assert unpack_address(pack_address(address)) == address


@given(ipv4)
def test_octets_agree_with_ipaddress(address: Address) -> None:
    packed = pack_address(address)
    assert packed[4:8] == ipaddress.IPv4Address(address.host).packed
    assert int.from_bytes(packed[2:4], "big") == address.port


@given(st.binary(min_size=ADDRESS_BYTES, max_size=ADDRESS_BYTES))
def test_any_bytes_give_an_address_or_our_error(data: bytes) -> None:
    try:
        address = unpack_address(data)
    except RemoteProtocolError:
        return
    assert unpack_address(pack_address(address)) == address


@pytest.mark.parametrize(
    "host",
    ["", "localhost", "1.2.3", "1.2.3.4.5", "1.2.3.256", "01.2.3.4", "+1.2.3.4", "1.2.3.4 ", ":::"],
)
def test_a_host_must_be_numeric(host: str) -> None:
    with pytest.raises(LocalProtocolError, match="not a numeric IP address"):
        pack_address(Address(host, 1))


def test_a_scope_belongs_in_scope_id() -> None:
    with pytest.raises(LocalProtocolError, match="scope_id"):
        pack_address(Address("fe80::1%lo", 1))


@pytest.mark.parametrize(
    "address",
    [
        Address("127.0.0.1", -1),
        Address("127.0.0.1", 65536),
        Address("::1", 65536),
        Address("::1", 1, flowinfo=2**32),
        Address("::1", 1, scope_id=-1),
    ],
)
def test_numbers_out_of_range(address: Address) -> None:
    with pytest.raises(LocalProtocolError):
        pack_address(address)


def test_text_and_family() -> None:
    assert str(Address("127.0.0.1", 80)) == "127.0.0.1:80"
    assert str(Address("::1", 80)) == "[::1]:80"
    assert not V4.is_ipv6
    assert V6.is_ipv6


def test_families_are_those_of_this_machine() -> None:
    assert int.from_bytes(V4_BYTES[:2], "little") == socket.AF_INET
    assert int.from_bytes(V6_BYTES[:2], "little") == socket.AF_INET6
