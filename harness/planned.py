"""The plan that a spec makes the ranks run: a plan by name, or a formation and one AllGather.

For all who need to know it: workers run it, the controller hands out its records, preflight counts
it, and the result lists it.
"""

import numpy as np
import numpy.typing as npt

from emucoll.formation import FORMATIONS
from emucoll.formation.base import Formation
from emucoll.formation.nccl import NcclMultiRoot, NcclRoot
from emucoll.loading import find_formation, find_plan, find_schedule
from emucoll.plans.local import Extent, split_sort
from emucoll.plans.steps import Local, Plan, one_allgather
from harness.groups import GroupKind
from harness.spec import Spec

DEFAULT_CHANNELS = 2


def plan_of(spec: Spec) -> Plan:
    """What its ranks run. Errors as for `emucoll.loading`."""
    if spec.plan is not None:
        return find_plan(spec.plan)
    assert spec.allgather is not None and spec.record_bytes is not None, "without a plan"
    schedule = find_schedule(spec.allgather)
    return one_allgather(find_formation(spec.formation), schedule, spec.record_bytes, spec.nranks)


def formation_name(spec: Spec) -> str:
    """What the command line calls its formation."""
    return spec.formation if spec.plan is None else find_plan(spec.plan).formation.name


def servers_of(spec: Spec) -> tuple[str, ...]:
    """The kinds of servers that it needs, "root" and "store": the plan's, and its groups'."""
    plan = plan_of(spec)
    groups = group_formation(spec, plan) if spec.groups else None
    more = () if groups is None else (groups.server,)
    return tuple(dict.fromkeys((*plan.servers, *more)))


def group_formation(spec: Spec, plan: Plan) -> Formation | None:
    """How the ring of a process group forms; None for a split, whose parent has connections."""
    if spec.group_init == "ncclx":
        return FORMATIONS["tcpstore"]
    if spec.group_init == "split":
        return None
    formation = plan.formation
    if isinstance(formation, NcclMultiRoot):
        return NcclRoot(formation.check_in, formation.tries)
    return formation if isinstance(formation, NcclRoot) else NcclRoot()


def group_roots(spec: Spec) -> tuple[int, ...]:
    """How many ranks each root of a process group has, kind by kind; none without such roots."""
    if spec.group_init != "new":
        return ()
    return tuple(len(kind.members(i)) for kind in spec.groups for i in range(kind.count))


def split_colors(kind: GroupKind, nranks: int) -> npt.NDArray[np.int32]:
    """(color, key) of every rank of a split, shape (nranks, 2): -1 where it is in no group."""
    colors = np.full((nranks, 2), -1, dtype=np.int32)
    for index in range(kind.count):
        for position, rank in enumerate(kind.members(index)):
            colors[rank] = index, position
    return colors


def split_sorts(spec: Spec) -> tuple[Local, ...]:
    """With which each rank finds its group in each split's colors and keys, kind by kind."""
    if spec.group_init != "split":
        return ()
    return tuple(
        Local(
            f"groups.{kind.name}.sort",
            split_sort(split_colors(kind, spec.nranks), kind.size),
        )
        for kind in spec.groups
    )


def locals_of(spec: Spec) -> tuple[Local, ...]:
    """All local work of every rank."""
    return (*plan_of(spec).locals, *split_sorts(spec))


def iterations_of(spec: Spec) -> int:
    """Of one rank's loops."""
    extent = extent_of(spec)
    return sum(each.work.iterations(extent) * each.work.calls(extent) for each in locals_of(spec))


def extent_of(spec: Spec) -> Extent:
    """What the length of its loops depends on."""
    return Extent(spec.nranks, spec.ranks_per_host, spec.channels or DEFAULT_CHANNELS)
