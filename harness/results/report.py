"""The parts of emucoll.report/1: what a report shows, and what it could not show. Calculates
nothing.
"""

from typing import ClassVar

import msgspec

from harness.results.schema import Document


class Missing(msgspec.Struct, frozen=True, kw_only=True):
    """A part that the page has not."""

    what: str
    """The name that it would have in `sections`."""
    why: str
    next: str
    """What makes its data."""


class ReportResult(Document, kw_only=True, tag="emucoll.report/1"):
    """One page about what a directory holds. `kind` and `spec` are null: nothing was run."""

    schema: ClassVar[str] = "emucoll.report/1"

    of: str | None = None
    """The schema of what it is about."""
    file: str | None = None
    bytes: int | None = None
    sections: list[str] = msgspec.field(default_factory=list)
    """What is shown, in the page's order."""
    missing: list[Missing] = msgspec.field(default_factory=list)
    beside: list[str] = msgspec.field(default_factory=list)
    """Files that were written beside it: flame graphs and speedscope files, by role."""
