"""Stacks as trees, by hand and by hypothesis, and as speedscope reads them."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.flames import (
    SPEEDSCOPE,
    Carried,
    Flame,
    Profile,
    merge,
    prune,
    speedscope,
    unknown_share,
)

STACKS = [["main", "a", "b"], ["main", "a"], ["main", "c"], ["main", "a", "b"], []]
SECONDS = [1.0, 2.0, 4.0, 8.0, 16.0]


def told(flame: Flame) -> dict[str, tuple[float, float]]:
    """By the way to a node its own and its whole time."""
    ways = [flame.names[0]]
    for name, parent in list(zip(flame.names, flame.parents, strict=True))[1:]:
        ways.append(f"{ways[parent]}/{name}")
    return dict(zip(ways, zip(flame.own_s, flame.total_s, strict=True), strict=True))


def test_what_was_seen_alike_is_one() -> None:
    flame = merge("all", STACKS, SECONDS)
    assert told(flame) == {
        "all": (16, 31),
        "all/main": (0, 15),
        "all/main/a": (2, 11),
        "all/main/a/b": (9, 9),
        "all/main/c": (4, 4),
    }
    assert flame.depths == [0, 1, 2, 3, 2]
    assert flame.exponents == [None] * 5


def test_a_function_that_calls_itself_is_as_deep_as_it_was() -> None:
    flame = merge("all", [["f", "f", "f"], ["f"]], [1.0, 1.0])
    assert told(flame) == {"all": (0, 2), "all/f": (1, 2), "all/f/f": (0, 1), "all/f/f/f": (1, 1)}


def test_each_function_grows_by_its_own_law() -> None:
    laws = {"b": Carried(10.0, 2.0), "a": Carried(2.0, 1.0)}
    flame = merge("all", STACKS[:4], SECONDS[:4], laws)
    ways = told(flame)
    assert ways["all/main/a/b"] == (90, 90)
    assert ways["all/main/a"] == (4, 94)
    assert ways["all/main/c"] == (4, 4), "of which nothing is known: as before"
    exponents = dict(zip(ways, flame.exponents, strict=True))
    assert exponents["all/main/a/b"] == 2.0
    assert exponents["all/main/a"] == pytest.approx((90 * 2 + 4 * 1) / 94)
    assert exponents["all/main/c"] is None
    assert exponents["all"] == exponents["all/main"] == exponents["all/main/a"]


def test_of_what_is_mostly_unknown_no_exponent_is_told() -> None:
    laws = {"a": Carried(1.0, 1.0)}
    assert merge("all", [["a"], ["b"]], [1.0, 3.0], laws).exponents == [None, 1.0, None]
    assert merge("all", [["a"], ["b"]], [3.0, 1.0], laws).exponents == [1.0, 1.0, None]
    assert unknown_share([["a"], ["b"], []], [3, 1, 4], laws) == 5 / 8
    assert unknown_share([], [], laws) == 0.0


def test_what_is_small_goes_and_stays_in_the_totals() -> None:
    flame = prune(merge("all", STACKS, SECONDS), least_share=0.2)
    assert told(flame) == {
        "all": (16, 31),
        "all/main": (0, 15),
        "all/main/a": (2, 11),
        "all/main/a/b": (9, 9),
    }


@given(
    st.lists(st.lists(st.sampled_from("abc"), max_size=6), min_size=1, max_size=30),
    st.integers(1, 12),
    st.floats(0.0, 0.5),
)
def test_a_cut_tree_is_one(stacks: list[list[str]], most: int, least: float) -> None:
    whole = merge("all", stacks, [1.0] * len(stacks))
    flame = prune(whole, least, most)
    assert len(flame.names) <= most
    assert flame.total_s[0] == len(stacks)
    assert set(told(flame).items()) <= set(told(whole).items())
    for at, parent in enumerate(flame.parents):
        assert parent < at
        below = sum(flame.total_s[i] for i, each in enumerate(flame.parents) if each == at)
        assert below + flame.own_s[at] <= flame.total_s[at] + 1e-9


def test_a_speedscope_file_holds_every_size() -> None:
    small = Profile("rank, 8 ranks", [["main (a.py:1)", "f (b/c.py:20)"]], [0.5])
    large = Profile("rank, 16 ranks", [["main (a.py:1)"], ["odd"]], [1.0, 0.25])
    document = speedscope("emucoll rank", [small, large], "emucoll 1")
    assert document["$schema"] == SPEEDSCOPE
    assert document["shared"]["frames"] == [
        {"name": "main", "file": "a.py", "line": 1},
        {"name": "f", "file": "b/c.py", "line": 20},
        {"name": "odd"},
    ]
    assert document["activeProfileIndex"] == 1
    first, second = document["profiles"]
    assert (first["samples"], first["weights"]) == ([[0, 1]], [0.5])
    assert (second["samples"], second["weights"]) == ([[0], [2]], [1.0, 0.25])
    assert (second["type"], second["unit"], second["endValue"]) == ("sampled", "seconds", 1.25)
    assert json.loads(json.dumps(document)) == document
