"""Where the time went: of a run by phase, of a profile over the sizes and at the target."""

from harness.report.html.growth import of_profile
from harness.report.html.material import Material
from harness.report.html.parts import (
    TEXT,
    Block,
    Chart,
    Section,
    Table,
    label,
    layout,
    seconds,
)
from harness.results.profile import ProfileResult
from harness.results.report import Missing
from harness.results.schema import Phase, RunResult

_STATISTICS = ("mean", "p50", "p99", "max")


def section(material: Material) -> Section | Missing:
    """Missing where a run failed before it was timed."""
    result = material.result
    if isinstance(result, ProfileResult):
        return of_profile(material)
    if not result.phases:
        return Missing(
            what="time",
            why="the run ended before its phases could be told",
            next=f"emucoll run … --out {material.again}, once what failed is mended",
        )
    timed = [phase for phase in result.phases if phase.mean_s is not None]
    blocks: list[Block] = [_chart(timed, result), _table(result)]
    return Section("time", "Time by phase", blocks)


def _chart(phases: list[Phase], result: RunResult) -> Chart:
    """Bars of means, and marks for what single ranks had."""
    names = [_indented(phase, result) for phase in phases]
    bars = {
        "type": "bar",
        "orientation": "h",
        "name": "mean",
        "x": [phase.mean_s for phase in phases],
        "y": names,
        "marker": {"color": "var(--accent)"},
        "hovertemplate": "%{y}: mean %{x:.4g} s<extra></extra>",
    }
    marks = [
        {
            "type": "scatter",
            "mode": "markers",
            "name": name,
            "x": [getattr(phase, f"{name}_s") for phase in phases],
            "y": names,
            "marker": {
                "symbol": symbol,
                "size": 11,
                "color": colour,
                "line": {"color": colour, "width": 2},
            },
            "hovertemplate": f"%{{y}}: {name} %{{x:.4g}} s<extra></extra>",
        }
        for name, symbol, colour in (
            ("p50", "line-ns-open", TEXT),
            ("p99", "diamond", "var(--c1)"),
            ("max", "x-thin-open", "var(--c6)"),
        )
    ]
    figure = {
        "data": [bars, *marks],
        "layout": layout(
            "seconds of one rank",
            yaxis={"autorange": "reversed", "type": "category", "ticks": ""},
            legend={"orientation": "h", "y": 1.0, "yanchor": "bottom", "x": 0},
            margin={"t": 40},
            bargap=0.35,
        ),
    }
    return Chart("phases", figure, 110 + 28 * len(phases))


def _indented(phase: Phase, result: RunResult) -> str:
    """What is within another phase stands to the right of it, what is outside a rank's total is
    marked. No two are alike: names that are equal would share a row.
    """
    names = {each.name for each in result.phases}
    if phase.within is None:
        return label(phase.name)
    inside = phase.within in names
    return f"{label(phase.name)}  " if inside else f"(outside) {label(phase.name)}"


def _table(result: RunResult) -> Table:
    rows = []
    for phase in result.phases:
        times = (getattr(phase, f"{name}_s") for name in _STATISTICS)
        rows.append(
            (phase.name, phase.within or "-", phase.kind, *map(seconds, (*times, phase.cpu_s)))
        )
    head = ("phase", "within", "kind", *_STATISTICS, "CPU, all ranks")
    total = "" if result.mean_total_s is None else f", {seconds(result.mean_total_s)} in the mean"
    caption = f"The means of phases within nothing add up to a rank's own total{total}"
    return Table(head, rows, words=3, caption=caption)
