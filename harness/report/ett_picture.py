"""Effective training time over n as a picture: one HTML file that needs no network.

Shows what it is given and computes nothing. plotly is imported when a picture is drawn, not before.
"""

from collections.abc import Sequence

from emucoll.errors import UsageError
from harness.report.picture import COLOURS, escaped
from harness.results.schema import EttResult
from harness.results.training import Curve


def draw(result: EttResult, curves: Sequence[Curve]) -> str:
    """The page. Raises UsageError where plotly is missing."""
    try:
        from plotly.graph_objects import Figure, Scatter
    except ImportError:
        raise UsageError(
            "--out draws a picture with plotly, which is not installed; pip install plotly"
        ) from None
    figure = Figure()
    for number, curve in enumerate(curves):
        # With and without isolation are two lines of one colour.
        line = {
            "color": COLOURS[number // 2 % len(COLOURS)],
            "dash": "dash" if curve.dashed else "solid",
        }
        figure.add_trace(Scatter(x=curve.n, y=curve.ett, mode="lines", name=curve.name, line=line))
    points = result.points
    figure.add_trace(
        Scatter(
            x=[point.n for point in points],
            y=[point.ett for point in points],
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [point.high - point.ett for point in points],
                "arrayminus": [point.ett - point.low for point in points],
            },
            mode="markers",
            name="as asked for, with 90 % of jobs",
            marker={"color": "#000000"},
        )
    )
    subject = "" if result.profile is None else f"<br><sup>{escaped(result.profile)}</sup>"
    figure.update_layout(
        title={"text": f"Effective training time (projected){subject}"},
        xaxis={"title": {"text": "GPUs"}, "type": "log"},
        yaxis={"title": {"text": "share of time"}, "range": [0, 1], "tickformat": ".0%"},
        template="plotly_white",
    )
    page: str = figure.to_html(include_plotlyjs=True, full_html=True, div_id="ett")
    return page
