"""Records and the table against which every received byte is verified.

A record derives from (seed, call, rank), so that any process can make any rank's. One table per
process holds the expected record of every rank (or only of those that the first rounds can bring);
every rank of that process compares what it receives with it, so that memory grows with n, not with
n squared. Pure: no clock, no socket.

The table lies in the order in which a ring delivers blocks, by descending rank, so that a run of
blocks is one slice.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from emucoll.wire.address import Buffer
from emucoll.wrong import Wrong

_CHUNK_BYTES = 256 * 1024
"""Records made at once: the table itself is the only large buffer."""
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def derived_records(
    ranks: npt.NDArray[np.int64], seed: int, call: int, record_bytes: int
) -> npt.NDArray[np.uint8]:
    """The records of `ranks` as rows of `record_bytes` bytes: SplitMix64 of (seed, call, rank,
    word).
    """
    words = -(-record_bytes // 8)
    key = _mix(np.uint64((seed + int(_GOLDEN) * (call + 1)) % 2**64))
    stream = _mix(ranks.astype(np.uint64) + key)[:, None]
    counter = np.arange(1, words + 1, dtype=np.uint64) * _GOLDEN
    return _mix(stream + counter).view(np.uint8).reshape(len(ranks), -1)[:, :record_bytes]


def _mix(x: npt.NDArray[np.uint64] | np.uint64) -> npt.NDArray[np.uint64]:
    with np.errstate(over="ignore"):
        z = np.asarray(x, dtype=np.uint64)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        result: npt.NDArray[np.uint64] = z ^ (z >> np.uint64(31))
        return result


@dataclass(slots=True)
class WrongBlocks:
    """Blocks that differ from their record, over all ranks of a process; some by name."""

    count: int = 0
    named: list[Wrong] = field(default_factory=list)
    """At most NAMED of them."""

    NAMED = 16

    def add(self, wrong: Wrong) -> None:
        """One more."""
        self.count += 1
        if len(self.named) < self.NAMED:
            self.named.append(wrong)


class RecordTable:
    """The expected record of every rank, by descending rank."""

    def __init__(
        self, n: int, record_bytes: int, rows: bytearray, first: int | None = None
    ) -> None:
        """`rows`: the records of ranks `first`, `first` - 1, ... (mod n); `first` is n - 1 unless
        given.
        """
        self.n = n
        self.record_bytes = record_bytes
        self._first = n - 1 if first is None else first
        self._rows = rows
        self._view = memoryview(rows).toreadonly()
        self.unknown: set[int] = set()
        """Ranks whose record nobody knows before it has come: the first that comes is it."""
        self.learned: dict[int, bytes] = {}

    @classmethod
    def derived(
        cls,
        n: int,
        record_bytes: int,
        seed: int,
        call: int,
        ranks: range,
        reach: tuple[int, int],
    ) -> "RecordTable":
        """What `ranks` can meet in a schedule that brings them blocks from so far below and above
        their own (`Schedule.reach`).
        """
        below, above = reach
        count = min(n, len(ranks) + below + above)
        first = (ranks.stop - 1 + above) % n if count < n else n - 1
        step = max(1, _CHUNK_BYTES // max(1, record_bytes))
        rows = bytearray(count * record_bytes)
        table = np.frombuffer(rows, dtype=np.uint8).reshape(count, record_bytes)
        for start in range(0, count, step):
            stop = min(count, start + step)
            ranks_here = (first - np.arange(start, stop, dtype=np.int64)) % n
            table[start:stop] = derived_records(ranks_here, seed, call, record_bytes)
        return cls(n, record_bytes, rows, first)

    def lay_over(self, columns: npt.NDArray[np.uint8], at: int) -> None:
        """Put bytes of every record in place, from byte `at` on: row r of `columns` is rank r's."""
        table = np.frombuffer(self._rows, dtype=np.uint8).reshape(-1, self.record_bytes)
        ranks = (self._first - np.arange(len(table), dtype=np.int64)) % self.n
        table[:, at : at + columns.shape[1]] = columns[ranks]

    def put(self, rank: int, at: int, data: bytes) -> None:
        """Bytes of one record, from its byte `at` on."""
        start = ((self._first - rank) % self.n) * self.record_bytes + at
        self._rows[start : start + len(data)] = data

    def record(self, block: int) -> bytes:
        """The record of rank `block`."""
        start = ((self._first - block) % self.n) * self.record_bytes
        return bytes(self._view[start : start + self.record_bytes])

    def holds(self, block: int, data: Buffer) -> bool:
        """Is `data` the record of rank `block`?"""
        start = ((self._first - block) % self.n) * self.record_bytes
        return len(data) == self.record_bytes and self._rows.startswith(data, start)

    def learn(self, block: int, data: Buffer) -> bool:
        """Take `data` for the record of rank `block`, if nobody knows that yet."""
        if block not in self.unknown or len(data) != self.record_bytes:
            return False
        self.unknown.remove(block)
        self.learned[block] = bytes(data)
        start = self.stream(block)
        self._rows[start : start + self.record_bytes] = data
        return True

    def stream(self, block: int) -> int:
        """Where the stream of blocks `block`, `block` - 1, ... (mod n) starts, for `matches`."""
        return ((self._first - block) % self.n) * self.record_bytes

    def piece(self, at: int, limit: int) -> bytes:
        """1 to `limit` bytes of the stream from position `at` on, up to the table's end."""
        at %= len(self._rows)
        return bytes(self._view[at : at + limit])

    def matches(self, at: int, data: Buffer) -> bool:
        """Is `data` what stands at stream position `at`, wrapping round at the table's end?"""
        size = len(self._rows)
        if at >= size:
            at %= size
        end = at + len(data)
        if end <= size:
            return self._rows.startswith(data, at)
        view = memoryview(data)
        while at + len(view) > size:
            if not self._rows.startswith(view[: size - at], at):
                return False
            view = view[size - at :]
            at = 0
        return self._rows.startswith(view, at)

    def differences(self, at: int, data: Buffer) -> Iterator[int]:
        """The blocks, in stream order, in which `data` at stream position `at` differs."""
        start, size = 0, self.record_bytes
        while start < len(data):
            take = min(size - (at + start) % size, len(data) - start)
            if not self.matches(at + start, memoryview(data)[start : start + take]):
                yield (self._first - (at + start) // size) % self.n
            start += take
