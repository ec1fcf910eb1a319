"""A comparison as text: `#` lines in the manner of the run's table, one block a communicator.

Shows what the result holds and computes nothing.
"""

from collections.abc import Sequence

from harness.report.failure import failure_lines, printable
from harness.report.table import align, wrapped
from harness.results.schema import CompareResult, LogCommunicator, LogPhase, Row

SHOWN = 8
"""More communicators than these are counted, and listed in the JSON."""
_NONE = "-"


def render_compare(result: CompareResult) -> str:
    """The whole comparison, for stdout; ends with a newline."""
    blocks = [_operands(result)]
    for communicator in _shown(result):
        blocks.append(_head(communicator))
        blocks.append(_phases(communicator.phases))
        rows = [row for row in result.rows if row.communicator == communicator.index]
        blocks.append(_beside(rows))
        blocks.append([line for text in communicator.findings for line in wrapped(f"- {text}")])
    more = len(result.communicators) - SHOWN
    if more > 0:
        blocks.append([f"# and {more} more communicators (--json lists them all)"])
    blocks.append([line for text in result.findings for line in wrapped(text)])
    blocks.append(
        [line for each in result.warnings for line in wrapped(f"WARNING {each.code}: {each.text}")]
    )
    blocks.append(failure_lines(result))
    lines: list[str] = []
    for block in filter(None, blocks):
        lines += [*block, "#"]
    return "\n".join(lines[:-1]) + "\n"


def _shown(result: CompareResult) -> list[LogCommunicator]:
    """Those that are compared first, then the others, in their own order."""
    compared = {row.communicator for row in result.rows}
    order = sorted(result.communicators, key=lambda each: each.index not in compared)
    return order[:SHOWN]


def _operands(result: CompareResult) -> list[str]:
    lines = []
    for operand in result.operands:
        what = "run" if operand.kind == "run" else "NCCL logs"
        names = ", ".join(map(printable, operand.names[:4]))
        if len(operand.names) > 4:
            names += f" and {len(operand.names) - 4} more"
        lines += wrapped(f"{operand.role} {what} {names}: {operand.text}")
    if result.versions:
        versions = (
            f"{name} ({count} process{'es' if count > 1 else ''})"
            for name, count in result.versions.items()
        )
        lines += wrapped(f"versions {', '.join(versions)}")
    return lines


def _head(communicator: LogCommunicator) -> list[str]:
    parts = [f"communicator {communicator.index}:"]
    parts += filter(None, (communicator.function, communicator.comm_id))
    if communicator.is_split:
        parent = "an unseen one" if communicator.parent is None else str(communicator.parent)
        parts.append(f"child of {parent}")
        if communicator.child_count is not None:
            parts.append(f"count {communicator.child_count}")
        if communicator.color is not None:
            parts.append(f"color {communicator.color}")
    if communicator.generation:
        parts.append(f"generation {communicator.generation}")
    if communicator.nranks is None:
        parts.append(f"of unknown size, {communicator.seen} seen")
    else:
        parts.append(
            f"nranks {communicator.nranks}, {communicator.seen} seen, {communicator.unseen} unseen"
        )
    told = []
    if communicator.incomplete:
        told.append(f", {communicator.incomplete} incomplete")
    if communicator.nodes is not None:
        told.append(f", {communicator.nodes} node{'s' if communicator.nodes > 1 else ''}")
    if communicator.slowest_rank is not None:
        told.append(f", slowest rank {communicator.slowest_rank}")
    return wrapped(" ".join(parts) + "".join(told))


def _phases(phases: Sequence[LogPhase]) -> list[str]:
    if not phases:
        return ["# no timings"]
    rows: list[tuple[str, ...]] = [
        ("phase", "ranks", "mean", "p50", "p99", "max", "of rank", "share", "by rank"),
        ("", "", "(s)", "(s)", "(s)", "(s)", "", "", ""),
    ]
    for phase in phases:
        indent = "" if phase.within is None else "  "
        times = (phase.mean_s, phase.p50_s, phase.p99_s, phase.max_s)
        rows.append(
            (
                indent + printable(phase.name),
                str(phase.ranks),
                *(_seconds(time, phase.within is not None) for time in times),
                _NONE if phase.max_rank is None else str(phase.max_rank),
                _percent(phase.share),
                _range(phase.share_min, phase.share_max),
            )
        )
    return align(rows)


def _beside(rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    lines: list[tuple[str, ...]] = [
        ("beside the run", "emulated", "share", "real", "share", "ratio", "verdict", "note"),
        ("", "(s)", "", "(s)", "", "", "", ""),
    ]
    for row in rows:
        fine = row.metric.startswith("bootstrap")
        lines.append(
            (
                ("  " if "." in row.metric else "") + printable(row.metric),
                _seconds(row.base, fine),
                _percent(row.base_share),
                _seconds(row.candidate, fine),
                _percent(row.candidate_share),
                _NONE if row.ratio is None else f"{row.ratio:.3g}",
                row.verdict or _NONE,
                row.note or "" if row.base is not None else "",
            )
        )
    # The last column is text: flush left, as its heading.
    width = max(len(line[-1]) for line in lines)
    table = align([(*line[:-1], line[-1].ljust(width)) for line in lines])
    if any(row.base is None for row in rows):
        table.append("# emulated -: the run has no such phase")
    return table


def _seconds(value: float | None, fine: bool) -> str:
    """With the decimals that the log has."""
    if value is None:
        return _NONE
    return f"{value:.6f}" if fine else f"{value:.3f}"


def _percent(share: float | None) -> str:
    return _NONE if share is None else f"{share:.1%}"


def _range(low: float | None, high: float | None) -> str:
    if low is None or high is None:
        return _NONE
    return _percent(low) if low == high else f"{low:.1%}-{high:.1%}"
