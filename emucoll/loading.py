"""Formations, schedules and plans by name: the registered ones, and a user's own by a dotted path
`package.module:name`, on the same footing.

What can be wrong with a user's is the user's to mend: a UsageError says what was looked for, where,
and what was found.
"""

import difflib
import importlib
import inspect
import os
import sys
import traceback
from functools import lru_cache
from typing import Any, NamedTuple

from emucoll.collectives import ALLGATHERS
from emucoll.collectives.schedule import Schedule
from emucoll.errors import UsageError
from emucoll.formation import FORMATIONS
from emucoll.formation.base import Formation
from emucoll.plans import PLANS
from emucoll.plans.local import LocalWork
from emucoll.plans.nccl import MULTIROOT, with_several_roots
from emucoll.plans.sound import mistakes
from emucoll.plans.steps import Barrier, Gather, Local, Plan
from emucoll.wire.nccl import CheckInLayout


class _Wanted(NamedTuple):
    """What an object must have."""

    attributes: dict[str, type]
    methods: tuple[str, ...]


_FORMATION = "formation"
_ALLGATHER = "AllGather"
_PLAN = "plan"
_WANTED = {
    _FORMATION: _Wanted(
        {
            "server": str,
            "unformed_descriptors": int,
            "formed_descriptors": int,
            "listeners": int,
            "windowable": bool,
            "ranks_per_root": int,
            "check_in": CheckInLayout,
        },
        ("form", "stagger_s"),
    ),
    _ALLGATHER: _Wanted(
        {"name": str, "text": str, "frames": str, "flow": str, "lanes": int},
        ("rounds", "peers", "reach", "exchanges", "traffic"),
    ),
    _PLAN: _Wanted(
        {"name": str, "text": str, "steps": tuple, "listeners": tuple, "p2p": str},
        ("address_book",),
    ),
}


_PACKAGE = os.path.dirname(os.path.abspath(__file__))
_OURS = ("<frozen", _PACKAGE + os.sep, os.path.join(os.path.dirname(_PACKAGE), "harness") + os.sep)
_LIBRARY = os.path.dirname(os.__file__) + os.sep

_folder = ""
"""Where a user's own modules are looked for last."""


def look_in(folder: str) -> None:
    """Find a user's own modules in `folder` too, after everything that is installed."""
    global _folder
    _folder = folder
    if folder not in sys.path:
        sys.path.append(folder)


def is_path(name: str) -> bool:
    """Is it a dotted path, and no registered name?"""
    return ":" in name


def find_formation(name: str) -> Formation:
    """The registered formation, or the user's own. Raises UsageError for one that cannot be loaded
    or is none; KeyError for a name that is not registered.
    """
    if not is_path(name):
        return FORMATIONS[name]
    found: Formation = _load(_FORMATION, name)
    if found.server not in ("root", "store"):
        raise UsageError(
            f"formation {name}: server is {found.server!r}: expected 'root' or 'store'"
        )
    return found


def find_schedule(name: str) -> Schedule:
    """The registered AllGather, or the user's own; errors as for `find_formation`."""
    if not is_path(name):
        return ALLGATHERS[name]
    found: Schedule = _load(_ALLGATHER, name)
    if found.flow not in ("lockstep", "cut-through") or found.frames not in ("sized", "bare"):
        raise UsageError(
            f"AllGather {name}: flow is {found.flow!r} and frames {found.frames!r}: expected "
            "lockstep or cut-through, and sized or bare"
        )
    return found


@lru_cache
def find_plan(name: str) -> Plan:
    """The registered plan, with one root per 128 ranks where `+multiroot` follows its name, or the
    user's own; errors as for `find_formation`.
    """
    if is_path(name):
        if name.endswith(MULTIROOT):
            raise UsageError(
                f"plan {name}: {MULTIROOT} goes with emucoll's own plans; give yours the formation "
                "nccl-multiroot"
            )
        return _sound(name, _load(_PLAN, name))
    plan = PLANS[name.removesuffix(MULTIROOT)]
    return with_several_roots(plan) if name.endswith(MULTIROOT) else plan


def _sound(path: str, plan: Plan) -> Plan:
    """The user's plan, if its parts are what they should be and go together. Raises UsageError."""
    if not isinstance(plan, Plan):
        raise UsageError(f"plan {path}: it is a {type(plan).__name__}: expected an emucoll Plan")
    _check(_FORMATION, f"{path}, its formation", plan.formation)
    for index, step in enumerate(plan.steps):
        if not isinstance(step, Gather | Local | Barrier):
            raise UsageError(
                f"plan {path}: step {index} is {step!r}: expected a Gather, a Local or a Barrier"
            )
        if isinstance(step, Gather):
            _check(_ALLGATHER, f"{path}, of step {index}", step.schedule)
        elif isinstance(step, Local) and not isinstance(step.work, LocalWork):
            raise UsageError(f"plan {path}: step {index}: work is {step.work!r}, no LocalWork")
    for mistake in mistakes(plan):
        raise UsageError(f"plan {path}: {mistake}")
    return plan


@lru_cache
def _load(kind: str, path: str) -> Any:
    """One object a path, so that every part of a process has the same."""
    module_name, _, attribute = path.partition(":")
    if not module_name or not attribute:
        raise UsageError(f"{kind} {path!r}: expected package.module:name")
    found = _attribute(kind, path, _module(kind, path, module_name), attribute)
    if isinstance(found, type):
        try:
            found = found()
        except Exception as error:
            raise UsageError(
                f"{kind} {path}: {attribute} is a class that cannot be made without arguments "
                f"({error}): name an instance"
            ) from error
    _check(kind, path, found)
    return found


def _check(kind: str, path: str, found: Any) -> None:
    """Raise UsageError if `found`, which is at `path`, is none of its kind."""
    attributes, methods = _WANTED[kind]
    missing = [name for name in (*attributes, *methods) if not hasattr(found, name)]
    if missing:
        raise UsageError(
            f"{kind} {path}: what is there, of type {type(found).__name__}, is no {kind}: it lacks "
            f"{', '.join(missing)}"
        )
    for name, expected in attributes.items():
        value = getattr(found, name)
        if not isinstance(value, expected):
            raise UsageError(f"{kind} {path}: {name} is {value!r}: expected {expected.__name__}")
    for name in methods:
        if not callable(getattr(found, name)):
            raise UsageError(f"{kind} {path}: {name} is {getattr(found, name)!r}, no method")
    if kind == _FORMATION and getattr(type(found), "form", None) is Formation.form:
        raise UsageError(f"{kind} {path}: it lacks form: write `async def form(self, rank, job)`")
    if kind == _FORMATION and not inspect.iscoroutinefunction(found.form):
        raise UsageError(f"{kind} {path}: form is no coroutine function: write `async def form`")


def _module(kind: str, path: str, module_name: str) -> Any:
    if not all(part.isidentifier() for part in module_name.split(".")):
        raise UsageError(
            f"{kind} {path}: {module_name!r} is no name of a module: expected package.module:name, "
            "without a path or .py"
        )
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not module_name.startswith(error.name):
            raise UsageError(f"{kind} {path}: {_failure(error)}") from error
        raise UsageError(
            f"{kind} {path}: there is no module {error.name!r} among what is installed nor in "
            f"{_folder or sys.path[-1]} (PYTHONPATH adds other folders)"
        ) from error
    except Exception as error:
        raise UsageError(f"{kind} {path}: {_failure(error)}") from error


def _failure(error: Exception) -> str:
    """What went wrong while a module was imported, and at which line of the user's."""
    return f"importing it failed{told(error)}"


def told(error: BaseException) -> str:
    """` at file:line: Type: text`: the innermost line that is not emucoll's or Python's own."""
    where = f" at {error.filename}:{error.lineno}" if isinstance(error, SyntaxError) else ""
    frames = traceback.extract_tb(error.__traceback__)
    theirs = [frame for frame in frames if _is_theirs(frame.filename)]
    if theirs and not where:
        where = f" at {theirs[-1].filename}:{theirs[-1].lineno}"
    return f"{where}: {type(error).__name__}: {error}"


def _is_theirs(file: str) -> bool:
    """Is it neither emucoll's nor Python's own, where a user's mistake only comes to light?"""
    if file.startswith(_OURS):
        return False
    return not file.startswith(_LIBRARY) or "site-packages" in file


def _attribute(kind: str, path: str, module: Any, attribute: str) -> Any:
    try:
        return getattr(module, attribute)
    except AttributeError:
        names = [name for name in vars(module) if not name.startswith("_")]
        close = difflib.get_close_matches(attribute, names, n=1, cutoff=0.4)
        hint = f": did you mean {close[0]!r}?" if close else ""
        raise UsageError(
            f"{kind} {path}: module {module.__name__} ({getattr(module, '__file__', '?')}) has no "
            f"{attribute!r}{hint}"
        ) from None
