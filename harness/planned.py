"""The plan that a spec makes the ranks run: a plan by name, or a formation and one AllGather.

For all who need to know it: workers run it, the controller hands out its records, preflight counts
it, and the result lists it.
"""

from emucoll.loading import find_formation, find_plan, find_schedule
from emucoll.plans.local import Extent
from emucoll.plans.steps import Plan, one_allgather
from harness.spec import Spec

DEFAULT_CHANNELS = 2


def plan_of(spec: Spec) -> Plan:
    """What its ranks run. Errors as for `emucoll.loading`."""
    if spec.plan is not None:
        return find_plan(spec.plan)
    assert spec.allgather is not None and spec.record_bytes is not None, "without a plan"
    schedule = find_schedule(spec.allgather)
    return one_allgather(find_formation(spec.formation), schedule, spec.record_bytes, spec.nranks)


def extent_of(spec: Spec) -> Extent:
    """What the length of its loops depends on."""
    return Extent(spec.nranks, spec.ranks_per_host, spec.channels or DEFAULT_CHANNELS)
