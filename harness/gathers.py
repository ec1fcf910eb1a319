"""What a spec makes the ranks run once the ring has formed, as data.

For all who need to know it: workers run it, the controller hands out its records, preflight counts
it, and the result lists it.
"""

from emucoll.loading import find_schedule
from emucoll.plans.steps import Gather, one_allgather
from harness.spec import Spec


def gathers_of(spec: Spec) -> tuple[Gather, ...]:
    """Its AllGathers, in their order; the last is the one that the spec names."""
    return one_allgather(find_schedule(spec.allgather), spec.record_bytes, spec.nranks)
