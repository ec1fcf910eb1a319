"""The model beside what it did not see, as text. Shows what the result holds and computes nothing
but medians.
"""

from collections.abc import Sequence
from statistics import median

from harness.report.failure import printable
from harness.report.table import align, joined, wrapped
from harness.results.validation import (
    PublishedRow,
    RatioPoint,
    ValidatedPoint,
    ValidateResult,
)
from harness.validation.spec import EMULATION, LATENCY_BOUND, Regime

_TITLES: dict[Regime, str] = {
    EMULATION: "regime emulation: ranks share these cores, which are busy all the time",
    LATENCY_BOUND: "regime latency-bound: messages arrive late, and cores wait, as on a cluster",
}


def render_validate(result: ValidateResult) -> str:
    """All of it, for stdout; ends with a newline."""
    blocks = [
        _head(result),
        *(_points(regime, result.points) for regime in _TITLES),
        _ratios(result.ratios),
        _published(result.published),
        [line for each in result.warnings for line in wrapped(f"WARNING {each.code}: {each.text}")],
        _where(result),
    ]
    return joined(blocks)


def _head(result: ValidateResult) -> list[str]:
    if result.published:
        return ["# what others published beside what the model says: projected"]
    lines = ["# the model beside runs that it did not see: measured"]
    if result.calibration is not None:
        return lines + wrapped(f"costs: calibration {printable(result.calibration)}")
    return lines + wrapped("costs: calibrated with at most 1,024 ranks, in turns with the runs")


def _points(regime: Regime, points: Sequence[ValidatedPoint]) -> list[str]:
    here = [point for point in points if point.regime == regime]
    if not here:
        return []
    rows: list[tuple[str, ...]] = [
        ("formation or AllGather", "n", "of", "predicted", "measured", "error", "spread", "cores"),
        ("", "", "", "(s)", "(s)", "", "", "busy"),
    ]
    for each in here:
        busy = "-" if each.cores_busy is None else f"{each.cores_busy:.0%}"
        rows.append(
            (
                printable(each.formation or each.allgather or ""),
                str(each.n),
                each.phase,
                f"{each.predicted_s:.4g}",
                f"{each.measured_s:.4g}",
                f"{each.error:+.1%}",
                f"{each.spread:.1%}",
                busy,
            )
        )
    names, phases = (max(len(row[column]) for row in rows) for column in (0, 2))
    flush = [(row[0].ljust(names), row[1], row[2].ljust(phases), *row[3:]) for row in rows]
    lines = align(flush, left=0)
    kinds = list(dict.fromkeys(each.phase for each in here))
    summary = []
    for kind in kinds:
        errors = [abs(each.error) for each in here if each.phase == kind]
        text = f"{kind}: median error {median(errors):.1%}, worst {max(errors):.1%}"
        summary += wrapped(f"{text}, of {len(errors)} points")
    return [
        *wrapped(_TITLES[regime]),
        *lines[:2],
        *(f" {line[1:]}" for line in lines[2:]),
        *summary,
    ]


def _ratios(ratios: Sequence[RatioPoint]) -> list[str]:
    if not ratios:
        return []
    rows: list[tuple[str, ...]] = [("a step of", "÷ of", "n", "predicted", "measured", "error")]
    for each in ratios:
        numbers = (f"{each.predicted:.4f}", f"{each.measured:.4f}", f"{each.error:+.1%}")
        rows.append((printable(each.allgather), each.base, str(each.n), *numbers))
    names = max(len(row[0]) for row in rows)
    return align([(row[0].ljust(names), *row[1:]) for row in rows])


def _published(rows: Sequence[PublishedRow]) -> list[str]:
    if not rows:
        return []
    table: list[tuple[str, ...]] = [
        ("system", "as", "n", "published", "projected", "low", "high", "residual", ""),
        ("", "", "", "(s)", "(s)", "(5 %)", "(95 %)", "", ""),
    ]
    for row in rows:
        word = "fitted" if row.fitted else "inside" if row.inside else "OUTSIDE"
        numbers = (row.published_s, row.projected_s, row.low_s, row.high_s)
        table.append(
            (
                row.system,
                row.plan,
                str(row.n),
                *(f"{each:.4g}" for each in numbers),
                f"{row.residual:+.1%}",
                word,
            )
        )
    lines = align(table, left=0)
    knobs = {row.system: f"{row.knob} = {row.knob_value_s:.4g} s" for row in rows}
    said = "; ".join(f"{system}: {knob}" for system, knob in knobs.items())
    return [
        *lines[:2],
        *(f" {line[1:]}" for line in lines[2:]),
        *wrapped(f"one knob a system, fitted at the smallest size: {said}"),
    ]


def _where(result: ValidateResult) -> list[str]:
    if result.spec is None or result.spec.out is None:
        return ["# Result: not kept (--out FILE keeps it)"]
    return [f"# Result: {printable(result.spec.out)}"]
