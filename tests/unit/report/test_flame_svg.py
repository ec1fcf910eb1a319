"""Flame graphs as SVG: whole XML, whatever a function is called, and widths that add up."""

from xml.etree import ElementTree

from harness.analysis.flames import merge
from harness.report.flame_svg import flame_svg

SVG = "{http://www.w3.org/2000/svg}"
NASTY = "<lambda> (\"a&b'.py\x00\udcff:3)</title><script>alert(1)</script>"


def drawn(stacks: list[list[str]], seconds: list[float]) -> ElementTree.Element:
    text = flame_svg(merge("rank", stacks, seconds), "rank <1>")
    return ElementTree.fromstring(text.encode())


def widths(root: ElementTree.Element) -> dict[str, float]:
    """By tooltip."""
    found = {}
    for bar in root.iter(f"{SVG}g"):
        title, rect = bar.find(f"{SVG}title"), bar.find(f"{SVG}rect")
        assert title is not None
        assert rect is not None
        found[str(title.text)] = float(rect.attrib["width"])
    return found


def test_bars_are_as_wide_as_their_time() -> None:
    root = drawn([["main", "a"], ["main", "b"]], [3.0, 1.0])
    assert widths(root) == {
        "rank: 4 s, 100.0%": 1200,
        "main: 4 s, 100.0%": 1200,
        "a: 3 s, 75.0%": 900,
        "b: 1 s, 25.0%": 300,
    }
    lefts = [float(rect.attrib["x"]) for rect in root.iter(f"{SVG}rect")]
    assert lefts[1:] == [0, 0, 0, 900]


def test_text_is_text() -> None:
    root = drawn([[NASTY]], [1.0])
    assert not list(root.iter(f"{SVG}script"))
    [_, tip] = widths(root)
    assert tip.startswith("<lambda> (\"a&b'.py\\x00\\udcff:3)</title><script>")


def test_what_cannot_be_seen_is_not_drawn_and_nothing_is_a_picture() -> None:
    assert len(widths(drawn([["a"], ["b"]], [1e6, 1.0]))) == 2
    assert widths(drawn([], [])) == {}
