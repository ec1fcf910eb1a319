"""A profile as text: the verdict first. `#` lines in the manner of the run's table; each line that
does not begin with `#` is a finding.

Shows what the result holds and computes nothing.
"""

from collections.abc import Sequence

from harness.report.failure import printable
from harness.report.table import align, joined, kept, wrapped
from harness.results.profile import Finding, Growing, Link, ProfileResult
from harness.results.storage import REPORT_FILE, RESULT_FILE

_NONE = "-"
_SHOWN = 12
"""Functions; the JSON has all."""
_UNITS = {"cpu": "s", "wait": "s", "memory": "B"}
CANNOT_TELL = (
    "GPU work, topology search and connections to peers are in no plan. A law carries what was "
    "measured here far beyond the sizes that were run; seconds of virtual time are played at the "
    "target itself, with the cluster's values."
)


def render_profile(result: ProfileResult) -> str:
    """All of it, for stdout; ends with a newline."""
    blocks = [
        _verdict(result),
        _head(result),
        _findings(result.findings),
        _path(result.critical_path),
        _figures([each for each in result.figures if each.function is None]),
        _functions([each for each in result.figures if each.function is not None]),
        [line for each in result.warnings for line in wrapped(f"WARNING {each.code}: {each.text}")],
        wrapped(f"What this cannot tell: {CANNOT_TELL}"),
        kept(None if result.spec is None else result.spec.out, RESULT_FILE, REPORT_FILE),
    ]
    return joined(blocks)


def _verdict(result: ProfileResult) -> list[str]:
    if result.verdict is None:
        return ["# no verdict"]
    lines = wrapped(f"VERDICT {printable(result.verdict.text)}")
    if result.fastest_growing is not None:
        lines += wrapped(f"FASTEST GROWING {printable(result.fastest_growing.text)}")
    return lines


def _head(result: ProfileResult) -> list[str]:
    spec = result.spec
    if spec is None:
        return []
    what = spec.plan or f"{spec.formation or 'tcpstore'} {spec.allgather or 'ring-pipelined'}"
    sizes = ", ".join(map(str, spec.n))
    lines = wrapped(
        f"{printable(what)}: {sizes} ranks run here, {spec.repeat} times each; {spec.target} in "
        f"virtual time on {printable(spec.cluster)}"
    )
    if result.total_at_target_s is not None:
        played = all(each.code != "target-not-played" for each in result.warnings)
        how = "simulated" if played else "not played: see the warning target-not-played"
        lines += wrapped(
            f"{spec.target} ranks take {result.total_at_target_s:.4g} s ({how}); below are seconds "
            "of the critical path, whereas emucoll project has means over the ranks"
        )
    return lines


def _findings(findings: Sequence[Finding]) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("entity", "phase", "of", "law", "exponent", "at target", "share", "kind")
    ]
    for each in findings:
        unit = _UNITS.get(each.resource, "")
        share = _NONE if each.share_at_target is None else f"{each.share_at_target:.1%}"
        rows.append(
            (
                each.entity,
                printable(each.phase),
                each.resource,
                " or ".join(each.laws) or each.law,
                _exponent(each),
                f"{each.at_target:.4g} {unit}".rstrip(),
                share,
                each.kind,
            )
        )
    lines = align(_flush(rows, (0, 1, 2, 3, 4)))
    return lines[:1] + [f" {line[1:]}" for line in lines[1:]]


def _exponent(each: Finding | Growing) -> str:
    if each.exponent is None:
        return _NONE
    value, low, high = (
        f"{number:.2f}".replace("-0.00", "0.00") for number in (each.exponent, each.low, each.high)
    )
    return f"{value} [{low}, {high}]"


def _path(links: Sequence[Link]) -> list[str]:
    if not links:
        return []
    rows: list[tuple[str, ...]] = [("who", "phase", "what", "from", "until")]
    for each in links:
        times = (f"{each.from_s:.4g}", f"{each.until_s:.4g}")
        rows.append((each.who, printable(each.phase), each.what, *times))
    title = "critical path at the target: whom everybody waited for, in seconds"
    return [f"# {title}", *align(_flush(rows, (0, 1, 2)))]


def _figures(figures: Sequence[Growing]) -> list[str]:
    """What grows, measured or simulated, over the sizes and at the target."""
    rows: list[tuple[str, ...]] = [
        ("entity", "phase", "of", "smallest", "largest", "law", "exponent", "at target", "kind")
    ]
    for each in figures:
        values = (
            f"{value:.3g} {each.unit}".rstrip() for value in (each.values[0], each.values[-1])
        )
        at_target = _NONE if each.at_target is None else f"{each.at_target:.3g} {each.unit}"
        rows.append(
            (
                each.entity,
                printable(each.phase),
                each.resource,
                *values,
                each.law,
                _exponent(each),
                at_target.rstrip(),
                each.kind,
            )
        )
    return align(_flush(rows, (0, 1, 2, 5, 6)))


def _functions(figures: Sequence[Growing]) -> list[str]:
    """What functions take by themselves, the most at the target first."""
    if not figures:
        return []
    rows: list[tuple[str, ...]] = [
        ("role", "function", "smallest", "largest", "law", "exponent", "at target")
    ]
    for each in sorted(figures, key=lambda each: -(each.at_target or each.values[-1]))[:_SHOWN]:
        values = (f"{value:.3g} s" for value in (each.values[0], each.values[-1]))
        at_target = _NONE if each.at_target is None else f"{each.at_target:.3g} s"
        function = printable(each.function or "")
        rows.append((each.entity, function, *values, each.law, _exponent(each), at_target))
    return ["# own CPU of functions, by samples", *align(_flush(rows, (0, 1, 4, 5)))]


def _flush(rows: Sequence[tuple[str, ...]], left: Sequence[int]) -> list[tuple[str, ...]]:
    """With those columns padded on the right."""
    widths = {column: max(len(row[column]) for row in rows) for column in left}
    return [
        tuple(cell.ljust(widths[i]) if i in widths else cell for i, cell in enumerate(row))
        for row in rows
    ]
