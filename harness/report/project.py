"""A projection as text: `#` lines in the manner of the run's table. Each line that does not begin
with `#` is one plan at one size.

Shows what the result holds and computes nothing.
"""

from collections.abc import Sequence

from harness.report.failure import printable
from harness.report.table import align, joined, kept_with_picture, number, wrapped
from harness.results.projection import ProjectedPhase, ProjectedPlan, ProjectResult
from harness.results.storage import PROJECTION_FILE, RESULT_FILE
from harness.results.training import Input

_NONE = "-"
_LEAST_SHARE = 0.001
"""Of the total: phases with less are in the JSON alone."""


def render_project(result: ProjectResult) -> str:
    """All of it, for stdout; ends with a newline."""
    blocks = [
        _head(result),
        _plans(result.plans),
        *(_phases(plan) for plan in result.plans),
        _speed_ups(result),
        _published(result),
        _sensitivities(result),
        _inputs(result.inputs),
        _grounds(result),
        [line for each in result.warnings for line in wrapped(f"WARNING {each.code}: {each.text}")],
        _what_it_cannot_tell(),
        kept_with_picture(
            None if result.spec is None else result.spec.out, RESULT_FILE, PROJECTION_FILE
        ),
    ]
    return joined(blocks)


def _head(result: ProjectResult) -> list[str]:
    lines = ["# initialization: projected, no rank was run on such a cluster"]
    if result.spec is not None:
        lines += wrapped(f"cluster {printable(result.spec.cluster)}: {result.cluster}")
        lines += wrapped(f"rank order: {printable(result.spec.rank_order)}")
    return lines


def _plans(plans: Sequence[ProjectedPlan]) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("plan", "n", "total", "low", "high", "held-out", "largest phase"),
        ("", "", "(s)", "(5 %)", "(95 %)", "error", ""),
    ]
    for plan in plans:
        error = _NONE if plan.held_out_error is None else f"{plan.held_out_error:.1%}"
        rows.append(
            (
                printable(plan.name),
                str(plan.n),
                *map(_seconds, (plan.total_s, plan.low_s, plan.high_s)),
                error,
                printable(plan.largest_phase),
            )
        )
    lines = align(rows, left=0)
    # What is data has no mark before it.
    return lines[:2] + [f" {line[1:]}" for line in lines[2:]]


def _phases(plan: ProjectedPlan) -> list[str]:
    rows: list[tuple[str, ...]] = [("phase", "seconds", "low", "high", "share", "law")]
    for phase in _in_order(plan.phases):
        if phase.seconds < _LEAST_SHARE * plan.total_s:
            continue
        name = phase.name if phase.within is None else f"  {phase.name}"
        share = phase.seconds / plan.total_s if plan.total_s else 0.0
        numbers = map(_seconds, (phase.seconds, phase.low_s, phase.high_s))
        rows.append((printable(name), *numbers, f"{share:.1%}", phase.law))
    names, laws = (max(len(row[column]) for row in rows) for column in (0, 5))
    flush = [(row[0].ljust(names), *row[1:5], row[5].ljust(laws)) for row in rows]
    title = f"{printable(plan.name)}, {plan.n} ranks, by phase"
    return [f"# {title}", *(line.rstrip() for line in align(flush))]


def _in_order(phases: Sequence[ProjectedPhase]) -> list[ProjectedPhase]:
    """Each followed by those within it."""
    outermost = [phase for phase in phases if phase.within is None]
    return [
        each
        for outer in outermost
        for each in (outer, *(phase for phase in phases if phase.within == outer.name))
    ]


def _speed_ups(result: ProjectResult) -> list[str]:
    lines: list[str] = []
    for each in result.speed_ups:
        between = "" if each.low is None else f" (between {each.low:.3g} and {each.high:.3g})"
        lines += wrapped(
            f"{each.n} ranks: {printable(each.base)} takes {each.ratio:.3g} times as long as "
            f"{printable(each.plan)}{between}"
        )
    return lines


def _published(result: ProjectResult) -> list[str]:
    if not result.published:
        return []
    rows: list[tuple[str, ...]] = [("published", "as", "n", "seconds")]
    for each in result.published:
        rows.append((each.system, each.plan, str(each.n), f"{each.seconds:g}"))
    sources = dict.fromkeys(each.source for each in result.published)
    text = (
        "These are totals with a GPU's own work in them, which plans leave out: emucoll validate "
        "--published lays both side by side."
    )
    return align(rows) + wrapped(f"{'; '.join(sources)}. {text}")


def _sensitivities(result: ProjectResult) -> list[str]:
    if not result.sensitivities:
        return []
    rows: list[tuple[str, ...]] = [("1 % more of", "makes", f"at {result.sensitivities[0].n}")]
    for each in sorted(result.sensitivities, key=lambda one: (one.plan, -abs(one.elasticity))):
        rows.append((each.value, printable(each.plan), f"{each.elasticity:+.2f} %"))
    names, plans = (max(len(row[column]) for row in rows) for column in (0, 1))
    return align([(row[0].ljust(names), row[1].ljust(plans), row[2]) for row in rows])


def _inputs(inputs: Sequence[Input]) -> list[str]:
    rows: list[tuple[str, ...]] = [("value", "is", "low", "high")]
    for each in inputs:
        rows.append((each.name, *(number(one) for one in (each.value, each.low, each.high))))
    names = max(len(row[0]) for row in rows)
    return align([(row[0].ljust(names), *row[1:]) for row in rows])


def _grounds(result: ProjectResult) -> list[str]:
    rows: list[tuple[str, ...]] = [
        ("checked against runs", "points", "at most n", "error", "worst")
    ]
    for each in result.grounds:
        errors = (f"{each.error:.1%}", f"{each.worst:.1%}")
        rows.append((printable(each.part), str(each.points), str(each.largest_n), *errors))
    names = max(len(row[0]) for row in rows)
    return align([(row[0].ljust(names), *row[1:]) for row in rows])


def _what_it_cannot_tell() -> list[str]:
    return wrapped(
        "What this cannot tell: GPU work, topology search and connections to peers are in no plan; "
        "networks are taken to have no queues, hosts to have a core for every rank. Between low "
        "and high lie 90 % of what the cluster's ranges allow; the held-out error is how far the "
        "model was off in runs that it did not see, and is not part of them."
    )


def _seconds(value: float | None) -> str:
    return _NONE if value is None else f"{value:.4g}"
