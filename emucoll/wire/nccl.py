"""NCCL's bootstrap messages: hellos, the framing, unique ids, check-ins and connect infos.

For ranks and roots of NCCL 2.18 to 2.32. Integers are little-endian and structs travel as they lie
in memory. Holds true: what is packed here unpacks to an equal value, and a message of another
length than its struct's is an error, so that a peer with another layout is noticed at once. Must
not know sockets, time or order: who sends what when is told in `emucoll.formation` and
`emucoll.servers`.
"""

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from emucoll.errors import LocalProtocolError, RemoteProtocolError, UsageError
from emucoll.wire.address import ADDRESS_BYTES, Address, Buffer, pack_address, unpack_address

HELLO_BYTES = 12
LENGTH_BYTES = 4
UNIQUE_ID_BYTES = 128
CONNECT_INFO_BYTES = 128
DEFAULT_COMM_MAGIC = 0x0280_0280_0280_0280
"""The magic of a communicator whose root is named by `NCCL_COMM_ID`; otherwise it is random."""

_HELLO = Struct("<Qi")
_LENGTH = Struct("<i")
_UNIQUE_ID = Struct("<Q28si88x")
_MAX_LENGTH = 2**31 - 1


# Hello ------------------------------------------------------------------------------------------


class SocketType(IntEnum):
    """What a connection is for (`enum ncclSocketType`)."""

    BOOTSTRAP = 1
    PROXY = 2
    NETSOCKET = 3
    NETIB = 4
    RAS = 5


class WrongMagic(RemoteProtocolError):
    """A peer's hello has another magic.

    It belongs to another communicator, or doesn't speak NCCL at all. NCCL drops such a connection
    and goes on accepting.
    """


class WrongSocketType(RemoteProtocolError):
    """A peer's hello has our magic but is for another purpose.

    NCCL drops such a connection and goes on accepting, in 2.30.7 and later; up to 2.30.4 the
    acceptor fails, and a root quits.
    """


def pack_hello(magic: int, kind: SocketType) -> bytes:
    """The 12 bytes that the connecting side sends first; no reply comes.

    `magic` is an unsigned 64-bit integer.
    """
    return _HELLO.pack(magic, kind)


def check_hello(data: Buffer, magic: int, kind: SocketType) -> None:
    """Check the 12 bytes that a newly accepted peer sent.

    Raises WrongMagic or WrongSocketType, with a text that says what came; RemoteProtocolError
    unless `data` has exactly 12 bytes.
    """
    if len(data) != HELLO_BYTES:
        raise RemoteProtocolError(f"a hello has {HELLO_BYTES} bytes, and {len(data)} came")
    came_magic, came_kind = _HELLO.unpack(data)
    if came_magic != magic:
        raise WrongMagic(_describe_magic(bytes(data), came_magic, magic))
    if came_kind != kind:
        raise WrongSocketType(
            f"a peer with the right magic connected for {_describe_kind(came_kind)} where "
            f"{_describe_kind(kind)} is served"
        )


_FOREIGN = (
    (("GET ", "HEAD", "POST", "PUT ", "OPTIONS"), "an HTTP request, perhaps a metrics scrape"),
    (("SSH-",), "an SSH client"),
)


def _describe_magic(hello: bytes, came: int, expected: int) -> str:
    start = hello[:8]
    if start[:2] == b"\x16\x03":
        return f"not an NCCL peer: {start!r} came, probably a TLS client"
    text = start.decode("ascii", "replace")
    if not all(c.isprintable() or c in "\r\n\t" for c in text) or "\ufffd" in text:
        return (
            f"magic {came:#018x} came instead of {expected:#018x}: "
            "a peer of another communicator, or a stray connection"
        )
    for prefixes, what in _FOREIGN:
        if text.startswith(prefixes):
            return f"not an NCCL peer: {start!r} came, probably {what}"
    return f"not an NCCL peer: the text {start!r} came instead of magic {expected:#018x}"


def _describe_kind(kind: int) -> str:
    try:
        return f"{SocketType(kind).name.lower()} ({kind})"
    except ValueError:
        return f"an unknown purpose ({kind})"


# Framing ----------------------------------------------------------------------------------------


def frame(payload: Buffer) -> bytes:
    """The payload with its length in bytes (a signed 32-bit integer) in front.

    An empty payload is its length alone. Raises LocalProtocolError if the payload is longer than
    2**31 - 1 bytes.
    """
    size = len(payload)
    if size > _MAX_LENGTH:
        raise LocalProtocolError(f"a frame holds at most {_MAX_LENGTH} bytes, not {size}")
    return _LENGTH.pack(size) + payload


def unpack_length(data: Buffer, limit: int) -> int:
    """How many payload bytes follow the 4 bytes in `data`: 0..limit.

    Raises RemoteProtocolError on a negative length or one above `limit`, as NCCL does ("Message
    truncated"), and unless `data` has exactly 4 bytes.
    """
    if len(data) != LENGTH_BYTES:
        raise RemoteProtocolError(f"a length has {LENGTH_BYTES} bytes, and {len(data)} came")
    (size,) = _LENGTH.unpack(data)
    if not 0 <= size <= limit:
        raise RemoteProtocolError(
            f"a frame of {size} bytes was announced where 0..{limit} are allowed"
        )
    return int(size)


def _require(what: str, data: Buffer, size: int) -> None:
    if len(data) != size:
        raise RemoteProtocolError(f"{what} has {size} bytes, and {len(data)} came")


# Unique id --------------------------------------------------------------------------------------


class UniqueId(NamedTuple):
    """What `ncclGetUniqueId` returns (`struct ncclBootstrapHandle`, zero-padded to 128 bytes).

    `magic` is sent in every hello of the communicator, `root` is where the root listens, and
    `nranks` (since 2.29) is the size of the communicator that grows, 0 in an ordinary
    initialization.
    """

    magic: int
    root: Address
    nranks: int = 0

    def pack(self) -> bytes:
        """The 128 bytes. Releases before 2.29 ignore the field of `nranks`; leave it 0 for them."""
        return _UNIQUE_ID.pack(self.magic, pack_address(self.root), self.nranks)

    @staticmethod
    def unpack(data: Buffer) -> "UniqueId":
        """The id in exactly 128 bytes, whose padding is not looked at.

        Raises RemoteProtocolError on another size or an unusable address.
        """
        _require("a unique id", data, UNIQUE_ID_BYTES)
        magic, root, nranks = _UNIQUE_ID.unpack(data)
        return UniqueId(magic, unpack_address(root), nranks)


def unpack_unique_ids(data: Buffer) -> tuple[UniqueId, ...]:
    """The ids of several roots, 128 bytes each, one after another.

    Raises RemoteProtocolError on a remainder or an unusable address.
    """
    view = memoryview(data)
    starts = range(0, len(data), UNIQUE_ID_BYTES)
    return tuple(UniqueId.unpack(view[start : start + UNIQUE_ID_BYTES]) for start in starts)


# Check-in and connect info ----------------------------------------------------------------------


class CheckIn(NamedTuple):
    """What a rank tells a root (`struct extInfo`): who it is, and where to reach it.

    `offset` is 0 unless a communicator grows. `reply` is the listener on which the rank awaits
    the root's answer, `ring` the one on which it awaits its predecessor.
    """

    rank: int
    nranks: int
    iroot: int
    nroots: int
    offset: int
    reply: Address
    ring: Address


@dataclass(frozen=True, slots=True)
class CheckInLayout:
    """How a check-in and the root's answer lie in memory; one of `CHECK_IN_2_18`, `CHECK_IN_2_23`
    and `CHECK_IN_2_29`.
    """

    since: str
    """The first NCCL version with this layout, as far as emucoll goes back."""
    head: Struct
    """The integers that precede the two addresses: the first few of a CheckIn."""
    connect_info_bytes: int
    """Of the ring listener's address, in the check-in as in the root's answer; zero-padded."""
    collects: bool
    """Does the root of these releases answer nobody before everybody has checked in?"""

    @property
    def size(self) -> int:
        """Bytes of a check-in, the framing excluded."""
        return self.head.size + ADDRESS_BYTES + self.connect_info_bytes

    @property
    def has_roots(self) -> bool:
        """Can a rank say to which of several roots it belongs?"""
        return self._numbers >= 4

    @property
    def has_offset(self) -> bool:
        """Can a communicator grow?"""
        return self._numbers >= 5

    @property
    def _numbers(self) -> int:
        return self.head.size // 4

    def pack(self, c: CheckIn) -> bytes:
        """The bytes of a check-in, `size` of them.

        Raises LocalProtocolError if `c` has an offset or several roots and the layout no room for
        that.
        """
        if c[self._numbers : 5] != _UNSAID[self._numbers :]:
            what = "no offset" if self.has_roots else "neither roots nor offset"
            raise LocalProtocolError(
                f"the check-in of NCCL {self.since} has {what}: this is for root {c.iroot} of "
                f"{c.nroots}, offset {c.offset}"
            )
        head = self.head.pack(*c[: self._numbers])
        return head + pack_address(c.reply) + self.pack_connect_info(c.ring)

    def unpack(self, data: Buffer) -> CheckIn:
        """The check-in in exactly `size` bytes.

        Raises RemoteProtocolError on another size, or if one of the addresses is unusable.
        """
        if len(data) != self.size:
            raise RemoteProtocolError(self._describe_size(len(data)))
        said = self.head.unpack_from(data)
        rank, nranks, iroot, nroots, offset = said + _UNSAID[self._numbers :]
        view = memoryview(data)
        start = self.head.size
        reply = unpack_address(view[start : start + ADDRESS_BYTES])
        ring = self.unpack_connect_info(view[start + ADDRESS_BYTES :])
        return CheckIn(rank, nranks, iroot, nroots, offset, reply, ring)

    def pack_connect_info(self, a: Address) -> bytes:
        """What the root answers: the address of a ring listener, zero-padded (`union
        ringConnectInfo`; the bare address before 2.23).
        """
        return pack_address(a).ljust(self.connect_info_bytes, b"\0")

    def unpack_connect_info(self, data: Buffer) -> Address:
        """The address in exactly `connect_info_bytes` bytes, whose padding is not looked at.

        Raises RemoteProtocolError on another size or an unusable address.
        """
        _require("a connect info", data, self.connect_info_bytes)
        return unpack_address(data)

    def _describe_size(self, came: int) -> str:
        text = f"a check-in of NCCL {self.since} has {self.size} bytes, and {came} came"
        for other in _LAYOUTS:
            if came == other.size:
                peer = "older than 2.23" if other.collects else f"{other.since} or later"
                return f"{text}: the peer's NCCL is {peer}, with another layout"
        return text


_UNSAID = (0, 0, 0, 1, 0)
"""What a check-in means by an integer that its layout lacks: root 0 of 1, no offset. Rank and
nranks are never lacking.
"""

CHECK_IN_2_29 = CheckInLayout("2.29", Struct("<5i"), CONNECT_INFO_BYTES, collects=False)
"""176 bytes: 2.29.2 and later."""
CHECK_IN_2_23 = CheckInLayout("2.23", Struct("<4i"), CONNECT_INFO_BYTES, collects=False)
"""172 bytes: 2.23.4 to 2.28.9."""
CHECK_IN_2_18 = CheckInLayout("2.18", Struct("<2i"), ADDRESS_BYTES, collects=True)
"""64 bytes: 2.22.3 and before."""

_LAYOUTS = (CHECK_IN_2_29, CHECK_IN_2_23, CHECK_IN_2_18)


def version_text(version_code: int) -> str:
    """`ncclGetVersion`'s number as people write it.

    22809 is "2.28.9"; 2708, numbered as before 2.9, is "2.7.8".
    """
    thousand = 10_000 if version_code >= 10_000 else 1_000
    major, rest = divmod(version_code, thousand)
    return f"{major}.{rest // 100}.{rest % 100}"


def layout_for(version_code: int) -> CheckInLayout:
    """The check-in layout of an NCCL release, given `ncclGetVersion`'s number (22304 is 2.23.4).

    Raises UsageError before 2.18. Source: `struct extInfo` of 2.18.3, 2.22.3, 2.23.4, 2.28.9,
    2.29.2 and 2.30.7.
    """
    if version_code >= 22_900:
        return CHECK_IN_2_29
    if version_code >= 22_300:
        return CHECK_IN_2_23
    if version_code >= 21_800:
        return CHECK_IN_2_18
    raise UsageError(
        f"this is NCCL {version_text(version_code)}, whose bootstrap emucoll doesn't know. Use "
        "NCCL 2.18 or later"
    )


def layout_of_size(size: int) -> CheckInLayout:
    """The check-in layout of `size` bytes (64, 172 or 176)."""
    return next(layout for layout in _LAYOUTS if layout.size == size)


# Several roots ----------------------------------------------------------------------------------


def root_ranks(nranks: int, nroots: int, iroot: int) -> range:
    """The contiguous ranks that root `iroot` of `nroots` owns.

    The first nranks % nroots roots own one more than the others. A rank's local id is its index
    in this range. Raises LocalProtocolError unless 1 <= nroots <= nranks and 0 <= iroot < nroots.
    Source: `firstRankFromRoot` and `nRankFromRoot`, NCCL 2.23 on.
    """
    _check_roots(nranks, nroots)
    if not 0 <= iroot < nroots:
        raise LocalProtocolError(f"root {iroot} is not one of {nroots}")
    each, longer = divmod(nranks, nroots)
    first = iroot * each + min(iroot, longer)
    return range(first, first + each + (iroot < longer))


def root_of(rank: int, nranks: int, nroots: int) -> int:
    """The root that owns a rank.

    Raises LocalProtocolError for a rank or a number of roots that cannot be.
    """
    _check_roots(nranks, nroots)
    if not 0 <= rank < nranks:
        raise LocalProtocolError(f"rank {rank} is not one of {nranks}")
    each, longer = divmod(nranks, nroots)
    in_longer = longer * (each + 1)
    if rank < in_longer:
        return rank // (each + 1)
    return longer + (rank - in_longer) // each


def check_in_with_previous_root(c: CheckIn) -> CheckIn | None:
    """What the first rank of a root tells the previous root as well; None if it tells nothing.

    There the rank poses as the one after that root's last, rank 0 as rank `nranks`: this is how
    the ring is closed from one root's ranks to the next root's. Source: `bootstrapInit`, NCCL
    2.23 on.
    """
    if c.nroots == 1 or c.rank != root_ranks(c.nranks, c.nroots, c.iroot).start:
        return None
    previous = (c.iroot - 1) % c.nroots
    return c._replace(rank=root_ranks(c.nranks, c.nroots, previous).stop, iroot=previous)


def _check_roots(nranks: int, nroots: int) -> None:
    if not 1 <= nroots <= nranks:
        raise LocalProtocolError(f"{nroots} roots for {nranks} ranks: there must be 1 to {nranks}")
