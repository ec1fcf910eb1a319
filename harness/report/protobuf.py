"""The wire format of Protocol Buffers, as far as a writer needs it: fields that are numbers, texts
and messages, as bytes to be put one after another.

Knows no message and reads nothing. Of our own, since the library that has Perfetto's messages wants
a protobuf newer than many an environment with PyTorch has; the tests read by it what this writes.

Source: protobuf.dev/programming-guides/encoding.
"""

import struct

_VARINT, _FIXED64, _LENGTH = 0, 1, 2


def varint(value: int) -> bytes:
    """A number in groups of seven bits, the lowest first; a negative one as the 64 bits it has."""
    rest = value & 0xFFFF_FFFF_FFFF_FFFF
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    out.append(rest)
    return bytes(out)


def number(field: int, value: int) -> bytes:
    """A field of type int32, int64, uint32, uint64, bool or enum."""
    return varint(field << 3 | _VARINT) + varint(value)


def double(field: int, value: float) -> bytes:
    """A field of type double."""
    return varint(field << 3 | _FIXED64) + struct.pack("<d", value)


def text(field: int, value: str) -> bytes:
    """A field of type string; what UTF-8 cannot hold is spelt out."""
    return message(field, value.encode(errors="backslashreplace"))


def message(field: int, *parts: bytes) -> bytes:
    """A field of type bytes, or a message with these fields."""
    content = b"".join(parts)
    return varint(field << 3 | _LENGTH) + varint(len(content)) + content
