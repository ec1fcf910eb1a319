"""Which rank the others waited for while they formed the ring, from their Bootstrap timings.

Two witnesses. In recv a rank waits for the root's answer, which needs the check-in of rank + 1:
one long recv among short ones names the next rank, seen or not. And all ranks leave the first
AllGather together, so that a rank whose bootstrap took less than the longest came later by the
difference.

Holds true: a rank is named only where a line speaks for it, and who is not in the logs is called
unseen, never failed. Where recv is long for most ranks nobody is late: the root is slow. Must not
know the logs' lines nor how this is shown.
"""

from dataclasses import dataclass
from statistics import median

from harness.analysis.init_log import Communicator, Member
from harness.results.schema import LateRank

LEAST_S = 0.01
"""Shorter waits than this are not worth a name."""
LEAST_SHARE = 0.02
"""Nor are those of a smaller share of the slowest rank's Init."""
LONG = 0.5
"""A wait is long if it is this share of the bootstrap."""
APART = 3.0
"""A long recv names a rank if it is so many times the others' median."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Late ranks, the latest first, and what else the waits say."""

    late: list[LateRank]
    notes: list[str]


def arrivals(communicator: Communicator) -> Arrivals:
    """Who came late to the bootstrap of `communicator`. Empty where no line tells."""
    nranks = communicator.nranks
    if nranks is None or nranks < 2:
        return Arrivals([], [])
    members = communicator.members
    recvs = {
        rank: member.bootstrap.parts["recv"]
        for rank, member in members.items()
        if member.bootstrap is not None and member.bootstrap.whole
    }
    spans = {rank: span for rank in members if (span := _span(members[rank])) is not None}
    waiting = {rank: recv for rank, recv in recvs.items() if _is_long(recv, spans.get(rank))}
    notes = []
    late: dict[int, LateRank] = {}
    if len(waiting) > 1 and len(waiting) > len(recvs) / 2:
        notes.append(
            f"recv is long at {len(waiting)} of {len(recvs)} ranks: the root, or the way to it, is "
            "slow; no single rank is late by it"
        )
    else:
        late |= _by_recv(waiting, recvs, spans, nranks)
    late |= _by_span(spans, late)
    if not late and not notes:
        notes += _by_ring(communicator, nranks)
    totals = [member.init.total or 0.0 for member in members.values() if member.init is not None]
    least_s = LEAST_SHARE * max(totals, default=0.0)
    worth = [each for each in late.values() if each.late_s >= least_s]
    order = sorted(worth, key=lambda each: (-each.late_s, each.rank))
    return Arrivals(order, notes)


def _span(member: Member) -> float | None:
    """Seconds of its bootstrap: of its own line, else of the Init line (2.22 has no other)."""
    if member.bootstrap is not None and member.bootstrap.total is not None:
        return member.bootstrap.total
    if member.init is None or not member.init.whole or member.home is None or member.home.is_child:
        return None
    return member.init.parts.get("bootstrap")


def _is_long(wait_s: float, span_s: float | None) -> bool:
    return span_s is not None and wait_s >= max(LEAST_S, LONG * span_s)


def _by_recv(
    waiting: dict[int, float], recvs: dict[int, float], spans: dict[int, float], nranks: int
) -> dict[int, LateRank]:
    late = {}
    for rank, recv in waiting.items():
        others = [each for other, each in recvs.items() if other != rank]
        if others and recv < APART * median(others):
            continue
        peer = (rank + 1) % nranks
        seen = peer in spans
        # Had it come so much later, its own bootstrap would be so much shorter.
        if seen and spans[peer] > spans[rank] - LONG * recv:
            continue
        text = f"rank {rank} waited {recv:.3f} s of {spans[rank]:.3f} s in recv, for its check-in"
        if not others:
            text += "; a slow root would look the same in the line of one rank"
        # Who waited may itself have come after the first: a chain leads to the latest.
        late_s = max(spans.values()) - spans[rank] + recv
        late[peer] = LateRank(rank=peer, seen=seen, late_s=late_s, text=text)
    return late


def _by_span(spans: dict[int, float], known: dict[int, LateRank]) -> dict[int, LateRank]:
    if len(spans) < 2:
        return {}
    longest = max(spans, key=lambda rank: spans[rank])
    behind = {rank: spans[longest] - span for rank, span in spans.items()}
    behind = {rank: late for rank, late in behind.items() if _is_long(late, spans[longest])}
    if len(behind) > len(spans) / 2:
        return {}  # the few were early, rather than the many late
    late = {}
    for rank, late_s in behind.items():
        text = (
            f"its bootstrap took {spans[rank]:.3f} s, that of rank {longest} {spans[longest]:.3f} s"
        )
        if rank in known:
            text = f"{known[rank].text}; {text}"
        late[rank] = LateRank(rank=rank, seen=True, late_s=late_s, text=text)
    return late


def _by_ring(communicator: Communicator, nranks: int) -> list[str]:
    """All that are seen waited in the first AllGather: for one that is not seen?"""
    lines = [
        member.bootstrap
        for member in communicator.members.values()
        if member.bootstrap is not None and member.bootstrap.whole
    ]
    if not lines or len(communicator.members) == nranks:
        return []
    ring = median(line.parts["ring"] for line in lines)
    if not _is_long(ring, median(line.total or 0.0 for line in lines)):
        return []
    return [
        f"the ranks that are seen waited {ring:.3f} s in ring, the first AllGather, and none of "
        "them for its neighbour's check-in: a rank that these logs do not show may have come late"
    ]
