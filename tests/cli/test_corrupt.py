"""One flipped byte: how many blocks it spoils follows from the ring, and the first is named."""

import pytest

from tests.cli.command import Commands


@pytest.mark.parametrize(
    ("allgather", "n", "rank", "what", "wrong", "first"),
    [
        ("ring", 9, 3, "first", 8, (4, 3)),
        ("ring", 9, 3, "forwarded", 7, (4, 2)),
        ("ring", 9, 3, "last", 1, (4, 5)),
        ("ring", 2, 1, "last", 1, (0, 1)),
        ("ring-pipelined", 9, 3, "first", 8, (4, 3)),
        ("ring-pipelined", 9, 3, "forwarded", 7, (4, 2)),
        ("ring-pipelined", 9, 3, "last", 1, (4, 5)),
        ("ring-pipelined", 2, 1, "first", 1, (0, 1)),
        ("ring-pipelined", 3, 2, "forwarded", 1, (0, 1)),
    ],
)
def test_a_flipped_byte_is_found_wherever_it_goes(
    emucoll: Commands,
    allgather: str,
    n: int,
    rank: int,
    what: str,
    wrong: int,
    first: tuple[int, int],
) -> None:
    """Rank r first sends its own block, which n - 1 ranks get, then that of r - 1, which it got
    right itself, and last that of r + 2, which rank r + 1 sends to nobody. `first`: rank and block.
    """
    inject = ("--inject", f"rank={rank}:corrupt={what}")
    ended = emucoll("run", "-np", n, "--allgather", allgather, "--workers", 2, *inject, "--json")
    document, error = ended.document, ended.error
    assert (ended.exit_code, document["wrong"]) == (1, wrong)
    assert document["allgathers"][0]["wrong"] == wrong
    at, block = first
    assert (document["wrong_blocks"][0]["rank"], document["wrong_blocks"][0]["block"]) == first
    assert f"block {block} at rank {at}" in error["what"]
    assert (error["rank"], error["peer"], error["phase"]) == (at, rank, "bootstrap.ring")
    assert error["worker"] == (0 if at < -(-n // 2) else 1)


def test_a_flipped_header_is_one_wrong_block(emucoll: Commands) -> None:
    for size in (28, 0):
        flags = ("-np", 5, "--allgather", "ring", "--record-bytes", size)
        ended = emucoll("run", *flags, "--inject", "rank=4:corrupt=header", "--json")
        assert (ended.exit_code, ended.document["wrong"]) == (1, 1)
        assert ended.error["what"] == "1 block arrived wrong, first block 4 at rank 0"
        assert f"announced instead of {size}" in ended.error["evidence"]


@pytest.mark.parametrize("rank", [31, 32])
def test_at_a_workers_edge(emucoll: Commands, rank: int) -> None:
    """Its last and its first rank: the byte crosses to the other worker, or it does not."""
    inject = ("--inject", f"rank={rank}:corrupt=last", "--inject", f"rank={rank}:corrupt=first")
    ended = emucoll("run", "-np", 64, "--workers", 2, *inject, "--record-bytes", 120, "--json")
    assert (ended.exit_code, ended.document["wrong"]) == (1, 63 + 1)
    assert (ended.error["rank"], ended.error["peer"], ended.error["worker"]) == (rank + 1, rank, 1)
    assert len(ended.document["wrong_blocks"]) == 16


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["-np", "4", "--inject", "rank=1:corrupt=header"], "without a header"),
        (["-np", "1", "--inject", "rank=0:corrupt=first"], "1 rank sends no block"),
        (["-np", "2", "--inject", "rank=0:corrupt=forwarded"], "no block is forwarded"),
        (["-np", "4", "--inject", "rank=0:corrupt=last", "--record-bytes", "0"], "no byte to flip"),
    ],
)
def test_where_there_is_nothing_to_corrupt(emucoll: Commands, flags: list[str], says: str) -> None:
    refused = emucoll("run", *flags, "--json")
    assert (refused.exit_code, refused.document["wrong"]) == (2, None)
    assert says in refused.error["what"]


def test_the_table_names_them_too(emucoll: Commands) -> None:
    ended = emucoll("run", "-np", 4, "--inject", "rank=1:corrupt=first")
    assert ended.exit_code == 1
    assert "# WRONG rank 2, block 1:" in ended.out.decode()
    assert "# FAILED: 3 blocks arrived wrong, first block 1 at rank 2" in ended.out.decode()
