"""What sections are made of: text, tables, charts and their legends.

Every text is plain: the template escapes it, and `label` what goes into a chart. A chart is a
figure of plotly.js as a dict; a colour in it is the name of a CSS variable, which the page's script
looks up, so that charts follow light and dark as the page does.
"""

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from harness.report.failure import printable
from harness.report.picture import escaped

Json: TypeAlias = dict[str, Any]

TEXT, MUTED, GRID, PANEL = "var(--text)", "var(--muted)", "var(--grid)", "var(--panel)"
OTHER, NOTHING = "var(--other)", "var(--nothing)"
PALETTE = tuple(f"var(--c{number})" for number in range(12))
"""Of things that are told apart by colour; what comes after them is `OTHER`."""


@dataclass(frozen=True)
class Text:
    """A paragraph. `bad` is for what failed, `quiet` for what explains, `lead` for a verdict."""

    text: str
    look: Literal["plain", "lead", "bad", "quiet", "code"] = "plain"


@dataclass(frozen=True)
class Table:
    """Cells as text; the first `words` columns hold words, the others numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1
    caption: str = ""
    is_folded: bool = False
    """It opens on a click on its caption."""


@dataclass(frozen=True)
class Chart:
    """A figure; `name` is unique in the page."""

    name: str
    figure: Json
    height_px: int
    caption: str = ""
    is_half: bool = False
    """Two such stand beside each other where there is room."""


@dataclass(frozen=True)
class Legend:
    """Names and their colours."""

    entries: Sequence[tuple[str, str]]


@dataclass(frozen=True)
class Folded:
    """Long text that opens on a click."""

    title: str
    text: str


Block: TypeAlias = Text | Table | Chart | Legend | Folded


@dataclass(frozen=True)
class Section:
    """A part of the page. `name` is for programs and stays."""

    name: str
    title: str
    blocks: Sequence[Block]


def label(text: str) -> str:
    """As a chart shows it, which takes some tags for markup."""
    return escaped(printable(text))


def colours_of(names: Sequence[str]) -> dict[str, str]:
    """The first of them get a colour each."""
    return dict(zip(names, PALETTE, strict=False))


def packed(values: npt.NDArray[Any]) -> Json:
    """An array as plotly.js reads it, a few bytes a value."""
    code = {"float64": "f8", "float32": "f4", "int32": "i4", "uint8": "u1"}[values.dtype.name]
    told: Json = {
        "dtype": code,
        "bdata": base64.b64encode(np.ascontiguousarray(values).tobytes()).decode("ascii"),
    }
    if values.ndim > 1:
        told["shape"] = ", ".join(map(str, values.shape))
    return told


def layout(x: str = "", y: str = "", **more: Any) -> Json:
    """What all charts have in common; `x` and `y` are the axes' titles."""
    base: Json = {
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": TEXT, "size": 12, "family": "system-ui, sans-serif"},
        "margin": {"l": 60, "r": 20, "t": 36, "b": 50},
        "hoverlabel": {"bgcolor": PANEL, "bordercolor": GRID, "font": {"color": TEXT}},
        "legend": {"font": {"size": 11}},
        "modebar": {"bgcolor": "rgba(0,0,0,0)", "color": MUTED, "activecolor": TEXT},
        "uirevision": "kept",
        "xaxis": axis(x),
        "yaxis": axis(y),
    }
    for key, value in more.items():
        base[key] = {**base[key], **value} if isinstance(base.get(key), dict) else value
    return base


def axis(title: str, **more: Any) -> Json:
    """An axis; its numbers never stand in each other's way."""
    return {
        "title": {"text": title, "standoff": 10},
        "gridcolor": GRID,
        "zerolinecolor": GRID,
        "linecolor": GRID,
        "automargin": True,
        **more,
    }


def seconds(value: float | None) -> str:
    """Four digits, with a unit that suits it."""
    if value is None:
        return "-"
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= size or value == 0:
            return f"{value / size:.4g} {unit}"
    return f"{value / 1e-6:.3g} µs"


def size(value: float | None) -> str:
    """Bytes, with a unit that suits them."""
    if value is None:
        return "-"
    for unit, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value >= 2**power:
            return f"{value / 2**power:.2f} {unit}"
    return f"{value:.0f} B"


def count(value: float | None) -> str:
    """A whole number, its thousands apart."""
    return "-" if value is None else f"{value:,.0f}"
