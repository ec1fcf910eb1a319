"""One flipped byte: how many blocks it spoils follows from the ring, and the first is named."""

import pytest

from tests.cli.command import Commands


@pytest.mark.parametrize(
    ("allgather", "n", "rank", "what", "wrong", "first"),
    [
        ("ring", 9, 3, "first", 8, (4, 3)),
        ("ring", 9, 3, "forwarded", 7, (4, 2)),
        ("ring", 9, 3, "last", 1, (4, 5)),
        pytest.param("ring", 2, 1, "last", 1, (0, 1), marks=pytest.mark.broad),
        ("ring-pipelined", 9, 3, "first", 8, (4, 3)),
        ("ring-pipelined", 9, 3, "forwarded", 7, (4, 2)),
        ("ring-pipelined", 9, 3, "last", 1, (4, 5)),
        pytest.param("ring-pipelined", 2, 1, "first", 1, (0, 1), marks=pytest.mark.broad),
        pytest.param("ring-pipelined", 3, 2, "forwarded", 1, (0, 1), marks=pytest.mark.broad),
        ("ring-bidir", 9, 3, "first", 4, (4, 3)),
        ("ring-bidir", 8, 3, "forwarded", 3, (4, 2)),
        ("ring-bidir", 9, 3, "last", 1, (4, 0)),
        ("ring-bidir-headerless", 8, 3, "first", 4, (4, 3)),
        ("ring-bidir-headerless", 9, 3, "forwarded", 3, (4, 2)),
        ("ring-bidir-headerless", 9, 3, "last", 1, (4, 0)),
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
    right itself, and last that of r + 2, which rank r + 1 sends to nobody; both ways, half as many
    ranks get it. `first`: rank and block.
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


@pytest.mark.parametrize(
    ("what", "wrong", "at", "block", "step"),
    [("first", {2, 0, 5, 7}, 2, 3, 0), ("forwarded", {1, 6}, 1, 4, 1), ("last", {4}, 4, 3, 3)],
)
def test_a_flipped_byte_goes_the_way_of_dissemination(
    emucoll: Commands, what: str, wrong: set[int], at: int, block: int, step: int
) -> None:
    """Rank 3 of 9 sends block 3 to rank 2, which passes it to 0 and 7, and 0 to 5; then block 4
    before it to rank 1, which sends 1 to 4 to rank 6: there it is wrong as well; last its own again
    to rank 3 - 8.
    """
    inject = ("--inject", f"rank=3:corrupt={what}", "--record-bytes", 120)
    ended = emucoll("run", "-np", 9, "--allgather", "bruck", "--workers", 2, *inject, "--json")
    named = ended.document["wrong_blocks"]
    assert {each["rank"] for each in named} == wrong
    assert (ended.exit_code, ended.document["wrong"]) == (1, len(wrong))
    assert [each["wrong"] for each in ended.document["allgathers"]] == [0, len(wrong)]
    first = {"rank": at, "block": block, "peer": 3, "step": step, "phase": "bootstrap.allgather"}
    assert first.items() <= named[0].items()
    assert (ended.error["rank"], ended.error["peer"]) == (at, 3)
    assert ended.error["phase"] == "bootstrap.allgather"


def test_a_flipped_header_is_one_wrong_block(emucoll: Commands) -> None:
    for size, allgather in ((28, "ring"), (0, "ring"), (28, "ring-bidir"), (0, "ring-bidir")):
        flags = ("-np", 5, "--allgather", allgather, "--record-bytes", size)
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
