"""What every rank did when: all of them as a heat map, some of them span by span."""

import numpy as np

from harness.analysis.heat import NONE, Heat, Lane, heat, lane, notable_ranks
from harness.report.html.material import Material
from harness.report.html.parts import (
    NOTHING,
    OTHER,
    Block,
    Chart,
    Json,
    Legend,
    Section,
    Text,
    colours_of,
    label,
    layout,
    packed,
)
from harness.results.recording import Recording
from harness.results.report import Missing
from harness.results.schema import RunResult

_IN_NONE = "in no phase (not started, between phases, or done)"
_LEAST_SHARE = 0.001
"""Of the time: phases with less have no colour of their own."""
_MARGIN = 140
"""Left of both charts, so that their times stand beneath each other."""


def section(material: Material) -> Section | Missing:
    """Missing without a recording."""
    recording = material.recording
    seen = None if recording is None else heat(recording)
    if recording is None or seen is None:
        return _missing(material)
    lanes = {name: lane(recording, rank) for name, rank in notable_ranks(recording).items()}
    colours = _colours(recording, seen, lanes)
    left_out = sum(each.left_out for each in lanes.values())
    shown = {recording.names[at] for each in lanes.values() for at in each.phase}
    shown |= {recording.names[value - 1] for value in np.unique(seen.cells) if value != NONE}
    blocks: list[Block] = [
        Text(
            "Above, each cell has the phase in which most of its ranks were at that time; below, "
            "the spans of single ranks, an inner one over the outer one.",
            "quiet",
        ),
        _legend(colours, has_others=bool(shown - set(colours))),
        Chart("heat", _heat_map(recording, seen, colours), 520),
        Chart("lanes", _gantt(recording, seen, lanes, colours), 90 + 50 * len(lanes)),
    ]
    if left_out:
        blocks.append(
            Text(f"The shortest {left_out:,} spans of these ranks are not shown.", "quiet")
        )
    return Section("ranks", "All ranks over time", blocks)


def _colours(recording: Recording, seen: Heat, lanes: dict[str, Lane]) -> dict[str, str]:
    """By phase, for those that take the most of all ranks' time or of that of a single one."""
    shares = seen.shares[1:].copy()
    whole_s = seen.time_edges_s[-1] - seen.time_edges_s[0]
    for each in lanes.values():
        own_s = np.bincount(each.phase, weights=each.own_s, minlength=len(shares))
        shares = np.maximum(shares, own_s / whole_s)
    largest = [at for at in np.argsort(-shares, kind="stable") if shares[at] > _LEAST_SHARE]
    return colours_of([recording.names[at] for at in largest])


def _missing(material: Material) -> Missing:
    if isinstance(material.result, RunResult):
        return Missing(
            what="ranks",
            why="no span was kept (recording.npz)",
            next=f"emucoll run … --out {material.again}, without --no-record, keeps them",
        )
    return Missing(
        what="ranks",
        why="a profile keeps no spans of single ranks",
        next="emucoll run … --out of one size does",
    )


def _legend(colours: dict[str, str], has_others: bool) -> Legend:
    others = [("other phases", OTHER)] if has_others else []
    return Legend([*colours.items(), *others, (_IN_NONE, NOTHING)])


def _heat_map(recording: Recording, seen: Heat, colours: dict[str, str]) -> Json:
    """Categories as whole numbers: none, then the coloured phases, then all others."""
    known = list(colours)
    code = np.full(len(recording.names) + 1, len(known) + 1, dtype=np.uint8)
    code[NONE] = 0
    for number, name in enumerate(recording.names):
        if name in colours:
            code[number + 1] = known.index(name) + 1
    shades = [NOTHING, *colours.values(), OTHER]
    steps = [
        [edge / len(shades), shade]
        for number, shade in enumerate(shades)
        for edge in (number, number + 1)
    ]
    middles_s = (seen.time_edges_s[:-1] + seen.time_edges_s[1:]) / 2
    trace = {
        "type": "heatmap",
        "z": packed(code[seen.cells]),
        "x": packed(middles_s),
        "y": packed(((seen.rank_edges[:-1] + seen.rank_edges[1:] - 1) / 2).astype(np.float64)),
        "zmin": -0.5,
        "zmax": len(shades) - 0.5,
        "colorscale": steps,
        "showscale": False,
        "hovertemplate": "%{text}<br>ranks about %{y:,.0f}, at %{x:.4g} s<extra></extra>",
    }
    return {
        "data": [trace],
        "layout": layout(
            "seconds since the start",
            "rank",
            margin={"l": _MARGIN},
            xaxis={"range": _range(seen), "automargin": False},
            yaxis={"automargin": False, "tickformat": ",d"},
        ),
        "names": [label(each) for each in (_IN_NONE, *known, "other phases")],
    }


def _range(seen: Heat) -> list[float]:
    return [float(seen.time_edges_s[0]), float(seen.time_edges_s[-1])]


def _gantt(
    recording: Recording, seen: Heat, lanes: dict[str, Lane], colours: dict[str, str]
) -> Json:
    """Bars over bars, the outer ones first: a trace for each depth and phase."""
    rows = {
        name: "rank 0" if name == "first" else f"{name}: rank {each.rank:,}"
        for name, each in lanes.items()
    }
    layers = {
        (int(depth), int(at))
        for each in lanes.values()
        for depth, at in zip(each.depth, each.phase, strict=True)
    }
    traces = [
        _layer(lanes, rows, depth, at, recording.names[at], colours) for depth, at in sorted(layers)
    ]
    return {
        "data": traces,
        "layout": layout(
            "seconds since the start",
            barmode="overlay",
            showlegend=False,
            margin={"l": _MARGIN},
            xaxis={"range": _range(seen), "automargin": False},
            yaxis={
                "automargin": False,
                "type": "category",
                "categoryorder": "array",
                "categoryarray": list(reversed(rows.values())),
            },
        ),
    }


def _layer(
    lanes: dict[str, Lane],
    rows: dict[str, str],
    depth: int,
    at: int,
    phase: str,
    colours: dict[str, str],
) -> Json:
    lengths, begins, y = list[float](), list[float](), list[str]()
    for name, each in lanes.items():
        mine = (each.phase == at) & (each.depth == depth)
        begins += each.begin[mine].tolist()
        lengths += (each.end - each.begin)[mine].tolist()
        y += [rows[name]] * int(mine.sum())
    return {
        "type": "bar",
        "orientation": "h",
        "name": label(phase),
        "x": lengths,
        "base": begins,
        "y": y,
        "width": 0.72,
        "marker": {"color": colours.get(phase, OTHER), "line": {"width": 0}},
        "hovertemplate": "%{y}: from %{base:.6g} s, %{x:.4g} s<extra>%{fullData.name}</extra>",
    }
