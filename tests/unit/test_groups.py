"""Process groups: who is with whom, and what cannot be."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.errors import UsageError
from harness.groups import Grid, check_groups, format_groups, parse_groups


def test_the_first_dimension_varies_fastest() -> None:
    """tp 2, pp 3, dp 2: rank = tp + 2 × (pp + 3 × dp)."""
    tp, pp, dp = parse_groups("tp=2,pp=3,dp=2")
    assert [list(tp.members(index)) for index in range(tp.count)] == [
        [0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]
    ]  # fmt: skip
    assert [list(pp.members(index)) for index in range(pp.count)] == [
        [0, 2, 4], [1, 3, 5], [6, 8, 10], [7, 9, 11]
    ]  # fmt: skip
    assert [list(dp.members(index)) for index in range(dp.count)] == [
        [0, 6], [1, 7], [2, 8], [3, 9], [4, 10], [5, 11]
    ]  # fmt: skip
    assert format_groups((tp, pp, dp)) == "tp=2,pp=3,dp=2"


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_every_rank_has_one_place_in_every_kind(sizes: list[int]) -> None:
    kinds = parse_groups(",".join(f"d{index}={size}" for index, size in enumerate(sizes)))
    nranks = kinds[0].size * kinds[0].count
    check_groups(kinds, nranks)
    for kind in kinds:
        assert isinstance(kind, Grid)
        seen = [rank for index in range(kind.count) for rank in kind.members(index)]
        assert sorted(seen) == list(range(nranks))
        for rank, place in kind.places(range(nranks)).items():
            assert (
                kind.members(place.group)[place.position] == rank == place.members[place.position]
            )


def test_lists_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "groups.json"
    path.write_text('{"tp": [[3, 1], [0, 2]], "ep": [[1, 2, 4]]}')
    tp, ep = parse_groups(str(path))
    check_groups((tp, ep), 5)
    assert (tp.count, tp.size, ep.count, ep.size) == (2, 2, 1, 3)
    places = tp.places(range(5))
    assert (places[3].group, places[3].position) == (0, 0)
    assert 4 not in places
    assert format_groups((tp, ep)) == "tp:2 groups,ep:1 groups"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("tp=2,tp=3", "named twice"),
        ("tp=0,pp=3", "sizes are 1 and more"),
        ("tp=2,pp=", "expected NAME=SIZE"),
        ("tp:2", "neither NAME=SIZE,… nor a file"),
        ("", "--groups is empty"),
    ],
)
def test_what_is_no_groups(text: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse_groups(text)


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("[1, 2]", "expected JSON such as"),
        ('{"tp": [[0, "x"]]}', "expected JSON such as"),
        ('{"tp": []}', "has no group"),
        ('{"tp": [[0], []]}', "or one without ranks"),
        ("{}", "no groups"),
        ('{"tp": [[0, 1], [1, 2]]}', "rank 1 is in tp groups 0 and 1: groups of a kind must not"),
        ('{"tp": [[0, 0]]}', "rank 0 is in tp group 0 twice"),
        ('{"tp": [[0]], "tp": [[1]]}', "'tp' stands there twice"),
        ('{"a.b": [[0]]}', "'a.b' is no name for a kind"),
        ("", "expected JSON such as"),
        ('{"tp": [[0, 9]]}', "tp group 0 has rank 9, which is none of 0 to 3"),
        ('{"tp": [[0, -1]]}', "has rank -1"),
    ],
)
def test_what_a_file_cannot_say(tmp_path: Path, content: str, why: str) -> None:
    path = tmp_path / "groups.json"
    path.write_text(content)
    with pytest.raises(UsageError, match=why):
        check_groups(parse_groups(str(path)), 4)


def test_sizes_multiply_to_the_ranks() -> None:
    with pytest.raises(UsageError, match="tp 2 × pp 3 = 6, and there are 8 ranks"):
        check_groups(parse_groups("tp=2,pp=3"), 8)
