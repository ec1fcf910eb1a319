"""A socket address as NCCL puts it on the wire.

28 raw bytes, a C union of `sockaddr_in` and `sockaddr_in6`. Holds true: bytes in, values out and
back; what is packed here unpacks to an equal `Address` (IPv6 hosts in the canonical spelling of
`ipaddress`). IPv4 costs well under a microsecond each way, because every rank of a 100,000-rank
ring packs and unpacks some. Must not know sockets: nothing here resolves a name or asks the
kernel.
"""

import ipaddress
from struct import Struct
from struct import error as StructError
from typing import NamedTuple, TypeAlias

from emucoll.errors import LocalProtocolError, RemoteProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview

ADDRESS_BYTES = 28

# The family is little-endian (host order) while the port is big-endian. Both are read as
# big-endian, so that one Struct does; the family constants are byte-swapped instead.
_AF_INET = 2 << 8
_AF_INET6 = 10 << 8
_IPV4 = Struct(">HH4B20x")
_IPV4_HEAD = Struct(">HH4B")
# `sin6_flowinfo` is in network order on Linux and `sin6_scope_id` in host order.
_IPV6 = Struct(">HHI16s4s")
_SCOPE = Struct("<I")

# Only the canonical spelling of an octet is a key: no sign, no blank, no leading zero.
_OCTETS = {str(octet): octet for octet in range(256)}


class Address(NamedTuple):
    """An IP address and a TCP port; `host` is always numeric, and without a `%scope` suffix.

    `flowinfo` and `scope_id` matter for IPv6 only, and are the numbers that Python's `socket`
    module uses in its four-element address tuples.
    """

    host: str
    port: int
    flowinfo: int = 0
    scope_id: int = 0

    @property
    def is_ipv6(self) -> bool:
        """Whether `host` is an IPv6 address."""
        return ":" in self.host

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def pack_address(a: Address) -> bytes:
    """The 28 bytes of an address, unused ones zero.

    Raises LocalProtocolError for a host that is not numeric, or a port, flow label or scope out
    of range. Source: `union ncclSocketAddress`, NCCL 2.22 to 2.32.
    """
    host = a[0]
    if ":" in host:
        return _pack_ipv6(a)
    try:
        first, second, third, fourth = host.split(".")
        port = a[1]
        return _IPV4.pack(
            _AF_INET, port, _OCTETS[first], _OCTETS[second], _OCTETS[third], _OCTETS[fourth]
        )
    except (ValueError, KeyError):
        raise LocalProtocolError(f"host {host!r} is not a numeric IP address") from None
    except StructError as error:
        raise LocalProtocolError(f"port {a.port} of {host} is not in 0..65535") from error


def _pack_ipv6(a: Address) -> bytes:
    if "%" in a.host:
        raise LocalProtocolError(f"host {a.host!r}: give the scope as scope_id, not after a %")
    try:
        packed = ipaddress.IPv6Address(a.host).packed
    except ValueError:
        raise LocalProtocolError(f"host {a.host!r} is not a numeric IP address") from None
    try:
        return _IPV6.pack(_AF_INET6, a.port, a.flowinfo, packed, _SCOPE.pack(a.scope_id))
    except StructError as error:
        raise LocalProtocolError(
            f"port {a.port}, flowinfo {a.flowinfo} or scope_id {a.scope_id} of {a.host} "
            "is out of range"
        ) from error


def unpack_address(data: Buffer) -> Address:
    """The address in the first 28 bytes of `data`; what follows them is the caller's.

    Bytes that the family does not use are not looked at: NCCL sends a C union as it lies in
    memory. Raises RemoteProtocolError on fewer than 28 bytes, or on a family that is neither IPv4
    (2) nor IPv6 (10).
    """
    if len(data) < ADDRESS_BYTES:
        raise RemoteProtocolError(f"an address has {ADDRESS_BYTES} bytes, and {len(data)} came")
    family, port, first, second, third, fourth = _IPV4_HEAD.unpack_from(data)
    if family == _AF_INET:
        return Address(f"{first}.{second}.{third}.{fourth}", port)
    if family == _AF_INET6:
        return _unpack_ipv6(data)
    number = int.from_bytes(data[:2], "little")
    raise RemoteProtocolError(f"an address of family {number} came: not IPv4 (2) and not IPv6 (10)")


def _unpack_ipv6(data: Buffer) -> Address:
    _, port, flowinfo, packed, scope = _IPV6.unpack_from(data)
    (scope_id,) = _SCOPE.unpack(scope)
    return Address(str(ipaddress.IPv6Address(packed)), port, flowinfo, scope_id)
