"""What a communicator's logs say of its initialization: statistics per phase, and sentences.

Phase names are NCCL's own. `bootstrap.unexplained` is what none of bootstrap's timers covers: its
total less the sum of its parts, rank by rank. It is never negative and never spread over the parts.

Holds true: every number is of lines that stand whole; ranks without one are counted and take no
part. Shares are of the mean total, so those of one level add up to what is explained. Must not know
lines, files or the emulated run.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from harness.analysis.init_log import Communicator, Complaint, Member
from harness.analysis.late_ranks import arrivals
from harness.external.nccl_log import BOOTSTRAP_PARTS
from harness.results.schema import LateRank, LogCommunicator, LogPhase

TOTAL = "total"
BOOTSTRAP_TOTAL = "bootstrap.total"
UNEXPLAINED = "bootstrap.unexplained"
_ORDER = ("kernels", "alloc", "bootstrap", "allgathers", "topo", "graphs", "connections")
_LARGE = 0.25
"""A share above which what no timer covers is worth a sentence."""
_RANGES = 1000
_NAMED = 8
"""Late ranks that get a sentence of their own."""

_MISUSE = (
    *("is NULL", "is not a valid pointer", "already been destroyed", "corrupted comm"),
    *("is invalid", "invalid arguments", "not in a valid", "has invalid", "invalid usage"),
    *("Invalid rank requested", "improper usage", "Invalid config", "was revoked", "invalid root"),
    *("Attempt to use communicator", "allocated on device", "Invalid device count"),
)
_MEANING = (
    ("mismatch in info from procs", "ranks disagree on nranks or roots: two jobs share a root"),
    ("has already checked in", "a rank number was given twice"),
    ("Mismatched NCCL version", "the ranks do not load one library"),
    *((text, "misuse of the API") for text in _MISUSE),
)


def describe(communicators: Sequence[Communicator]) -> list[LogCommunicator]:
    """Each communicator, in the order given, its index being its place."""
    index = {id(each): number for number, each in enumerate(communicators)}
    return [_describe(each, index) for each in communicators]


def _describe(communicator: Communicator, index: dict[int, int]) -> LogCommunicator:
    members = communicator.members
    nranks = communicator.nranks
    phases = phases_of(members)
    came = arrivals(communicator)
    unseen = [] if nranks is None else _gaps(sorted(members), nranks)
    pending = sorted(rank for rank, member in members.items() if member.started and not member.done)
    totals = {rank: m.init.total for rank, m in members.items() if m.init and m.init.total}
    hosts = {member.host for member in members.values()} - {""}
    nodes = next(iter(communicator.nodes)) if len(communicator.nodes) == 1 else None
    functions = sorted({member.function for member in members.values() if member.function})
    findings = [
        *_dominating(phases),
        *_unexplained(phases),
        *_late(came.late),
        *came.notes,
        *_unseen(len(members), nranks, unseen),
        *_incomplete(pending, communicator),
        *_places(communicator, nodes, hosts),
        *_devices(members.values()),
        *_origin_of(communicator, phases),
    ]
    return LogCommunicator(
        index=index[id(communicator)],
        comm_id=communicator.comm_id,
        function=functions[0] if functions else None,
        nranks=nranks,
        parent=None if communicator.parent is None else index.get(id(communicator.parent)),
        is_split=communicator.is_child,
        color=communicator.color,
        child_count=communicator.child_count,
        generation=communicator.generation,
        named=communicator.named,
        seen=len(members),
        unseen=None if nranks is None else nranks - len(members),
        unseen_ranks=unseen[:_RANGES],
        incomplete=len(pending),
        incomplete_ranks=_runs(pending)[:_RANGES],
        nodes=nodes,
        host_names=len(hosts),
        phases=phases,
        slowest_rank=max(totals, key=lambda rank: totals[rank]) if totals and nranks else None,
        late=came.late[:_RANGES],
        findings=findings,
    )


# -- statistics


def phases_of(members: dict[int, Member]) -> list[LogPhase]:
    """NCCL's timers over those members whose lines stand whole."""
    inits = {rank: m.init for rank, m in members.items() if m.init is not None}
    totals = {rank: init.total for rank, init in inits.items() if init.total is not None}
    names = dict.fromkeys((*_ORDER, *(name for init in inits.values() for name in init.parts)))
    names.pop("rest", None)
    phases = []
    for name in (*names, "rest"):
        times = {rank: i.parts[name] for rank, i in inits.items() if i.whole and name in i.parts}
        phases += _phase(name, None, times, totals, _is_ranked(members))
        if name == "bootstrap":
            phases += _within_bootstrap(members)
    return phases + _phase(TOTAL, None, totals, {}, _is_ranked(members))


def _within_bootstrap(members: dict[int, Member]) -> list[LogPhase]:
    lines = {
        rank: member.bootstrap
        for rank, member in members.items()
        if member.bootstrap is not None and member.bootstrap.whole
    }
    totals = {rank: line.total for rank, line in lines.items() if line.total is not None}
    ranked = _is_ranked(members)
    phases = _phase(BOOTSTRAP_TOTAL, "bootstrap", totals, {}, ranked)
    extra = (name for line in lines.values() for name in line.parts)
    for name in dict.fromkeys((*BOOTSTRAP_PARTS, *extra)):
        times = {rank: line.parts[name] for rank, line in lines.items() if name in line.parts}
        phases += _phase(f"bootstrap.{name}", "bootstrap", times, totals, ranked)
    gaps = {
        rank: max(0.0, total - sum(lines[rank].parts.values())) for rank, total in totals.items()
    }
    return phases + _phase(UNEXPLAINED, "bootstrap", gaps, totals, ranked)


def _is_ranked(members: dict[int, Member]) -> bool:
    """Are the members' numbers ranks?"""
    return all(member.nranks for member in members.values())


def _phase(
    name: str,
    within: str | None,
    times: dict[int, float],
    totals: dict[int, float],
    ranked: bool,
) -> list[LogPhase]:
    """One phase; none if no rank has it."""
    if not times:
        return []
    values = np.fromiter(times.values(), np.float64)
    p50, p99 = np.quantile(values, (0.5, 0.99))
    whole = sum(totals[rank] for rank in times if rank in totals)
    shares = [times[rank] / totals[rank] for rank in times if totals.get(rank)]
    return [
        LogPhase(
            name=name,
            within=within,
            ranks=len(times),
            mean_s=float(values.mean()),
            p50_s=float(p50),
            p99_s=float(p99),
            max_s=float(values.max()),
            max_rank=max(times, key=lambda rank: times[rank]) if ranked else None,
            share=float(values.sum()) / whole if whole else None,
            share_min=min(shares, default=None),
            share_max=max(shares, default=None),
        )
    ]


# -- sentences


def _dominating(phases: Sequence[LogPhase]) -> list[str]:
    """The fewest phases that make up half of Init."""
    total = next((phase for phase in phases if phase.name == TOTAL), None)
    parts = [
        phase for phase in phases if phase.within is None and phase.share and phase is not total
    ]
    if total is None or not parts:
        return []
    parts.sort(key=lambda phase: -(phase.share or 0.0))
    named: list[LogPhase] = []
    while parts and sum(phase.share or 0.0 for phase in named) < 0.5:
        named.append(parts.pop(0))
    each = " and ".join(f"{phase.name} {phase.mean_s:.3f} s, {_percent(phase)}" for phase in named)
    text = f"largest phase{'s' if len(named) > 1 else ''} of Init ({total.mean_s:.3f} s): {each}"
    if named[0].ranks < total.ranks:
        text += f" (parts of {named[0].ranks} of {total.ranks} ranks)"
    if len(named) > 1:
        text += f"; together {sum(phase.share or 0.0 for phase in named):.0%}"
    return [text]


def _percent(phase: LogPhase) -> str:
    low, high = f"{phase.share_min or 0.0:.0%}", f"{phase.share_max or 0.0:.0%}"
    by_rank = "" if low == high else f" ({low} to {high} by rank)"
    return f"{phase.share or 0.0:.0%}{by_rank}"


def _unexplained(phases: Iterable[LogPhase]) -> list[str]:
    for phase in phases:
        if phase.name == UNEXPLAINED and (phase.share or 0.0) >= _LARGE:
            return [
                f"no timer covers {phase.mean_s:.3f} s of bootstrap, {_percent(phase)}: connecting "
                "to the next rank, accepting from the one before, RAS and proxy set-up show in its "
                "total only"
            ]
    return []


def _late(late: Sequence[LateRank]) -> list[str]:
    said = []
    for each in late[:_NAMED]:
        seen = "" if each.seen else ", which these logs do not show,"
        said.append(f"rank {each.rank}{seen} came late by about {each.late_s:.3f} s: {each.text}")
    if len(late) > _NAMED:
        more = _ranges(_runs(sorted(each.rank for each in late[_NAMED:])))
        said.append(f"{len(late) - _NAMED} more ranks came late: {more}")
    return said


def _unseen(seen: int, nranks: int | None, gaps: list[list[int]]) -> list[str]:
    if nranks is None:
        return [
            f"{seen} Bootstrap lines whose rank no line tells: their threads wrote no Init line "
            "that could say it (NCCL_DEBUG_SUBSYS without INIT, or a part of a log)"
        ]
    if seen == nranks:
        return []
    return [
        f"{nranks - seen} of {nranks} ranks are unseen ({_ranges(gaps)}): not in these logs, which "
        "does not say that they failed; give their files too"
    ]


def _incomplete(pending: Sequence[int], communicator: Communicator) -> list[str]:
    if not pending:
        return []
    text = (
        f"{len(pending)} of {len(communicator.members)} ranks that started did not complete in "
        f"these logs ({_ranges(_runs(pending))}): the log ends before it, or they failed or hang"
    )
    members = communicator.members.values()
    if len(members) < (communicator.nranks or 0) and not any(
        m.bootstrap or m.done for m in members
    ):
        text += "; none of them has left the bootstrap, so they may wait for the unseen ones"
    return [text]


def _places(communicator: Communicator, nodes: int | None, hosts: set[str]) -> list[str]:
    found = []
    members = communicator.members
    if len(communicator.nodes) > 1:
        counts = ", ".join(map(str, sorted(communicator.nodes)))
        found.append(f"ranks disagree on the number of nodes: {counts}")
    if nodes is not None and nodes > len(hosts) and len(members) == communicator.nranks and hosts:
        found.append(
            f"NCCL counts {nodes} nodes, the lines name {len(hosts)} "
            f"host{'s' if len(hosts) > 1 else ''}: nodes share a host name"
        )
    order = [members[rank].host for rank in sorted(members) if members[rank].host]
    blocks = [host for at, host in enumerate(order) if at == 0 or order[at - 1] != host]
    if len(blocks) > len(set(blocks)):
        found.append(
            f"ranks of a host are not neighbours: along the ring the host name changes "
            f"{len(blocks) - 1} times among {len(order)} ranks of {len(hosts)} hosts"
        )
    elif blocks != sorted(blocks, key=_natural):
        found.append("rank order is not the order of host names")
    return found


def _natural(host: str) -> list[tuple[int, str]]:
    """n9 before n10."""
    digits, words = "", []
    for character in f"{host}.":
        if character.isdigit():
            digits += character
            continue
        if digits:
            words.append((int(digits), ""))
            digits = ""
        words.append((-1, character))
    return words


def _devices(members: Iterable[Member]) -> list[str]:
    differ = [
        m.rank for m in members if None not in (m.nvml_dev, m.cuda_dev) and m.nvml_dev != m.cuda_dev
    ]
    if not differ:
        return []
    return [
        f"cudaDev and nvmlDev differ at {len(differ)} ranks ({_ranges(_runs(sorted(differ)))}): "
        "CUDA_VISIBLE_DEVICES renumbers their GPUs"
    ]


def _origin_of(communicator: Communicator, phases: Iterable[LogPhase]) -> list[str]:
    found = []
    adopted = sorted(rank for rank, m in communicator.members.items() if m.adopted)
    if adopted:
        found.append(
            f"times of {len(adopted)} ranks ({_ranges(_runs(adopted))}) are in lines that name no "
            "communicator: counted here, the only one of this size that lacks them"
        )
    if not communicator.named and communicator.nranks is not None:
        found.append(
            "no Init START or COMPLETE line says which communicator this is: its ranks were put "
            "together by nranks, in the order of the lines"
        )
    rest = next((phase for phase in phases if phase.name == "rest"), None)
    if communicator.is_child and rest is not None and (rest.share or 0.0) >= _LARGE:
        found.append(
            f"rest is {_percent(rest)} of a split: it holds the parent's AllGather, and "
            "so the wait for the last rank to call"
        )
    return found


def complaints_said(complaints: Iterable[Complaint]) -> list[str]:
    """WARN lines as sentences, each text once."""
    said: dict[str, str] = {}
    for complaint in complaints:
        if complaint.text in said:
            continue
        meaning = next((what for text, what in _MEANING if text in complaint.text), None)
        origin = complaint.origin
        place = "" if complaint.where is None else f" at {complaint.where}"
        sentence = f"WARN of {origin.host or 'process'}:{origin.pid}{place}: {complaint.text}"
        if meaning is not None:
            sentence += f" [{meaning}]"
        if complaint.after_init:
            sentence += "; after Init COMPLETE, so not a failure of initialization"
        said[complaint.text] = sentence
    return list(said.values())


def _gaps(ranks: Sequence[int], nranks: int) -> list[list[int]]:
    """[first, last] of what is missing between 0 and nranks - 1."""
    gaps, expected = [], 0
    for rank in (*ranks, nranks):
        if rank > expected:
            gaps.append([expected, rank - 1])
        expected = rank + 1
    return gaps


def _runs(ranks: Sequence[int]) -> list[list[int]]:
    """Sorted ranks as [first, last] of neighbours."""
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return runs


def _ranges(runs: Sequence[Sequence[int]]) -> str:
    """`4-15, 20`, shortened."""
    words = [str(low) if low == high else f"{low}-{high}" for low, high in runs[:6]]
    return ", ".join(words) + (f" and {len(runs) - 6} more ranges" if len(runs) > 6 else "")
