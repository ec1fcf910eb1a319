"""A tree of calls as a static SVG: no script, and every bar's whole text as its tooltip.

Of what PyPI has, nothing that draws merged stacks is both kept and free of a profiler of its own.
"""

import zlib
from html import escape

from harness.analysis.flames import Flame
from harness.report.failure import printable

_WIDTH_PX, _ROW_PX, _MARGIN_PX = 1200, 17, 8
_LETTER_PX = 6.4
_LEAST_PX = 0.3
"""Narrower bars are left out, and with them all that they called."""
_STYLE = """
text { font: 11px ui-monospace, monospace; fill: #1c2330; pointer-events: none }
.title { font: 600 14px system-ui, sans-serif }
rect { stroke: #ffffff; stroke-width: .5 }
rect:hover { stroke: #000000; stroke-width: 1.5 }
.page { fill: #ffffff; stroke: none }
@media (prefers-color-scheme: dark) {
.page { fill: #14171c } .title { fill: #e6e9ee } rect { stroke: #14171c }
rect:hover { stroke: #ffffff }
}
"""


def flame_svg(flame: Flame, title: str) -> str:
    """The whole at the top, what it called beneath it."""
    whole_s = flame.total_s[0] or 1.0
    left = _lefts(flame)
    top = 2 * _MARGIN_PX + 18
    bars, deepest = [], 0
    for at, name in enumerate(flame.names):
        width = flame.total_s[at] / whole_s * _WIDTH_PX
        if width < _LEAST_PX:
            continue
        deepest = max(deepest, flame.depths[at])
        y = top + flame.depths[at] * _ROW_PX
        bars.append(_bar(name, left[at] * _WIDTH_PX, y, width, flame.total_s[at], whole_s))
    width, height = _WIDTH_PX + 2 * _MARGIN_PX, top + (deepest + 1) * _ROW_PX + _MARGIN_PX
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" '
        f'viewBox="{-_MARGIN_PX} 0 {width} {height}">\n<style>{_STYLE}</style>\n'
        f'<rect class="page" x="{-_MARGIN_PX}" width="{width}" height="{height}"/>\n'
        f'<text class="title" x="0" y="{_MARGIN_PX + 14}">{_text(title)}</text>\n'
    )
    return head + "".join(bars) + "</svg>\n"


def _lefts(flame: Flame) -> list[float]:
    """Where each begins, as a share of the whole: children from their parent's left on."""
    whole_s = flame.total_s[0] or 1.0
    left = [0.0] * len(flame.names)
    used = [0.0] * len(flame.names)
    for at in range(1, len(flame.names)):
        parent = flame.parents[at]
        left[at] = left[parent] + used[parent]
        used[parent] += flame.total_s[at] / whole_s
    return left


def _bar(name: str, x: float, y: int, width: float, seconds: float, whole_s: float) -> str:
    letters = int((width - 6) / _LETTER_PX)
    shown = ""
    if letters >= 3:
        short = name if len(name) <= letters else f"{name[: letters - 1]}…"
        shown = f'<text x="{x + 3:.1f}" y="{y + 12}">{_text(short)}</text>'
    tip = f"{name}: {seconds:.4g} s, {seconds / whole_s:.1%}"
    return (
        f'<g><title>{_text(tip)}</title><rect x="{x:.2f}" y="{y}" width="{width:.2f}" '
        f'height="{_ROW_PX - 1}" fill="{_colour(name)}"/>{shown}</g>\n'
    )


def _colour(name: str) -> str:
    """The same for the same function, among warm ones that dark text can be read on."""
    number = zlib.crc32(name.encode(errors="backslashreplace"))
    return f"hsl({15 + number % 40} 90% {62 + number // 64 % 16}%)"


def _text(text: str) -> str:
    return escape(printable(text), quote=True)
