"""Why a run failed, as lines: what, evidence, cause, next, and who waits for whom.

The table ends with them on stdout; a command that never got to a table prints them on stderr.
Text that came from a peer or the command line is made harmless: no control character reaches a
terminal.
"""

import textwrap

from harness.results.schema import Document, RunError, RunResult

_SHOWN = 20
"""More waiting ranks than these are counted, and listed in the JSON."""

_WIDTH = 100


def render_failure(result: Document) -> str:
    """The failure alone, for stderr; empty if there is none."""
    return "".join(f"{line}\n" for line in failure_lines(result, comment=""))


def failure_lines(result: Document, comment: str = "# ") -> list[str]:
    """What `render` shows of it, each line after `comment`; none if the run is ok."""
    lines = _wrong_blocks(result) if isinstance(result, RunResult) else []
    if (error := result.error) is not None:
        lines += [*_block("FAILED", error.what), *_details(error), *_waiting(error)]
    elif not result.ok:
        lines.append("FAILED")
    return [f"{comment}{line}" for line in lines]


def printable(text: str) -> str:
    """`text` with control characters and what UTF-8 can't hold as escapes."""
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape", errors="backslashreplace").decode("ascii")
        for character in text
    )


def _wrong_blocks(result: RunResult) -> list[str]:
    lines = []
    for wrong in result.wrong_blocks:
        block = "" if wrong.block is None else f", block {wrong.block}"
        lines.append(printable(f"WRONG rank {wrong.rank}{block}: {wrong.what}"))
    more = (result.wrong or 0) - len(lines)
    if lines and more > 0:
        lines.append(f"and {more} more wrong blocks")
    return lines


def _details(error: RunError) -> list[str]:
    lines = []
    places = {
        "rank": error.rank,
        "phase": error.phase,
        "peer": error.peer,
        "worker": error.worker,
    }
    where = ", ".join(f"{name} {value}" for name, value in places.items() if value is not None)
    for label, text in (
        ("where", where or None),
        ("evidence", error.evidence),
        ("cause", error.cause),
        ("next", error.next),
    ):
        if text is not None:
            lines += _block(f"  {label}", text)
    return lines


def _waiting(error: RunError) -> list[str]:
    if not error.waiting:
        return []
    lines = ["  who waits for whom:"]
    for waiting in error.waiting[:_SHOWN]:
        whom = f"rank {waiting.for_}" if isinstance(waiting.for_, int) else waiting.for_
        phase = "" if waiting.phase is None else f" in {waiting.phase}"
        lines.append(
            printable(f"    rank {waiting.rank}{phase} waits for {whom or 'what it did not say'}")
        )
    if (more := len(error.waiting) - _SHOWN) > 0:
        lines.append(f"    and {more} more (--json lists them all)")
    return lines


def _block(label: str, text: str) -> list[str]:
    """`label: text`, wrapped, with the lines of `text` (a traceback's, say) kept apart."""
    lines = []
    for line in text.splitlines() or [""]:
        indented = printable(line.replace("\t", "    "))
        lines += textwrap.wrap(
            indented, _WIDTH - 12, break_long_words=False, break_on_hyphens=False
        ) or [""]
    first, *rest = lines
    margin = " " * (len(label) + 2)
    return [f"{label}: {first}", *(f"{margin}{line}".rstrip() for line in rest)]
