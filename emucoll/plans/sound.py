"""Whether the parts of a plan go together: what its ranks could not run, or nobody could read."""

import re
from collections.abc import Iterator

from emucoll.plans.steps import RING, Barrier, Gather, Plan, Published
from emucoll.wire.address import ADDRESS_BYTES

_PHASE = re.compile(r"[a-z][a-z0-9_]*\.[A-Za-z0-9_-]+", re.ASCII)
_TAKEN = {
    f"bootstrap.{name}"
    for name in (
        "accept", "barrier", "connect", "create", "create_store", "delay", "get_key", "listen",
        "recv", "send", "set_key",
    )
}  # fmt: skip
"""Phases of formations and of the harness."""
_OTHERS = ("groups", "pytorch")
"""Timers that are not a plan's steps'."""
_INT_MAX = 2**31 - 1


def mistakes(plan: Plan) -> Iterator[str]:
    """What is wrong with `plan`, whose parts are of the right types."""
    if plan.p2p not in plan.published:
        yield f"p2p is {plan.p2p!r}: expected one of its listeners, {', '.join(plan.published)}"
    if len(set(plan.published)) < len(plan.published):
        yield f"two listeners have one name: {', '.join(plan.published)}"
    if not plan.gathers:
        yield "it has no AllGather"
    yield from _phases(plan)
    known: set[str] = set()
    for step in plan.steps:
        match step:
            case Gather():
                yield from _gather(plan, step, known)
                known.update(published.listener for published in step.addresses)
            case Barrier() if plan.p2p not in known:
                yield (
                    f"{step.phase} connects to peers at their {plan.p2p!r} listeners: an AllGather "
                    "of those addresses has to come before"
                )


def _phases(plan: Plan) -> Iterator[str]:
    phases = [step.phase for step in plan.steps]
    for phase in phases:
        if not isinstance(phase, str) or not _PHASE.fullmatch(phase):
            yield (
                f"phase {phase!r}: expected TIMER.NAME, the timer that covers it and its own name, "
                "as in allgathers.peer_info; what no timer covers is rest.NAME"
            )
        elif phases.count(phase) > 1:
            yield f"two steps have the phase {phase!r}: name them apart"
        elif phase in _TAKEN or phase.partition(".")[0] in _OTHERS:
            yield f"phase {phase!r} is emucoll's own: name the step otherwise"


def _gather(plan: Plan, gather: Gather, known: set[str]) -> Iterator[str]:
    size = gather.record_bytes
    if not isinstance(size, int) or not 0 <= size <= _INT_MAX:
        yield f"{gather.phase}: record_bytes is {size!r}: expected 0 to {_INT_MAX}"
        return
    addresses = gather.addresses
    if not isinstance(addresses, tuple) or not all(isinstance(a, Published) for a in addresses):
        yield (
            f"{gather.phase}: addresses are {addresses!r}: expected a tuple of Published, as in "
            '(Published("ring", 0),)'
        )
        return
    for listener, at in addresses:
        if listener not in plan.published or not 0 <= at <= size - ADDRESS_BYTES:
            yield (
                f"{gather.phase} has no address of a listener {listener!r} at byte {at} of its "
                f"{size}: listeners are {', '.join(plan.published)}, an address takes "
                f"{ADDRESS_BYTES} bytes"
            )
    if gather.schedule.peers(2) and RING not in known:
        yield (
            f"{gather.phase} is {gather.schedule.name}, which connects to peers: an AllGather of "
            f"their {RING!r} addresses has to come before"
        )
