"""The names that there are for plans, formations and AllGathers, beside `module:name`."""

from typing import Literal

from emucoll.collectives import ALLGATHERS
from emucoll.errors import UsageError
from emucoll.formation import FORMATIONS
from emucoll.loading import is_path
from emucoll.plans import PLANS
from emucoll.plans.nccl import MULTIROOT
from harness.suggest import unknown

_YOUR_OWN = "module:name is your own"


def refuse_unknown(what: Literal["plan", "formation", "AllGather"], name: str) -> None:
    """Raise UsageError, with the nearest, for a name that is none; one of the user's own is looked
    for elsewhere.
    """
    if is_path(name):
        return
    if what == "plan":
        if name.removesuffix(MULTIROOT) not in PLANS:
            raise UsageError(f"{unknown(what, name, PLANS, MULTIROOT)}; {_YOUR_OWN}")
        return
    registry = FORMATIONS if what == "formation" else ALLGATHERS
    if name not in registry:
        raise UsageError(f"{unknown(what, name, registry)}; {_YOUR_OWN}")
