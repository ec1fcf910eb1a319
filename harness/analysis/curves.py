"""What servers and workers did over time, as curves: totals as rates, levels as they are.

A curve is a staircase: a value holds from its time to the next. Times are seconds since the start
barrier; what was before it is left out. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Counter:
    """One curve. The arrays have one entry a step."""

    name: str
    unit: str
    at_s: npt.NDArray[np.float64]
    values: npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Column:
    """How a column of a recording is shown."""

    name: str
    unit: str
    form: Literal["rate", "level"]
    factor: float = 1.0


_COLUMNS = {
    "cpu_s": _Column("CPU", "% of a core", "rate", 100.0),
    "requests": _Column("requests", "requests/s", "rate"),
    "connections": _Column("connections", "connections/s", "rate"),
    "accept_queue": _Column("accept queue", "connections", "level"),
    "rss_bytes": _Column("memory", "bytes", "level"),
    "formed": _Column("ranks formed", "ranks", "level"),
    "done": _Column("ranks done", "ranks", "level"),
    "descriptors": _Column("descriptors", "descriptors", "level"),
}
"""In the order in which they are shown."""


def counters_of(series: Mapping[str, npt.NDArray[np.float64]]) -> list[Counter]:
    """The curves of one process, from its columns (`harness.results.recording`)."""
    t = series["t"]
    found = []
    for column, shown in _COLUMNS.items():
        values = series.get(column)
        # What could not be told at times has fewer values, and nothing says of when they are.
        if values is None or len(values) != len(t):
            continue
        curve = _rate(t, values) if shown.form == "rate" else _level(t, values)
        found.append(Counter(shown.name, shown.unit, curve[0], shown.factor * curve[1]))
    return found


def _rate(
    t: npt.NDArray[np.float64], totals: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """The mean between two samples, from the first of them on."""
    passed_s = np.diff(t)
    shown = (passed_s > 0) & (t[1:] > 0)
    rates = np.diff(totals)[shown] / passed_s[shown]
    return np.maximum(t[:-1][shown], 0.0), rates


def _level(
    t: npt.NDArray[np.float64], values: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """As sampled. The last sample before the start stands at the start."""
    first = max(0, int(np.searchsorted(t, 0.0, side="right")) - 1)
    return np.maximum(t[first:], 0.0), values[first:]
