"""From what went wrong to an error that says what happened, how that is known, why, and what to do
next.

Works on what processes reported; pure.
"""

import signal
from array import array
from collections import Counter
from dataclasses import dataclass, replace

from emucoll.errors import Deadlock, HarnessError, UsageError
from emucoll.spans import NO_PEER, PEER_ALL, PEER_ROOT, PEER_STORE
from harness.control import messages as m
from harness.control.controller import Lost, Outcome, Placement
from harness.control.launch import describe_exit
from harness.control.lifecycle import Stage, Trouble, Weight
from harness.control.link import EXIT_CONTROLLER_LOST
from harness.network_faults import HostFault, LinkFault
from harness.results.schema import RunError, RunResult, Waiting
from harness.spec import RankFault, ServerKill, Spec, WorkerKill, format_injection, is_endpoint

_SERVERS: dict[int, int | str | None] = {
    NO_PEER: None,
    PEER_ROOT: "root",
    PEER_STORE: "store",
    PEER_ALL: "all ranks",
}
_SHOWN = 1000
"""Waiting ranks that a result lists; the text counts them all."""

OK, WRONG, USAGE, HARNESS, INTERRUPTED = 0, 1, 2, 3, 130
_CHECKED_IN = ("bootstrap.recv", "bootstrap.connect", "bootstrap.accept", "bootstrap.barrier")
"""Phases of a rank that the root knows."""


@dataclass(frozen=True, slots=True)
class Wait:
    """One rank, its phase, and whom it waits for there."""

    rank: int
    phase: str
    peer: int
    worker: int


def diagnose(spec: Spec, outcome: Outcome) -> tuple[RunError, int]:
    """The error of a run that had trouble, and its exit code."""
    assert outcome.trouble is not None
    weight, detail = outcome.trouble.weight, outcome.trouble.detail
    if weight is Weight.INTERRUPTED:
        what = f"interrupted while {_doing(outcome)}"
        return RunError(
            what=what, evidence=_progress(spec, outcome), next="run it again"
        ), INTERRUPTED
    if weight is Weight.DEADLINE:
        return _deadline(spec, outcome), HARNESS
    if isinstance(detail, Lost):
        return _lost(spec, outcome, detail), HARNESS
    if isinstance(detail, tuple):
        return _rank_failed(spec, outcome.trouble)
    assert isinstance(detail, HarnessError | UsageError)
    usage = weight is Weight.USAGE
    cause = None if usage else _injected_there(spec)
    following = "see what happened; `emucoll doctor` shows this machine's limits"
    if usage:
        following = "correct the command"
    elif cause is not None:
        following = "leave --inject out"
    elif spec.external_ranks:
        ranks = ", ".join(map(str, spec.external_ranks[:8]))
        cause = (
            f"a program that is no rank of this run, or not the one it says: external are {ranks}"
        )
        following = "give each external program a rank of its own, as rendezvous.json has them"
    error = RunError(
        what=str(detail),
        evidence=f"reported while {_doing(outcome)}",
        cause=cause,
        next=following,
    )
    return error, USAGE if usage else HARNESS


_NOT_STARTED = {
    "never-started": "the rank never started",
    "external": "the rank is external, and the program that should be it has not come, or stands",
    "start-skew": "the rank had not started yet: --start-skew makes it late",
}


def wrong_data(run: RunResult, placement: Placement) -> RunError:
    """The error of a run that came to its end with wrong blocks."""
    first = run.wrong_blocks[0]
    blocks = "1 block" if run.wrong == 1 else f"{run.wrong} blocks"
    [worker] = [index for index, share in enumerate(placement.shares) if first.rank in share]
    cause = f"rank {first.peer} sent it wrong, or it changed on its way from there"
    following = f"look at rank {first.peer}"
    came = sum(gather.transfers or 0 for gather in run.allgathers)
    if 2 * (run.wrong or 0) > came:
        cause = (
            f"most of all {came} blocks are wrong: the formation has connected ranks to others "
            "than rank - 1 and rank + 1 (mod n), or has taken one for the other"
        )
        following = "look at the Ring that the formation returns"
    return RunError(
        what=f"{blocks} arrived wrong, first block {first.block} at rank {first.rank}",
        evidence=f"rank {first.rank}, block {first.block}: {first.what}",
        cause=cause,
        next=following,
        rank=first.rank,
        phase=first.phase,
        peer=first.peer,
        worker=worker,
    )


def _doing(outcome: Outcome) -> str:
    return {
        Stage.LAUNCHING: "the processes were starting",
        Stage.PREPARING: "the processes were preparing",
        Stage.FORMING: "the ring was forming",
        Stage.RECORDS: "the records were handed out",
        Stage.GATHERING: "the AllGather was running",
        Stage.CLOSING: "the run was closing",
    }.get(outcome.stage, outcome.stage.value)


def _progress(spec: Spec, outcome: Outcome) -> str:
    formed = sum(each.formed for each in outcome.progress.values())
    gathered = sum(each.gathered for each in outcome.progress.values())
    return f"{formed} of {spec.nranks} ranks had formed, {gathered} were done"


def _lost(spec: Spec, outcome: Outcome, lost: Lost) -> RunError:
    words = f"; its last words: {lost.last_words}" if lost.last_words else ""
    kind, _, index = lost.process.partition(" ")
    cause, following = _why_lost(spec, lost)
    return RunError(
        what=f"{lost.process} was lost",
        evidence=(
            f"its process {outcome.pids.get(lost.process)} {describe_exit(lost.exit_code)} "
            f"while {_doing(outcome)}{words}"
        ),
        cause=cause,
        next=following,
        phase=outcome.stage.value,
        peer=None if kind == "worker" else kind,
        worker=int(index) if index else None,
    )


def _why_lost(spec: Spec, lost: Lost) -> tuple[str, str]:
    """Likely cause, and what to do next."""
    for fault in spec.inject:
        kills_worker = isinstance(fault, WorkerKill) and lost.process == f"worker {fault.worker}"
        kills_server = isinstance(fault, ServerKill) and lost.process == fault.server
        if kills_worker or kills_server:
            return f"injected: --inject {format_injection(fault)}", "leave --inject out"
    if lost.exit_code == -signal.SIGKILL:
        cause = "somebody killed it, or the kernel did for want of memory"
        return cause, "look for `Killed process` in the kernel log; run it again"
    if lost.exit_code == EXIT_CONTROLLER_LOST:
        return "it could not reach the controller", "look at --bind and at firewalls"
    return "it crashed", "report it with its last words"


def _rank_failed(spec: Spec, trouble: Trouble) -> tuple[RunError, int]:
    assert isinstance(trouble.detail, tuple)
    process, failed = trouble.detail
    assert isinstance(failed, m.RankFailed)
    peer = _SERVERS.get(failed.peer, failed.peer)
    causes = {
        "closed": "its peer went away, without a worker or server having been lost",
        "network": "the machine refused a connection or a listener",
        "protocol": "what its peer sent is not what the protocol allows: another program is there, "
        "or it holds what another run has left",
        "raised": "the algorithm that the rank runs is wrong: it raised an exception, or did not "
        "do what its kind has to",
    }
    nexts = {
        "closed": "look at its peer"
        if spec.world == "virtual"
        else "run it again with --workers 1 to see whether it stays with the same rank",
        "network": "`emucoll doctor` with the same flags shows which limit is near",
        "protocol": "look at the peer; a store or root that serves others too may be the wrong one",
        "raised": "correct the algorithm; the evidence says what is wrong with it",
    }
    beside = {(failed.rank + 1) % spec.nranks, (failed.rank - 1) % spec.nranks}
    external = sorted(beside.intersection(spec.external_ranks))
    if failed.kind == "closed" and external:
        peer = external[0]
        causes["closed"] = f"rank {peer} beside it is external: the program that is it has gone"
        nexts["closed"] = f"look at what the program of rank {peer} said last"
    injected = any(
        isinstance(fault, RankFault) and fault.what == "raise" and fault.rank == failed.rank
        for fault in spec.inject
    )
    error = RunError(
        what=f"rank {failed.rank} failed in phase {failed.phase}",
        evidence=failed.what,
        cause=f"injected: --inject rank={failed.rank}:raise"
        if injected
        else _injected_there(spec) or causes[failed.kind],
        next="leave --inject out" if injected else nexts[failed.kind],
        rank=failed.rank,
        phase=failed.phase,
        peer=peer,
        worker=int(process.split()[1]),
    )
    return error, HARNESS if failed.kind == "network" else WRONG


def _deadline(spec: Spec, outcome: Outcome) -> RunError:
    waits = [wait for name, dump in outcome.waiting.items() for wait in _waits(name, dump, outcome)]
    waits.sort(key=lambda wait: wait.rank)
    waits = _owed_by_the_root(waits, spec.nranks)
    silent = _silent_workers(outcome)
    culprit = _or_silent_peer(blame(waits), waits, silent)
    server = _silent_server(waits, culprit)
    if server is not None:
        return _server_silent(spec, outcome, waits, server)
    if culprit is None:
        return RunError(
            what=f"{_what_ended_it(spec, outcome)} while {_doing(outcome)}",
            evidence=_progress(spec, outcome) + _silence(silent),
            cause="too little time, or processes that do not answer",
            next="give more time with --deadline, or start fewer ranks",
            phase=outcome.stage.value,
        )
    stuck = [wait for wait in waits if wait.peer != NO_PEER]
    waiting_for_it = [wait.rank for wait in stuck if wait.peer == culprit.rank]
    return RunError(
        what=(
            f"{_what_ended_it(spec, outcome)} while {_doing(outcome)}: "
            f"rank {culprit.rank} holds it up"
        ),
        evidence=_evidence(culprit, waiting_for_it, stuck)
        + _in_a_circle(waits, culprit)
        + _keys(outcome)
        + _silence(silent),
        cause=_injected(spec, culprit.rank)
        or _injected_there(spec)
        or _cause(culprit) + _besides(spec, outcome, culprit),
        next=f"look at rank {culprit.rank}" + _more_time(outcome),
        rank=culprit.rank,
        phase=culprit.phase,
        peer=_SERVERS.get(culprit.peer, culprit.peer),
        worker=None if culprit.phase == "external" else culprit.worker,
        waiting=[_waiting(wait) for wait in _nearest(stuck, culprit.rank)[:_SHOWN]],
    )


def _is_deadlock(outcome: Outcome) -> bool:
    return outcome.trouble is not None and isinstance(outcome.trouble.detail, Deadlock)


def _what_ended_it(spec: Spec, outcome: Outcome) -> str:
    """The deadline; in virtual time, that there is nothing left to happen."""
    if outcome.trouble is not None and isinstance(outcome.trouble.detail, Deadlock):
        return f"nothing is under way at {outcome.trouble.detail.at_s:g} s of virtual time"
    return f"the deadline of {spec.deadline_s:g} s passed"


def _more_time(outcome: Outcome) -> str:
    return "" if _is_deadlock(outcome) else "; if it only needs more time, give it with --deadline"


def _in_a_circle(waits: list[Wait], culprit: Wait) -> str:
    """The ranks of whom each waits for the next, if the culprit is one of them."""
    by_rank = {wait.rank: wait for wait in waits}
    chain, rank = [culprit.rank], culprit.peer
    while rank in by_rank and rank not in chain:
        chain.append(rank)
        rank = by_rank[rank].peer
    if rank != culprit.rank or len(chain) < 2:
        return ""
    shown = chain if len(chain) <= 16 else [*chain[:15], -1]
    words = " → ".join("…" if each < 0 else str(each) for each in shown)
    return f"; {len(chain)} ranks wait in a circle: {words} → {culprit.rank}"


def _or_silent_peer(culprit: Wait | None, waits: list[Wait], silent: list[str]) -> Wait | None:
    """A rank of a worker that does not answer is likelier to blame than the one waiting for it."""
    if culprit is None or culprit.peer < 0 or not silent:
        return culprit
    if any(wait.rank == culprit.peer for wait in waits):
        return culprit
    return Wait(culprit.peer, "unknown", NO_PEER, int(silent[0].split()[1]))


def _silent_server(waits: list[Wait], culprit: Wait | None) -> int | None:
    """The server for which everybody waits in the end, if there is one."""
    if culprit is not None:
        return culprit.peer if culprit.peer in (PEER_ROOT, PEER_STORE) else None
    servers = Counter(wait.peer for wait in waits if wait.peer in (PEER_ROOT, PEER_STORE))
    return servers.most_common(1)[0][0] if servers else None


def _server_silent(spec: Spec, outcome: Outcome, waits: list[Wait], server: int) -> RunError:
    name = "root" if server == PEER_ROOT else "store"
    stuck = sorted(
        (wait for wait in waits if wait.peer != NO_PEER),
        key=lambda wait: (wait.peer != server, wait.rank),
    )
    first = stuck[0]
    waiting = sum(wait.peer == server for wait in stuck)
    injected = _injected_there(spec)
    return RunError(
        what=(
            f"{_what_ended_it(spec, outcome)} while {_doing(outcome)}: the {name} does not answer"
        ),
        evidence=(
            f"{waiting} of {spec.nranks} ranks wait for the {name} "
            f"({_whereabouts(spec, outcome, name)}), the first of them rank {first.rank} in phase "
            f"{first.phase}; ranks that wait: {_by_phase(stuck)}{_keys(outcome)}"
        ),
        cause=injected
        or f"the {name} is stopped, overloaded, or lost what it was sent"
        + (_foreign_root(spec) if name == "root" else ""),
        next="leave --inject out" if injected else f"look at the {name}" + _more_time(outcome),
        rank=first.rank,
        phase=first.phase,
        peer=name,
        worker=first.worker,
        waiting=[_waiting(wait) for wait in stuck[:_SHOWN]],
    )


def _keys(outcome: Outcome) -> str:
    """The store's keys that nobody has set, and how many wait for them."""
    if not outcome.stuck_keys:
        return ""
    shown = ", ".join(f"{key[:80]!r} ({count})" for key, count in outcome.stuck_keys[:4])
    return f"; keys that clients of the store wait for: {shown}"


def _whereabouts(spec: Spec, outcome: Outcome, server: str) -> str:
    pid = outcome.pids.get(server)
    return f"at {getattr(spec, server)}" if pid is None else f"process {pid}"


def _by_phase(stuck: list[Wait]) -> str:
    kinds = Counter(wait.phase for wait in stuck)
    return ", ".join(f"{count} in {phase}" for phase, count in kinds.most_common(5))


def _injected(spec: Spec, rank: int) -> str | None:
    """That this rank's trouble was asked for, if it was."""
    faults = [
        format_injection(fault)
        for fault in spec.inject
        if isinstance(fault, RankFault) and fault.rank == rank and fault.what != "corrupt"
    ]
    return f"injected: --inject {faults[0]}" if faults else None


def _injected_there(spec: Spec) -> str | None:
    """That hosts, links or a process were to fail: whoever suffers is not named in it."""
    faults = [
        format_injection(fault)
        for fault in spec.inject
        if isinstance(fault, HostFault | LinkFault)
        or (isinstance(fault, RankFault) and fault.what == "crash")
    ]
    return f"injected: --inject {' --inject '.join(faults)}" if faults else None


def _waits(name: str, dump: m.WaitingRanks, outcome: Outcome) -> list[Wait]:
    phases = array("H", dump.phases)
    peers = array("q", dump.peers)
    worker = int(name.split()[1])
    return [
        Wait(dump.first + slot, dump.names[phase], peer, worker)
        for slot, (phase, peer) in enumerate(zip(phases, peers, strict=True))
    ]


def _owed_by_the_root(waits: list[Wait], nranks: int) -> list[Wait]:
    """A root that collects owes all ranks their answer as soon as the last has checked in: from
    then on they wait for the root, and no longer for each other.
    """
    told = sum(wait.phase in _CHECKED_IN for wait in waits)
    if told < nranks:
        return waits
    return [
        replace(wait, peer=PEER_ROOT)
        if (wait.phase, wait.peer) == ("bootstrap.recv", PEER_ALL)
        else wait
        for wait in waits
    ]


def blame(waits: list[Wait]) -> Wait | None:
    """Who holds the run up: the end of the longest chain of ranks that wait for ranks.

    A rank that others wait for and that itself waits for no rank is the best answer; where all wait
    in a circle, the rank of the circle that most others wait for. None when nobody waits for a
    rank.
    """
    by_rank = {wait.rank: wait for wait in waits}
    waited_for = Counter(
        wait.peer for wait in waits if wait.peer in by_rank and wait.peer != wait.rank
    )
    if not waited_for:
        idle = [wait for wait in waits if wait.phase in _NOT_STARTED]
        if not idle and any(wait.peer == PEER_ALL for wait in waits):
            # Of those who keep all others waiting, the last is the one that a stagger lets go last.
            idle = [wait for wait in waits if wait.peer == NO_PEER][-1:]
        return idle[0] if idle else None
    ends = [
        by_rank[rank]
        for rank in waited_for
        if by_rank[rank].peer not in by_rank or by_rank[rank].peer == rank
    ]
    candidates = [end for end in ends if not end.phase.endswith((".barrier", "loop"))] or ends
    if candidates:
        never = [end for end in candidates if end.phase in _NOT_STARTED]
        return max(never or candidates, key=lambda end: (waited_for[end.rank], -end.rank))
    circle = _circle(by_rank, next(iter(waited_for)))
    return by_rank[max(circle, key=lambda rank: (waited_for[rank], -rank))]


def _circle(by_rank: dict[int, Wait], start: int) -> list[int]:
    """The ranks that wait for each other in a circle, at the end of the chain from `start`."""
    seen: list[int] = []
    rank = start
    while rank not in seen:
        seen.append(rank)
        rank = by_rank[rank].peer
    return seen[seen.index(rank) :]


def _evidence(culprit: Wait, waiting_for_it: list[int], stuck: list[Wait]) -> str:
    for_whom = _SERVERS.get(culprit.peer, f"rank {culprit.peer}")
    itself = f"waits for {for_whom}" if for_whom is not None else "waits for nobody"
    return (
        f"rank {culprit.rank} is in phase {culprit.phase} and {itself}; "
        f"{_waiters(waiting_for_it, stuck)}; "
        f"ranks that wait: {_by_phase(stuck)}"
    )


def _waiters(waiting_for_it: list[int], stuck: list[Wait]) -> str:
    some = ", ".join(str(rank) for rank in waiting_for_it[:8])
    if len(waiting_for_it) == 1:
        return f"rank {some} waits for it"
    if waiting_for_it:
        more = f" and {len(waiting_for_it) - 8} more" if len(waiting_for_it) > 8 else ""
        return f"ranks {some}{more} wait for it"
    for_all = sum(wait.peer == PEER_ALL for wait in stuck)
    if for_all:
        return f"{for_all} ranks wait for all ranks, this one among them"
    return "no rank waits for it"


def _cause(culprit: Wait) -> str:
    if culprit.phase in _NOT_STARTED:
        return _NOT_STARTED[culprit.phase]
    return "the rank, or whom it waits for, is stuck or slow"


def _foreign_root(spec: Spec) -> str:
    """What a root that somebody else has started does without a word."""
    if not is_endpoint(spec.root):
        return ""
    magic = "" if spec.unique_id is not None else " without --unique-id the magic may be another;"
    return (
        f"; the root at {spec.root} drops whoever has another magic, and a check-in of another "
        f"size:{magic} the plan or formation has to be of its release"
    )


def _besides(spec: Spec, outcome: Outcome, culprit: Wait) -> str:
    """What else may explain it."""
    if culprit.phase == "bootstrap.recv" and (foreign := _foreign_root(spec)):
        return foreign
    dropped = any(report.dropped_count for report in outcome.servers.values())
    if culprit.phase == "external" and dropped:
        return "; or it came and was turned away (warning strangers-dropped): see its magic"
    if spec.hop_delay_s:
        return f"; every message is {spec.hop_delay_s:g} s late (--hop-delay)"
    return ""


def _nearest(stuck: list[Wait], rank: int) -> list[Wait]:
    """Those that wait for `rank` first, then the others in rank order."""
    return sorted(stuck, key=lambda wait: (wait.peer != rank, wait.rank))


def _waiting(wait: Wait) -> Waiting:
    return Waiting(rank=wait.rank, phase=wait.phase, for_=_SERVERS.get(wait.peer, wait.peer))


def _silent_workers(outcome: Outcome) -> list[str]:
    return sorted(
        name for name in outcome.pids if name.startswith("worker") and name not in outcome.waiting
    )


def _silence(silent: list[str]) -> str:
    return f"; no answer from {', '.join(silent[:8])}" if silent else ""
