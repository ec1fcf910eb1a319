"""The critical path as a result shows it: its short stretches put together."""

from collections.abc import Iterable
from typing import Protocol

from harness.analysis.waits import chain
from harness.planned import plan_of
from harness.results.profile import Link
from harness.results.recording import Recording
from harness.spec import Spec

_LONG_STRETCH = 0.005
"""Of the whole: shorter stretches are put together."""


class Stretch(Protocol):
    """A part of the path."""

    @property
    def who(self) -> str: ...  # noqa: D102
    @property
    def phase(self) -> str: ...  # noqa: D102
    @property
    def what(self) -> str: ...  # noqa: D102
    @property
    def from_s(self) -> float: ...  # noqa: D102
    @property
    def until_s(self) -> float: ...  # noqa: D102


def links(stretches: Iterable[Stretch], total_s: float) -> list[Link]:
    """The path, of `total_s` seconds."""
    least_s = _LONG_STRETCH * total_s
    found: list[Link] = []
    for each in stretches:
        last = found[-1] if found else None
        what = each.what if each.until_s - each.from_s >= least_s else "short"
        link = Link(
            who=each.who, phase=each.phase, what=what, from_s=each.from_s, until_s=each.until_s
        )
        if what != "short" or last is None or last.what != "short":
            found.append(link)
            continue
        found[-1] = Link(
            who=last.who if last.who == link.who else "several",
            phase=last.phase if last.phase == link.phase else "several",
            what="short",
            from_s=last.from_s,
            until_s=link.until_s,
        )
    return found


def links_of_run(spec: Spec, recording: Recording) -> list[Link]:
    """Whom everybody waited for in a run that was recorded, in either world."""
    gathers = {each.phase for each in plan_of(spec).gathers}
    stretches = chain(recording, gathers)
    return links(stretches, stretches[-1].until_s if stretches else 0.0)
