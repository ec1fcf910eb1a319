"""Effective training time as text: `#` lines in the manner of the run's table. Each line that does
not begin with `#` is one size.

Shows what the result holds and computes nothing.
"""

from collections.abc import Sequence

from harness.report.failure import printable
from harness.report.table import align, joined, kept_with_picture, number, wrapped
from harness.results.schema import EttResult
from harness.results.storage import PICTURE_FILE, RESULT_FILE
from harness.results.training import EttParts, EttPoint, Input

SHOWN = 12
"""Of more sizes than these, the parts and what changes are worth are in the JSON alone."""
_NONE = "-"


def render_ett(result: EttResult) -> str:
    """All of it, for stdout; ends with a newline."""
    blocks = [
        _head(result),
        _inputs(result.inputs),
        _points(result.points),
        _parts(result.points[:SHOWN]),
        *(_worth(point) for point in result.points[:SHOWN]),
        _left_out(result.points),
        [line for each in result.warnings for line in wrapped(f"WARNING {each.code}: {each.text}")],
        _what_it_cannot_tell(),
        kept_with_picture(
            None if result.spec is None else result.spec.out, RESULT_FILE, PICTURE_FILE
        ),
    ]
    return joined(blocks)


def _head(result: EttResult) -> list[str]:
    lines = ["# effective training time: projected, nothing was run"]
    if result.profile is not None and result.spec is not None:
        lines += wrapped(f"profile {result.spec.profile}: {result.profile}")
    return lines


def _inputs(inputs: Sequence[Input]) -> list[str]:
    rows: list[tuple[str, ...]] = [("input", "value", "low", "high", "unit", "from")]
    for each in inputs:
        numbers = (each.value, each.low, each.high)
        rows.append((each.name, *map(number, numbers), each.unit or "", each.origin))
    # The last columns are text: flush left, as their headings.
    unit, origin = (max(len(row[column]) for row in rows) for column in (4, 5))
    lines = align([(*row[:4], row[4].ljust(unit), row[5].ljust(origin)) for row in rows])
    for each in inputs:
        if each.origin in ("profile", "calculated"):
            lines += wrapped(f"{each.name}: {each.because}")
    return lines


def _points(points: Sequence[EttPoint]) -> list[str]:
    rows: list[tuple[str, ...]] = [
        (
            *("n", "nodes", "plan", "replicas", "mtbf", "interval", "ett", "low", "high"),
            *("first", "played", "not"),
        ),
        ("", "", "", "", "(h)", "(s)", "", "(5 %)", "(95 %)", "order", "", "isolated"),
    ]
    lines = align([*rows, *map(_point_row, points)], left=0)
    # What is data has no mark before it.
    return lines[:2] + [f" {line[1:]}" for line in lines[2:]]


def _point_row(point: EttPoint) -> tuple[str, ...]:
    without, interval = point.without_isolation, point.checkpoint_interval_s
    return (
        str(point.n),
        str(point.nodes),
        _NONE if point.plan is None else printable(point.plan),
        _NONE if point.isolation is None else str(point.isolation),
        _NONE if point.mtbf_s is None else f"{point.mtbf_s / 3600:.4g}",
        "never" if interval is None else f"{interval:.1f}",
        *map(_share, (point.ett, point.low, point.high, point.first_order)),
        _NONE if point.monte_carlo is None else _share(point.monte_carlo.ett),
        _NONE if without is None else _share(without.ett),
    )


def _parts(points: Sequence[EttPoint]) -> list[str]:
    names = EttParts.__struct_fields__
    rows: list[tuple[str, ...]] = [("where time goes", *names)]
    for point in points:
        shares = (f"{getattr(point.parts, name):.2%}" for name in names)
        rows.append((_size(point).replace(" GPUs", ""), *shares))
    return align(rows)


def _worth(point: EttPoint) -> list[str]:
    if not point.worth:
        return []
    days = point.job_length_s / 86400
    lines = wrapped(
        f"what a change is worth at {_size(point)}, in a job of {days:.3g} days, which sees "
        f"{point.failures:.4g} failures"
    )
    rows: list[tuple[str, ...]] = [("change", "ett", "GPU-hours saved")]
    for each in point.worth:
        rows.append((printable(each.text), _share(each.ett), f"{each.gpu_hours_saved:,.0f}"))
    return lines + align(rows)


def _left_out(points: Sequence[EttPoint]) -> list[str]:
    if len(points) <= SHOWN:
        return []
    return wrapped(f"parts and worth of {len(points) - SHOWN} more sizes: see --json")


def _size(point: EttPoint) -> str:
    plan = "" if point.plan is None else f" with {printable(point.plan)}"
    replicas = "" if point.isolation is None else f", {point.isolation} replicas"
    return f"{point.n} GPUs{plan}{replicas}"


def _what_it_cannot_tell() -> list[str]:
    return wrapped(
        "What this cannot tell: failures are taken to come at a constant rate per node, one by "
        "one, and restarts to succeed; slow nodes, failures that come together, waits for spare "
        "nodes and planned stops are not in it. Between low and high lie 90 % of jobs, by chance, "
        "by the count behind the rate and by the ranges of the inputs, where they have any."
    )


def _share(value: float) -> str:
    return f"{value:.4f}"
