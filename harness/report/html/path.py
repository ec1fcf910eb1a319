"""The critical path: whom everybody waited for, from the start to the last rank done."""

from collections.abc import Sequence

from emucoll.errors import UsageError
from harness.profiling.links import links_of_run
from harness.report.html.material import Material
from harness.report.html.parts import (
    Block,
    Chart,
    Legend,
    Section,
    Table,
    Text,
    colours_of,
    count,
    label,
    layout,
    seconds,
)
from harness.results.profile import Link, ProfileResult
from harness.results.report import Missing

_MOST = 400
"""Stretches in the chart, and"""
_LISTED = 60
"""in the table: the longest."""


def section(material: Material) -> Section | Missing:
    """Missing where nothing tells it."""
    result = material.result
    if isinstance(result, ProfileResult):
        if result.critical_path:
            return of_links(result.critical_path, "At the target, in virtual time:")
        why, next = "no target was played", "see the profile's warnings, and its error"
        return Missing(what="path", why=why, next=next)
    if material.recording is None or result.spec is None:
        why, next = "no span was kept", f"emucoll run … --out {material.again} keeps them"
        return Missing(what="path", why=why, next=next)
    try:
        links = links_of_run(result.spec, material.recording)
    except UsageError as error:  # a plan of the user's own, looked for elsewhere
        return Missing(what="path", why=str(error), next="go where the run's plan is found")
    if not links:
        why, next = "no rank was in a phase", "emucoll run … --out of one that is"
        return Missing(what="path", why=why, next=next)
    kind = "" if result.kind is None else f", as {result.kind}"
    return of_links(links, f"From the last rank done back to the start{kind}:")


def of_links(links: Sequence[Link], text: str) -> Section:
    """The chain as one row of bars, coloured by what passed there, and as a table."""
    whole_s = links[-1].until_s - links[0].from_s
    longest = sorted(links, key=_length, reverse=True)
    drawn = sorted(longest[:_MOST], key=lambda each: each.from_s)
    spent: dict[str, float] = {}
    for each in links:
        spent[each.what] = spent.get(each.what, 0.0) + _length(each)
    colours = colours_of(sorted(spent, key=lambda what: -spent[what]))
    blocks: list[Block] = [
        Text(f"{text} whom everybody waited for.", "quiet"),
        Legend([(f"{what}: {seconds(spent[what])}", colour) for what, colour in colours.items()]),
        Chart("path", _chain(drawn, colours), 150),
        _table(links, longest, whole_s),
    ]
    return Section("path", "The critical path", blocks)


def _length(each: Link) -> float:
    return each.until_s - each.from_s


def _chain(links: Sequence[Link], colours: dict[str, str]) -> dict[str, object]:
    bars = {
        "type": "bar",
        "orientation": "h",
        "base": [each.from_s for each in links],
        "x": [_length(each) for each in links],
        "y": [""] * len(links),
        "text": [f"{label(each.phase)}<br>{label(each.who)}" for each in links],
        "textposition": "inside",
        "insidetextanchor": "middle",
        "textangle": 0,
        "textfont": {"color": "#ffffff"},
        "constraintext": "inside",
        "customdata": [f"{label(each.what)}, {seconds(_length(each))}" for each in links],
        "marker": {
            "color": [colours.get(each.what, "var(--other)") for each in links],
            "line": {"color": "var(--page)", "width": 1},
        },
        "hovertemplate": "%{text}<br>%{customdata}, from %{base:.6g} s<extra></extra>",
    }
    return {
        "data": [bars],
        "layout": layout(
            "seconds",
            barmode="overlay",
            margin={"l": 10},
            yaxis={"visible": False},
            uniformtext={"mode": "hide", "minsize": 11},
        ),
    }


def _table(links: Sequence[Link], longest: Sequence[Link], whole_s: float) -> Table:
    listed = sorted(longest[:_LISTED], key=lambda each: each.from_s)
    rows = [
        (
            each.who,
            each.phase,
            each.what,
            *map(seconds, (each.from_s, each.until_s, _length(each))),
            f"{_length(each) / whole_s:.1%}" if whole_s else "-",
        )
        for each in listed
    ]
    left_out = len(links) - len(listed)
    caption = f"The {count(len(listed))} longest of {count(len(links))}" if left_out else ""
    head = ("who", "phase", "what", "from", "until", "took", "of the whole")
    return Table(head, rows, words=3, caption=caption)
