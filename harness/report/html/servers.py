"""What servers and workers did over time, from their samples."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from harness.report.html.material import Material
from harness.report.html.parts import (
    PALETTE,
    Block,
    Chart,
    Json,
    Section,
    label,
    layout,
)
from harness.results.report import Missing
from harness.results.schema import RunResult

Floats = npt.NDArray[np.float64]
Columns = dict[str, Floats]


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
    workers = {name: each for name, each in series.items() if name.startswith("worker")}
    servers = {name: each for name, each in series.items() if name not in workers}
    charts = [
        _lines(
            "server-cpu", "CPU of servers", "share of a core", _rates(servers, "cpu_s"), "vh", ".0%"
        ),
        _lines(
            "server-requests",
            "Requests to servers",
            "requests/s",
            _rates(servers, "requests"),
            "vh",
        ),
        _lines(
            "server-connections",
            "Connections to servers",
            "open or accepted",
            _values(servers, "connections"),
        ),
        _lines(
            "accept-queue",
            "Accept queue of servers",
            "connections waiting",
            _values(servers, "accept_queue"),
        ),
        _lines(
            "worker-cpu", "CPU of workers", "share of a core", _rates(workers, "cpu_s"), "vh", ".0%"
        ),
        _lines("worker-memory", "Memory of workers", "MiB", _values(workers, "rss_bytes", 2**-20)),
        _lines(
            "worker-descriptors",
            "Descriptors of workers",
            "open files",
            _values(workers, "descriptors"),
        ),
        _lines(
            "progress", "Ranks formed and done", "ranks", _sums(workers, ("formed", "done")), "hv"
        ),
    ]
    blocks: list[Block] = [each for each in charts if each is not None]
    return Section("servers", "Servers and workers over time", blocks)


Line = tuple[str, Floats, Floats]


def _values(processes: dict[str, Columns], column: str, factor: float = 1.0) -> list[Line]:
    return [
        (name, each["t"], each[column] * factor)
        for name, each in processes.items()
        if column in each and len(each["t"]) == len(each[column])
    ]


def _rates(processes: dict[str, Columns], column: str) -> list[Line]:
    """Per second, from one sample to the next."""
    found = []
    for name, t, values in _values(processes, column):
        t, kept = np.unique(t, return_index=True)
        if len(t) > 1:
            rates = np.diff(values[kept]) / np.diff(t)
            found.append((name, t, np.concatenate([rates[:1], rates])))
    return found


def _sums(processes: dict[str, Columns], columns: Sequence[str]) -> list[Line]:
    """Over all processes, each of which stays at its last sample."""
    found = []
    for column in columns:
        lines = _values(processes, column)
        if not lines:
            continue
        times = np.unique(np.concatenate([t for _, t, _ in lines]))
        whole = np.zeros(len(times))
        for _, t, values in lines:
            at = np.searchsorted(t, times, side="right") - 1
            whole += np.where(at >= 0, values[np.maximum(at, 0)], 0.0)
        found.append((column, times, whole))
    return found


def _lines(
    name: str,
    caption: str,
    y: str,
    lines: Sequence[Line],
    shape: str = "linear",
    tickformat: str | None = None,
) -> Chart | None:
    """None where there is nothing to draw. `shape` is how two points are joined: `vh` for what
    holds since the point before, `hv` for what holds up to the next.
    """
    if not lines:
        return None
    traces: list[Json] = [
        {
            "type": "scatter",
            "mode": "lines+markers" if len(t) < 40 else "lines",
            "name": label(process),
            "x": t.tolist(),
            "y": values.tolist(),
            "line": {"color": PALETTE[at % len(PALETTE)], "width": 1.5, "shape": shape},
            "marker": {"size": 4},
            "hovertemplate": "%{x:.4g} s: %{y:.4g}<extra>%{fullData.name}</extra>",
        }
        for at, (process, t, values) in enumerate(lines)
    ]
    of_y: Json = {"rangemode": "tozero"}
    if tickformat is not None:
        of_y["tickformat"] = tickformat
    figure = {
        "data": traces,
        "layout": layout(
            "seconds since the start",
            y,
            yaxis=of_y,
            showlegend=len(lines) <= len(PALETTE),
            legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
            margin={"t": 40},
        ),
    }
    return Chart(name, figure, 300, caption, is_half=True)
