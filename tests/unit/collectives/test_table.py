"""Records, and the table against which they are verified, against a naive model."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.collectives.table import RecordTable, WrongBlocks, derived_records
from emucoll.wrong import Wrong


def records(n: int, record_bytes: int, seed: int = 5, call: int = 0) -> list[bytes]:
    rows = derived_records(np.arange(n, dtype=np.int64), seed, call, record_bytes)
    return [row.tobytes() for row in rows]


# Records ----------------------------------------------------------------------------------------


def test_a_record_is_splitmix64_of_seed_call_rank_and_word() -> None:
    """By hand, in plain integers."""
    mask, golden = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(x: int) -> int:
        x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & mask
        x = (x ^ x >> 27) * 0x94D049BB133111EB & mask
        return x ^ x >> 31

    def record(seed: int, call: int, rank: int, words: int) -> bytes:
        key = mix((seed + golden * (call + 1)) & mask)
        stream = mix((rank + key) & mask)
        return b"".join(
            mix((stream + golden * word) & mask).to_bytes(8, "little")
            for word in range(1, words + 1)
        )

    for seed, call in [(0, 0), (1, 0), (1, 1), (2**63 - 1, 7)]:
        expected = [record(seed, call, rank, 2)[:13] for rank in range(4)]
        assert records(4, 13, seed, call) == expected


def test_every_record_is_another() -> None:
    seen = {
        record
        for seed in range(4)
        for call in range(4)
        for record in records(64, 12, seed=seed, call=call)
    }
    assert len(seen) == 4 * 4 * 64


@given(st.integers(0, 100), st.integers(0, 100))
def test_a_shorter_record_is_the_start_of_a_longer_one(short: int, more: int) -> None:
    for one, other in zip(records(3, short), records(3, short + more), strict=True):
        assert other.startswith(one)


# The table --------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(0, 20))
def test_a_table_holds_every_record(n: int, record_bytes: int) -> None:
    expected = records(n, record_bytes)
    table = RecordTable.derived(n, record_bytes, 5, 0, range(n), (n - 1, 0))
    assert [table.record(block) for block in range(n)] == expected
    assert all(type(table.record(block)) is bytes for block in range(n))
    assert table.n == n


@given(st.integers(1, 40), st.integers(0, 5), st.integers(0, 5), st.integers(0, 45))
def test_what_is_laid_over_the_records(n: int, at: int, width: int, above: int) -> None:
    expected = [bytearray(record) for record in records(n, 10)]
    columns = np.arange(n * width, dtype=np.uint8).reshape(n, width)
    for record, column in zip(expected, columns, strict=True):
        record[at : at + width] = column.tobytes()
    table = RecordTable.derived(n, 10, 5, 0, range(1), (0, above))
    table.lay_over(columns, at)
    for block in range(min(n, above + 1)):
        assert table.holds(block, bytes(expected[block]))


def test_a_table_larger_than_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = RecordTable.derived(50, 24, 5, 0, range(50), (49, 0))
    monkeypatch.setattr("emucoll.collectives.table._CHUNK_BYTES", 100)
    pieces = RecordTable.derived(50, 24, 5, 0, range(50), (49, 0))
    assert all(whole.record(block) == pieces.record(block) for block in range(50))


@given(st.data())
def test_a_limited_table_holds_what_its_ranks_can_meet(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 30), "n")
    first = data.draw(st.integers(0, n - 1), "first")
    ranks = range(first, data.draw(st.integers(first + 1, n), "stop"))
    below = data.draw(st.integers(0, n - 1), "below")
    above = data.draw(st.integers(0, n - 1), "above")
    table = RecordTable.derived(n, 7, 5, 0, ranks, (below, above))
    expected = records(n, 7)
    for rank in ranks:
        for block in range(rank - below, rank + above + 1):
            assert table.record(block % n) == expected[block % n]
        stream = b"".join(expected[(rank - 1 - step) % n] for step in range(below))
        assert table.matches(table.stream((rank - 1) % n), stream)
    assert len(table._rows) == 7 * min(n, len(ranks) + below + above)


@given(st.data())
def test_matches_and_differences_are_those_of_a_naive_comparison(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 12), "n")
    size = data.draw(st.integers(1, 9), "record_bytes")
    table = RecordTable.derived(n, size, 5, 0, range(n), (n - 1, 0))
    block = data.draw(st.integers(0, n - 1), "block")
    offset = data.draw(st.integers(0, 3 * n * size), "bytes into the stream")
    length = data.draw(st.integers(0, 2 * n * size), "bytes")
    expected = records(n, size)
    stream = b"".join(expected[(block - step) % n] for step in range(6 * n))
    came = bytearray(stream[offset : offset + length])
    for at in data.draw(st.lists(st.integers(0, max(0, length - 1)), max_size=4), "flips"):
        if length:
            came[at] ^= data.draw(st.integers(1, 255))
    wrong = [
        (block - (offset + at) // size) % n
        for at in range(length)
        if came[at] != stream[offset + at]
    ]
    position = table.stream(block) + offset
    kind = data.draw(st.sampled_from([bytes, bytearray, memoryview]), "kind")
    assert table.matches(position, kind(came)) is not bool(wrong)
    told = list(table.differences(position, kind(came)))
    assert set(told) == set(wrong)
    pieces = [(offset + at) // size for at in range(length) if came[at] != stream[offset + at]]
    assert len(told) == len(set(pieces)), "each wrong block once, in the order of the stream"
    assert told == [(block - piece) % n for piece in sorted(set(pieces))]


def test_wrong_blocks_are_counted_all_and_named_some() -> None:
    wrong = WrongBlocks()
    for rank in range(100):
        wrong.add(Wrong(rank, 1, "differs", rank - 1, 0))
    assert wrong.count == 100
    assert [named.rank for named in wrong.named] == list(range(WrongBlocks.NAMED))
