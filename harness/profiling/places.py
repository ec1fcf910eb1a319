"""Where in the code a phase is: the line that opens its span, the loop, the schedule."""

import inspect
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from emucoll.plans.steps import Plan
from harness.profiling.known import GATHERS


def of_plan(plan: Plan) -> dict[str, str]:
    """By phase, where what a plan only names is written: its loops and its AllGathers."""
    found = {each.phase: of_code(each.work.code) for each in plan.locals}
    found["bootstrap"] = of_code(type(plan.formation).form)
    for gather in plan.gathers:
        found[gather.phase] = of_code(type(gather.schedule).exchanges)
        found[GATHERS] = found[gather.phase]
    return {phase: place for phase, place in found.items() if place is not None}


def of_code(code: Callable[..., Any]) -> str | None:
    """`file:line in name`; None for what has no source."""
    try:
        code = inspect.unwrap(code)
        file, line = inspect.getsourcefile(code), inspect.getsourcelines(code)[1]
    except (OSError, TypeError):
        return None
    return None if file is None else _place(file, line, code.__qualname__)


def of_span(inside: FrameType | None) -> str | None:
    """Of the `with` whose span is being entered; `inside` is a frame that entering it has called.
    None: it is being left.
    """
    while inside is not None and inside.f_code.co_name not in ("__enter__", "__exit__"):
        inside = inside.f_back
    if inside is None or inside.f_code.co_name == "__exit__" or inside.f_back is None:
        return None
    frame = inside.f_back
    return _place(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_qualname)


def _place(file: str, line: int, name: str) -> str:
    return f"{_short(file)}:{line} in {name}"


def _short(file: str) -> str:
    """From the folder on that Python found it in, which is how a user knows it."""
    folders = [os.path.abspath(folder) for folder in (*sys.path, os.getcwd())]
    inside = [folder for folder in folders if file.startswith(folder + os.sep)]
    return os.path.relpath(file, max(inside, key=len)) if inside else file
