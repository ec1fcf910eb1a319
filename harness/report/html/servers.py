"""What servers and workers did over time, from their samples."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from harness.analysis.curves import Counter, counters_of
from harness.analysis.notable import natural
from harness.report.html.material import Material
from harness.report.html.parts import PALETTE, Chart, Json, Section, label, layout
from harness.results.report import Missing
from harness.results.schema import RunResult

_CHARTS = (
    ("server-cpu", "CPU of servers", "CPU"),
    ("server-requests", "Requests to servers", "requests"),
    ("server-connections", "New connections to servers", "connections"),
    ("accept-queue", "Accept queue of servers", "accept queue"),
    ("server-memory", "Memory of servers", "memory"),
    ("worker-cpu", "CPU of workers", "CPU"),
    ("worker-memory", "Memory of workers", "memory"),
    ("worker-descriptors", "Descriptors of workers", "descriptors"),
)
"""Names, captions and curves; those of workers are named so."""
_SUMS = ("ranks formed", "ranks done")
_Curves = Mapping[str, Mapping[str, Counter]]
"""By process and name."""


def section(material: Material) -> Section | Missing:
    """Missing without a recording."""
    series = {} if material.recording is None else material.recording.series
    if not series:
        is_run = isinstance(material.result, RunResult)
        return Missing(
            what="servers",
            why="no process was sampled over time"
            + ("" if is_run else ": a profile keeps no recording"),
            next="emucoll run … --out DIR, in the world loopback and without --no-record, does",
        )
    curves = {
        process: {each.name: each for each in counters_of(columns)}
        for process, columns in sorted(series.items(), key=lambda item: natural(item[0]))
        if len(columns.get("t", ()))
    }
    charts = []
    for name, caption, curve in _CHARTS:
        is_worker = name.startswith("worker")
        lines = {
            process: told[curve]
            for process, told in curves.items()
            if curve in told and process.startswith("worker") == is_worker
        }
        if lines:
            charts.append(_chart(name, caption, lines))
    sums = {name: total for name in _SUMS if (total := _sum(name, curves)) is not None}
    if sums:
        charts.append(_chart("progress", "Ranks formed and done", sums))
    return Section("servers", "Servers and workers over time", charts)


def _sum(name: str, curves: _Curves) -> Counter | None:
    """Over all processes; None where none has such a curve."""
    parts = [told[name] for told in curves.values() if name in told]
    if not parts:
        return None
    at_s = np.unique(np.concatenate([each.at_s for each in parts]))
    whole = np.zeros(len(at_s))
    for each in parts:
        place = np.searchsorted(each.at_s, at_s, side="right") - 1
        whole += np.where(place >= 0, each.values[np.maximum(place, 0)], 0.0)
    return Counter(name, parts[0].unit, at_s, whole)


def _chart(name: str, caption: str, lines: Mapping[str, Counter]) -> Chart:
    unit = next(iter(lines.values())).unit
    # All end together: a staircase's last step has no end of its own.
    until_s = max((float(each.at_s[-1]) for each in lines.values() if len(each.at_s)), default=0.0)
    traces = [
        _line(process, each, PALETTE[at % len(PALETTE)], until_s)
        for at, (process, each) in enumerate(lines.items())
    ]
    of_y: Json = {"rangemode": "tozero", "exponentformat": "SI"}
    figure = {
        "data": traces,
        "layout": layout(
            "seconds since the start",
            unit,
            yaxis=of_y,
            showlegend=len(lines) <= len(PALETTE),
            legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
            margin={"t": 40},
        ),
    }
    return Chart(name, figure, 300, caption, is_half=True)


def _line(process: str, curve: Counter, colour: str, until_s: float) -> Json:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": label(process),
        "x": _with(curve.at_s, until_s),
        "y": _with(curve.values, *curve.values[-1:]),
        "line": {"color": colour, "width": 1.5, "shape": "hv"},
        "hovertemplate": "%{x:.4g} s: %{y:.4g}<extra>%{fullData.name}</extra>",
    }


def _with(values: Iterable[float], *more: float) -> Sequence[float]:
    return [*map(float, values), *map(float, more)]
