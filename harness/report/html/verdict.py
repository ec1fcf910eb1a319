"""What came of it, first thing."""

from harness.report.html.material import Material
from harness.report.html.parts import Block, Section, Table, Text, count, seconds
from harness.results.profile import ProfileResult
from harness.results.schema import Document, Phase, RunError, RunResult

SATURATED = (
    "This run was saturated: the harness's own CPU was the limit, so its wall times are not a "
    "cluster's. Counts, bytes and CPU seconds carry over, seconds do not."
)
SHOWN_WAITING = 20


def section(material: Material) -> Section:
    """Always there."""
    result = material.result
    blocks = _of_run(result) if isinstance(result, RunResult) else _of_profile(result)
    return Section("verdict", "Verdict", [*blocks, *_failure(result)])


def _of_run(result: RunResult) -> list[Block]:
    blocks: list[Block] = []
    if result.total_s is not None:
        blocks.append(Text(_sentence(result), "lead"))
    if result.saturated:
        blocks.append(Text(SATURATED, "bad"))
    return blocks


def _sentence(result: RunResult) -> str:
    kind = "" if result.kind is None else f" ({result.kind})"
    text = f"{count(result.nranks)} ranks took {seconds(result.total_s)} to the last one done{kind}"
    largest = largest_phase(result)
    if largest is not None and largest.mean_s is not None:
        text += f"; the largest phase was {largest.name}, {seconds(largest.mean_s)} in the mean"
        if result.mean_total_s:
            text += f", {largest.mean_s / result.mean_total_s:.0%} of a rank's own total"
    if result.wrong is not None:
        text += f"; {count(result.wrong)} blocks were wrong"
    return f"{text}. {'All is well.' if result.ok else 'It failed.'}"


def largest_phase(result: RunResult) -> Phase | None:
    """Of those within which no other is, and which are of a rank's own total."""
    names = {phase.name for phase in result.phases}
    outer = {phase.within for phase in result.phases}
    own = [
        phase
        for phase in result.phases
        if phase.name not in outer and (phase.within is None or phase.within in names)
    ]
    return max(own, key=lambda phase: phase.mean_s or 0.0, default=None)


def _of_profile(result: ProfileResult) -> list[Block]:
    blocks: list[Block] = []
    if result.verdict is not None:
        blocks.append(Text(result.verdict.text, "lead"))
    if result.fastest_growing is not None:
        blocks.append(Text(f"Fastest growing: {result.fastest_growing.text}"))
    if result.total_at_target_s is not None and result.spec is not None:
        played = all(each.code != "target-not-played" for each in result.warnings)
        how = "in virtual time" if played else "carried on from smaller sizes, not played"
        blocks.append(
            Text(
                f"{count(result.spec.target)} ranks take {seconds(result.total_at_target_s)} "
                f"({how})" + ("" if result.cluster is None else f" on: {result.cluster}"),
                "plain",
            )
        )
    return blocks


def _failure(result: Document) -> list[Block]:
    if result.error is None:
        return [] if result.ok else [Text("FAILED", "bad")]
    error = result.error
    rows = [
        (name, str(value))
        for name, value in (
            ("rank", error.rank),
            ("phase", error.phase),
            ("peer", error.peer),
            ("worker", error.worker),
            ("evidence", error.evidence),
            ("likely cause", error.cause),
            ("next", error.next),
        )
        if value is not None
    ]
    blocks: list[Block] = [Text(f"FAILED: {error.what}", "bad")]
    if rows:
        blocks.append(Table(("", ""), rows, words=2))
    return [*blocks, *_waiting(error), *_wrong(result)]


def _waiting(error: RunError) -> list[Block]:
    if not error.waiting:
        return []
    rows = [
        (
            str(each.rank),
            each.phase or "-",
            "not told" if each.for_ is None else str(each.for_),
        )
        for each in error.waiting[:SHOWN_WAITING]
    ]
    more = len(error.waiting) - len(rows)
    caption = "Who waited for whom" + (f" (and {more} more)" if more > 0 else "")
    return [Table(("rank", "in phase", "for"), rows, words=3, caption=caption)]


def _wrong(result: Document) -> list[Block]:
    if not isinstance(result, RunResult) or not result.wrong_blocks:
        return []
    rows = [
        (str(each.rank), "-" if each.block is None else str(each.block), each.what)
        for each in result.wrong_blocks
    ]
    head = ("rank", "block", "what")
    return [Table(head, rows, words=3, caption="Wrong blocks, the least travelled first")]
