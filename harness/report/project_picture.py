"""A projection over n as a picture: one HTML file that needs no network.

Shows what it is given and computes nothing. plotly is imported when a picture is drawn, not before.
"""

from collections.abc import Sequence
from typing import Any

from emucoll.errors import UsageError
from harness.report.picture import COLOURS, escaped
from harness.results.projection import ProjectedPlan, ProjectResult

_COLOURS = (
    *(*COLOURS, "#f0e442"),
    *("#332288", "#88ccee", "#117733", "#999933", "#882255"),
)
"""Okabe and Ito's, and Tol's, which most people can tell apart."""
_OTHER = "all else"
_LEAST_SHARE = 0.02


def draw_projection(result: ProjectResult) -> str:
    """The page. Raises UsageError where plotly is missing."""
    try:
        from plotly.graph_objects import Bar, Scatter
        from plotly.subplots import make_subplots
    except ImportError:
        raise UsageError(
            "--out draws a picture with plotly, which is not installed; pip install plotly"
        ) from None
    names = list(dict.fromkeys(plan.name for plan in result.plans))
    figure: Any = make_subplots(
        cols=len(names), subplot_titles=names, shared_yaxes=True, x_title="ranks"
    )
    shown: set[str] = set()
    markers = _markers(result.plans)
    for column, name in enumerate(names, start=1):
        plans = [plan for plan in result.plans if plan.name == name]
        sizes = [f"{plan.n:,}" for plan in plans]
        for phase, seconds in _stacks(plans).items():
            bar = Bar(
                x=sizes,
                y=seconds,
                name=phase,
                legendgroup=phase,
                showlegend=phase not in shown,
                marker=markers.get(phase, {"color": "#bbbbbb"}),
            )
            figure.add_trace(bar, row=1, col=column)
            shown.add(phase)
        totals = Scatter(
            x=sizes,
            y=[plan.total_s for plan in plans],
            error_y=_error_bars(plans),
            mode="markers",
            name="total, 90 % interval",
            legendgroup="total",
            showlegend=column == 1,
            marker={"color": "#000000", "symbol": "line-ew-open"},
        )
        figure.add_trace(totals, row=1, col=column)
        published = [each for each in result.published if each.plan == name]
        here = {f"{each.n:,}": each.seconds for each in published if f"{each.n:,}" in sizes}
        if here:
            points = Scatter(
                x=list(here),
                y=list(here.values()),
                mode="markers",
                name="published",
                legendgroup="published",
                showlegend="published" not in shown,
                marker={"color": "#ff0000", "symbol": "x", "size": 10},
            )
            figure.add_trace(points, row=1, col=column)
            shown.add("published")
    cluster = "" if result.cluster is None else f"<br><sup>{escaped(result.cluster)}</sup>"
    figure.update_layout(
        title={"text": f"Initialization (projected){cluster}"},
        barmode="stack",
        template="plotly_white",
        yaxis={"title": {"text": "seconds"}},
    )
    page: str = figure.to_html(include_plotlyjs=True, full_html=True, div_id="projection")
    return page


def _stacks(plans: Sequence[ProjectedPlan]) -> dict[str, list[float]]:
    """Seconds at each size by phase, such that they add up to the means; small ones together."""
    stacks: dict[str, list[float]] = {}
    for number, plan in enumerate(plans):
        outer = {phase.within for phase in plan.phases}
        inner: dict[str, float] = {}
        for phase in plan.phases:
            if phase.within is not None:
                inner[phase.within] = inner.get(phase.within, 0.0) + phase.seconds
        for phase in plan.phases:
            seconds = phase.seconds
            if phase.name in outer:
                seconds -= inner.get(phase.name, 0.0)
            name = phase.name if phase.name in _large(plans) else _OTHER
            stacks.setdefault(name, [0.0] * len(plans))[number] += seconds
    return {name: stacks[name] for name in sorted(stacks, key=lambda each: each == _OTHER)}


def _large(plans: Sequence[ProjectedPlan]) -> set[str]:
    return {
        phase.name
        for plan in plans
        for phase in plan.phases
        if phase.seconds >= _LEAST_SHARE * plan.total_s
        and phase.name not in {each.within for each in plan.phases}
    }


def _markers(plans: Sequence[ProjectedPlan]) -> dict[str, dict[str, Any]]:
    """One for each phase that is shown: a colour, and hatched where it is another's too."""
    names = dict.fromkeys(
        phase.name for plan in plans for phase in plan.phases if phase.name in _large(plans)
    )
    return {
        name: {
            "color": _COLOURS[number % len(_COLOURS)],
            "pattern": {"shape": "" if number < len(_COLOURS) else "/"},
        }
        for number, name in enumerate(names)
    }


def _error_bars(plans: Sequence[ProjectedPlan]) -> dict[str, Any]:
    highs = [plan.total_s if plan.high_s is None else plan.high_s for plan in plans]
    lows = [plan.total_s if plan.low_s is None else plan.low_s for plan in plans]
    return {
        "type": "data",
        "symmetric": False,
        "array": [high - plan.total_s for high, plan in zip(highs, plans, strict=True)],
        "arrayminus": [plan.total_s - low for low, plan in zip(lows, plans, strict=True)],
    }
