"""What to say when a name is not known: the nearest one, and all there are.

Every command that takes a name says it in these words. Knows no registry: the names are an
argument.
"""

import difflib
from collections.abc import Iterable

from emucoll.errors import UsageError


def nearest(name: str, names: Iterable[str], ending: str = "") -> str:
    """`did you mean 'ring'? (there are: ring, ring-pipelined)`; without the question where nothing
    comes near. `ending` is what may follow a name.
    """
    known = sorted(set(names))
    if not known:
        return "(there are none)"
    there_are = f"(there are: {', '.join(known)}{f', some with {ending}' if ending else ''})"
    candidates = [*known, *(each + ending for each in known)] if "+" in name else known
    folded = {candidate.casefold(): candidate for candidate in candidates}
    close = difflib.get_close_matches(name.strip().casefold(), folded, n=1, cutoff=0.4)
    return f"did you mean {folded[close[0]]!r}? {there_are}" if close else there_are


def unknown(what: str, name: str, names: Iterable[str], ending: str = "") -> UsageError:
    """The error for a `what` ("formation", "AllGather" …) that nothing is registered for."""
    return UsageError(f"no {what} is called {name!r}: {nearest(name, names, ending)}")
