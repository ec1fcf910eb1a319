"""Which of a rank's spans are within which, for whoever draws them one below the other.

Spans come in the order in which they ended. Most nest; two things make them overlap:

- Tasks that a rank runs side by side have spans of their own. They get another lane.
- Where local work was charged, a busy process woke the rank late. What is around that work does not
  count that time: its span begins so much later (`emucoll.trace.Span.excuse`), maybe after some of
  what is within it by name. It is drawn from the first of these on.

Pure: times are numbers of any unit.
"""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Nested:
    """A span, and those within it in the order of time."""

    index: int
    """Among the spans that were given."""
    name: str
    begin: int
    """Where it is to be drawn from: never after one within it."""
    end: int
    within: list["Nested"]


def nest(spans: Iterable[tuple[str, int, int]]) -> list[list[Nested]]:
    """One rank's spans (name, begin, end), in the order of their ends, as lanes: in each those that
    are within no other, in the order of time. Spans of a lane never overlap. Names are dotted:
    `a.b` belongs into `a`.
    """
    lanes: list[list[Nested]] = []
    for index, (name, begin, end) in enumerate(spans):
        for lane in lanes:
            count = _within(lane, name, begin)
            if count is not None:
                break
        else:
            lane, count = [], 0
            lanes.append(lane)
        split = len(lane) - count
        within = lane[split:]
        del lane[split:]
        first = min(begin, within[0].begin) if within else begin
        lane.append(Nested(index, name, first, end, within))
    return lanes


def _within(lane: list[Nested], name: str, begin: int) -> int | None:
    """How many of a lane's last are within a span that ends now; None if one overlaps it."""
    count = 0
    is_late = False
    for other in reversed(lane):
        belongs = other.name.startswith(f"{name}.")
        if is_late and not belongs:
            break
        if not is_late:
            # One without length at the very begin was before it, unless its name says otherwise.
            if other.end < begin or (other.end == begin and not (other.begin == begin and belongs)):
                break
            if other.begin < begin:
                if not belongs:
                    return None
                is_late = True
        count += 1
    return count
