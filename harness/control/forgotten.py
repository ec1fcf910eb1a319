"""A coroutine that a user's code makes and never awaits: said at once, not when a deadline ends the
wait for what it would have done. In whichever world ranks run.
"""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from emucoll.errors import UsageError

_SAYS = "was never awaited"


@contextmanager
def forgotten_awaits(tell: Callable[[UsageError], None]) -> Iterator[None]:
    """Python warns of them as soon as nothing holds them: `tell` hears it, with file and line.
    Other warnings go where they went.
    """

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if issubclass(category, RuntimeWarning) and _SAYS in str(message):
            what = str(message).partition("\n")[0]
            tell(UsageError(f"{what}: put await in front of it, at {filename}:{lineno} or before"))
        else:
            before(message, category, filename, lineno, file, line)

    with warnings.catch_warnings():
        warnings.filterwarnings("always", message=f".*{_SAYS}", category=RuntimeWarning)
        before = warnings.showwarning
        warnings.showwarning = show
        yield
