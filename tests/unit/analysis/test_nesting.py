"""Spans end up within those around them, whatever a rank's Tasks did."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.nesting import Nested, nest

SPANS = st.lists(
    st.tuples(st.sampled_from(["a", "a.b", "a.b.c", "d"]), st.integers(0, 9), st.integers(0, 9)),
    max_size=30,
).map(lambda spans: sorted(((n, min(b, e), max(b, e)) for n, b, e in spans), key=lambda s: s[2]))


def walk(nodes: list[Nested]) -> list[Nested]:
    return [each for node in nodes for each in (node, *walk(node.within))]


def shape(nodes: list[Nested]) -> list[object]:
    return [(each.name, shape(each.within)) if each.within else each.name for each in nodes]


@given(SPANS)
def test_every_span_is_there_and_none_overlaps(spans: list[tuple[str, int, int]]) -> None:
    lanes = nest(spans)
    found = sorted(walk([node for lane in lanes for node in lane]), key=lambda each: each.index)
    assert [each.index for each in found] == list(range(len(spans)))
    for each, (name, begin, end) in zip(found, spans, strict=True):
        assert (each.name, each.end) == (name, end)
        late = [inner for inner in each.within if inner.begin < begin]
        assert each.begin == min([begin, *(inner.begin for inner in late)])
        assert all(inner.name.startswith(f"{name}.") for inner in late)
    siblings = [*lanes, *(each.within for each in found)]
    for row in siblings:
        assert all(one.end <= other.begin for one, other in pairwise(row))
    assert all(each.begin <= inner.begin for each in found for inner in each.within)
    assert all(inner.end <= each.end for each in found for inner in each.within)


def test_without_length_it_is_where_its_name_says() -> None:
    spans = [("a.b", 0, 0), ("a.c", 0, 3), ("a", 0, 4), ("d", 4, 4)]
    [lane] = nest(spans)
    assert shape(lane) == [("a", ["a.b", "a.c"]), "d"]
    [lane] = nest([("d", 0, 0), ("a.b", 0, 0), ("a", 0, 0), ("e", 0, 1)])
    assert shape(lane) == ["d", ("a", ["a.b"]), "e"]


def test_what_overlaps_is_on_a_lane_of_its_own() -> None:
    first, second = nest([("x", 0, 5), ("y", 1, 6), ("all", 0, 7)])
    assert (shape(first), shape(second)) == ([("all", ["x"])], ["y"])


def test_a_begin_that_was_excused_is_drawn_from_the_first_within() -> None:
    [lane] = nest([("d", 0, 1), ("a.b", 1, 2), ("a.c", 2, 8), ("a", 5, 9)])
    assert shape(lane) == ["d", ("a", ["a.b", "a.c"])]
    assert (lane[1].begin, lane[1].end) == (1, 9)
