"""Bottlenecks that are known, and what avoids them. Data and lookups only."""

from typing import NamedTuple

from emucoll.plans.steps import Plan

GATHERS = "AllGathers"
"""All of a plan's together, where it has several."""


def names_of(plan: Plan) -> dict[str, str]:
    """What the phases of its AllGathers are called in a profile."""
    phases = [gather.phase for gather in plan.gathers]
    return dict.fromkeys(phases, GATHERS) if len(phases) > 1 else {}


class Known(NamedTuple):
    """A way to scale badly."""

    name: str
    fix: str


STAGGER = Known("fixed stagger", "a stagger by rate (NCCL 2.23 and later), or several roots")
ONE_ROOT = Known(
    "one root serves everybody in turn",
    "several roots (+multiroot), or a ring through a TCPStore (ncclx)",
)
STORE = Known("one store serves everybody", "a key per neighbour, multi-get, an event loop in C++")
STEPS = Known(
    "the step chain of ring AllGathers",
    "both ways round (NCCL 2.28.7 and later), fewer of them, without the sizes",
)
RING_CHECK = Known("ring check by nested loops", "a bitmap (nccl #1789; nccl-2.28.9 and ncclx)")
PAIRS = Known("a loop over pairs of ranks", "a hash, or one pass (nccl #1789)")
BACKLOG = Known("a connect storm overflows a backlog", "a larger somaxconn, retries with jitter")
POLLING = Known("busy polling", "poll, or wait for an event")
CONNECTIONS = Known("connections grow with the ranks", "keep them, or connect when needed")
MEMORY = Known("each rank keeps what grows with the ranks", "trim the record, share what is alike")

_BY_PHASE = {
    "bootstrap.delay": STAGGER,
    "allgathers.ring_check": RING_CHECK,
    "rest.same_process": PAIRS,
    "allgathers.duplicate_gpu": PAIRS,
    GATHERS: STEPS,
}
_BY_ENTITY = {"root": ONE_ROOT, "store": STORE}
_BY_RESOURCE = {"connections": CONNECTIONS, "memory": MEMORY}


def known(entity: str, phase: str, resource: str, what: str | None = None) -> Known | None:
    """What is known of such a finding; `what` is a piece of the critical path's."""
    if what == "syn-retry":
        return BACKLOG
    for table, key in ((_BY_RESOURCE, resource), (_BY_PHASE, phase), (_BY_ENTITY, entity)):
        if key in table:
            return table[key]
    return None
