"""What to run: one value that the command line makes, every worker receives and every result
repeats.

Holds all that a repetition needs and nothing about the machine. Formations and AllGathers are names
here; the registries know them. Workers decode specs, so this module imports msgspec and emucoll's
errors alone.
"""

import difflib
import ipaddress
import math
import re
from typing import Literal, TypeAlias

import msgspec

from emucoll.errors import UsageError
from harness.groups import GroupInit, GroupKind, check_groups
from harness.network_faults import (
    EXPECTED,
    FORMS,
    HostFault,
    LinkFault,
    check_network_fault,
    format_network_fault,
    parse_network_fault,
)
from harness.skew import LateRanks, StartSkew
from harness.units import parse_time

MIN_START_WINDOW = 3
"""Rank r waits for rank r + 1 while it forms: a window of one or two per worker can deadlock."""

INT_MAX = 2**31 - 1
"""NCCL and MPI count ranks and bytes of a record in a C int; a rank travels as an i32."""

MAX_RESTARTS = 1000

MAX_CHANNELS = 64
"""NCCL's MAXCHANNELS."""

_LOWEST_RATE = 1e-3
MAX_HOP_DELAY_S = 10.0
"""The longest latency that is taken for one."""

_MAX_SLOW_FACTOR = 1_000_000.0


class RankFault(msgspec.Struct, frozen=True, kw_only=True, tag_field="target", tag="rank"):
    """One rank that misbehaves.

    `factor` goes with slow (its work takes so many times as long), `where` with corrupt, `at_s`
    with crash (in virtual time: its process ends then).
    """

    rank: int
    what: Literal["never-start", "raise", "slow", "corrupt", "crash"]
    factor: float | None = None
    at_s: float | None = None
    where: Literal["header", "first", "last", "forwarded"] | None = None


class ServerKill(msgspec.Struct, frozen=True, kw_only=True, tag_field="target", tag="server"):
    """SIGKILL to the root or the store, when half the ranks have checked in."""

    server: Literal["root", "store"]


class WorkerKill(msgspec.Struct, frozen=True, kw_only=True, tag_field="target", tag="worker"):
    """SIGKILL to the worker of this index, when its first block arrives."""

    worker: int


Injection: TypeAlias = RankFault | ServerKill | WorkerKill | HostFault | LinkFault


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """What to run.

    `workers`, `start_window` and `steps` are None where the harness decides, resp. all steps run.
    """

    nranks: int
    plan: str | None = None
    """A whole initialization; then `formation` is its own, `allgather` and `record_bytes` None."""
    formation: str = "tcpstore"
    allgather: str | None = "ring-pipelined"
    record_bytes: int | None = 28
    root: str = "builtin"
    """`builtin`, `libnccl`, `libnccl:PATH` or HOST:PORT."""
    unique_id: str | None = None
    """A file with the unique id of a root at HOST:PORT."""
    store: str = "builtin"
    """`builtin`, `torch` or HOST:PORT."""
    channels: int | None = None
    """That a plan's ring check walks; None: 2."""
    roots: int | None = None
    """How many roots, where there can be several; None: as many as the formation has by default."""
    workers: int | None = None
    ranks_per_host: int = 8
    start_window: int | None = None
    """Ranks in formation at once per worker."""
    steps: int | None = None
    groups: tuple[GroupKind, ...] = ()
    """Process groups, brought up after the communicator of all ranks, kind by kind."""
    group_init: GroupInit | None = None
    restarts: int = 0
    """How often all ranks are brought up again, under a new name, after they were."""
    seed: int = 1
    deadline_s: float = 600.0
    handshake_s: float = 10.0
    """How long an accepted peer may take over its hello before it is dropped."""
    external_ranks: tuple[int, ...] = ()
    """Ranks that other programs are, in ascending order."""
    inject: tuple[Injection, ...] = ()
    ip: Literal["4", "6"] = "4"
    bind: str = "127.0.0.1"
    """Where the controller listens for its processes; loopback unless told otherwise."""
    uid_stagger_rate: float = 7000.0
    """NCCL_UID_STAGGER_RATE: check-ins per second at one root."""
    uid_stagger_threshold: int = 256
    """NCCL_UID_STAGGER_THRESHOLD: ranks per root above which they stagger."""
    hop_delay_s: float = 0.0
    """How late every message arrives."""
    intra_host_delay_s: float | None = None
    """Between ring neighbours on one emulated host; None: as late as any other."""
    start_skew: StartSkew | None = None
    """When ranks start; None: all together."""
    world: Literal["loopback", "virtual"] = "loopback"
    cluster: str | None = None
    """In virtual time: the name of the cluster, or its file."""
    out: str | None = None
    record: bool = True
    """With `out`: every span of every rank is kept, too."""

    @property
    def is_recorded(self) -> bool:
        """Is every span kept?"""
        return self.record and self.out is not None

    @property
    def ranks_here(self) -> int:
        """How many ranks run here: all but the external ones."""
        return self.nranks - len(self.external_ranks)


_ENDPOINT = re.compile(r"(?!libnccl:)(?:[\w.-]+|\[[\w:.]+\]):\d{1,9}", re.ASCII)


def is_endpoint(server: str) -> bool:
    """Is it HOST:PORT, of a server that somebody else has started?"""
    return _ENDPOINT.fullmatch(server) is not None


def check(spec: Spec) -> None:
    """Raise UsageError for what no machine and no algorithm could run; names and schedules are for
    their registries.
    """
    _check_counts(spec)
    if not (math.isfinite(spec.deadline_s) and spec.deadline_s > 0):
        raise UsageError(f"--deadline is {spec.deadline_s:g} s: expected more than 0")
    _check_bind(spec.bind)
    if not (math.isfinite(spec.handshake_s) and spec.handshake_s > 0):
        raise UsageError(f"--handshake-timeout is {spec.handshake_s:g} s: expected more than 0")
    for delay_s in (spec.hop_delay_s, spec.intra_host_delay_s or 0.0):
        if not 0 <= delay_s <= MAX_HOP_DELAY_S:
            raise UsageError(f"--hop-delay is {delay_s:g} s: expected 0 to {MAX_HOP_DELAY_S:g} s")
    if (spec.intra_host_delay_s or 0.0) > spec.hop_delay_s:
        raise UsageError(
            f"--hop-delay: {spec.intra_host_delay_s:g} s within a host is more than "
            f"{spec.hop_delay_s:g} s between hosts: expected the longer one first"
        )
    if isinstance(spec.start_skew, LateRanks) and max(spec.start_skew.late_s) >= spec.nranks:
        raise UsageError(
            f"--start-skew: rank {max(spec.start_skew.late_s)} is none of 0 to {spec.nranks - 1}"
        )
    rate = spec.uid_stagger_rate
    if not (math.isfinite(rate) and (rate == 0 or rate >= _LOWEST_RATE)):
        raise UsageError(
            f"--uid-stagger-rate is {rate:g}: expected ranks/s, at least {_LOWEST_RATE:g}, or 0 "
            "for no stagger"
        )
    if spec.root not in ("builtin", "libnccl") and not (
        re.fullmatch(r"libnccl:.+", spec.root, re.DOTALL) or is_endpoint(spec.root)
    ):
        raise UsageError(
            f"--root {spec.root!r}: expected builtin, libnccl, libnccl:PATH or HOST:PORT"
        )
    if spec.unique_id is not None and not is_endpoint(spec.root):
        raise UsageError("--unique-id: it is of a root that runs already; give --root HOST:PORT")
    paths = (("--root", spec.root), ("--out", spec.out), ("--unique-id", spec.unique_id))
    for flag, path in ((flag, path or "") for flag, path in paths):
        if "\0" in path or not is_text(path):
            raise UsageError(
                f"{flag} {path!r}: expected a path in UTF-8, results could not hold it"
            )
    if spec.out == "":
        raise UsageError("--out is empty: expected a directory ('.' for this one)")
    check_groups(spec.groups, spec.nranks)
    _check_external(spec)
    if bool(spec.groups) != (spec.group_init is not None):
        raise UsageError("--groups and --group-init belong together: give both, or leave both out")
    if spec.channels is not None and spec.plan is None:
        raise UsageError("--channels: they are a plan's; give --plan too, or leave them out")
    if spec.store not in ("builtin", "torch") and not is_endpoint(spec.store):
        raise UsageError(f"--store {spec.store!r}: expected builtin, torch or HOST:PORT")
    for injection in spec.inject:
        _check_injection(injection, spec)
    _check_faults_agree(spec)


def _check_external(spec: Spec) -> None:
    ranks = spec.external_ranks
    if not ranks:
        return
    if ranks[-1] >= spec.nranks:
        raise UsageError(
            f"--external-ranks: there is no rank {ranks[-1]}, expected 0 to {spec.nranks - 1}"
        )
    if len(ranks) == spec.nranks:
        raise UsageError(f"--external-ranks: all {spec.nranks} ranks are external: leave some here")
    for flag, given in (("--groups", spec.groups), ("--restarts", spec.restarts)):
        if given:
            raise UsageError(
                f"--external-ranks and {flag}: the programs of others come once, for all ranks "
                "alone; leave one of the two out"
            )
    for fault in spec.inject:
        if isinstance(fault, RankFault) and fault.rank in ranks:
            raise UsageError(
                f"--inject {format_injection(fault)}: rank {fault.rank} is external, and not ours "
                "to harm"
            )


def _check_bind(bind: str) -> None:
    try:
        address = ipaddress.ip_address(bind)
    except ValueError:
        raise UsageError(f"--bind {bind!r}: expected an IP address of this machine") from None
    if address.is_multicast or address.is_unspecified:
        raise UsageError(f"--bind {bind}: expected one address of this machine")


def _check_faults_agree(spec: Spec) -> None:
    """A rank has one fault of each kind, and one that never starts or raises has no other."""
    faults = [fault for fault in spec.inject if isinstance(fault, RankFault)]
    for number, fault in enumerate(faults):
        for other in faults[:number]:
            ends = {"never-start", "raise"} & {fault.what, other.what}
            twice = fault.what == other.what and fault.where == other.where
            if fault.rank == other.rank and (ends or twice):
                raise UsageError(
                    f"--inject {format_injection(other)} and {format_injection(fault)}: "
                    f"rank {fault.rank} cannot do both"
                )


def _check_counts(spec: Spec) -> None:
    bounds: tuple[tuple[str, int | None, int, int], ...] = (
        ("-np", spec.nranks, 1, INT_MAX),
        ("--record-bytes", spec.record_bytes, 0, INT_MAX),
        ("--roots", spec.roots, 1, spec.nranks),
        ("--channels", spec.channels, 1, MAX_CHANNELS),
        ("--workers", spec.workers, 1, spec.nranks),
        ("--ranks-per-host", spec.ranks_per_host, 1, INT_MAX),
        ("--start-window", spec.start_window, MIN_START_WINDOW, INT_MAX),
        ("--steps", spec.steps, 1, INT_MAX),
        ("--restarts", spec.restarts, 0, MAX_RESTARTS),
        ("--seed", spec.seed, 0, 2**63 - 1),
        ("--uid-stagger-threshold", spec.uid_stagger_threshold, 0, INT_MAX),
    )
    for name, value, low, high in bounds:
        if value is not None and not low <= value <= high:
            expected = f"at least {low}" if value < low else f"at most {high}"
            raise UsageError(f"{name} is {value}: expected {expected}")


def is_text(path: str) -> bool:
    """False for a path whose bytes are not UTF-8: Python carries those as lone surrogates."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_injection(injection: Injection, spec: Spec) -> None:
    text = format_injection(injection)
    if isinstance(injection, RankFault) and not 0 <= injection.rank < spec.nranks:
        raise UsageError(
            f"--inject {text}: there is no rank {injection.rank}, expected 0 to {spec.nranks - 1}"
        )
    if isinstance(injection, HostFault | LinkFault):
        check_network_fault(injection, -(-spec.nranks // spec.ranks_per_host))
    only_there = isinstance(injection, HostFault | LinkFault) or (
        isinstance(injection, RankFault) and injection.what == "crash"
    )
    if only_there and spec.world != "virtual":
        raise UsageError(f"--inject {text}: it is of --world virtual, which has hosts and links")
    if isinstance(injection, WorkerKill):
        workers = spec.nranks if spec.workers is None else spec.workers
        if not 0 <= injection.worker < workers:
            expected = f"expected 0 to {workers - 1}"
            raise UsageError(f"--inject {text}: there is no worker {injection.worker}, {expected}")


_RANK_FAULT = re.compile(
    r"rank=(?P<rank>\d{1,9}):(?:(?P<plain>never-start|raise)|slow=(?P<factor>\d{1,9}(?:\.\d{1,9})?)"
    r"|corrupt=(?P<where>header|first|last|forwarded))",
    re.ASCII,
)
_RANK_CRASH = re.compile(r"rank=(?P<rank>\d{1,9}):crash@(?P<at>.+)", re.ASCII)
_WORKER_KILL = re.compile(r"worker=(?P<worker>\d{1,9}):kill", re.ASCII)
_SERVER_KILL = re.compile(r"(?P<server>root|store):kill")
_FORMS = (
    "rank={n}:never-start",
    "rank={n}:raise",
    "rank={n}:slow=10",
    "rank={n}:corrupt=header",
    "rank={n}:corrupt=first",
    "rank={n}:corrupt=last",
    "rank={n}:corrupt=forwarded",
    "root:kill",
    "store:kill",
    "worker={n}:kill",
    "rank={n}:crash@5s",
    *FORMS,
)


def parse_injection(text: str) -> Injection:
    """The fault that one `--inject` asks for.

    Raises UsageError with the nearest text that would be one.
    """
    if match := _RANK_FAULT.fullmatch(text):
        rank = int(match["rank"])
        if match["factor"] is not None:
            return RankFault(rank=rank, what="slow", factor=_slow_factor(text, match["factor"]))
        if match["where"] is not None:
            return msgspec.convert(
                {"target": "rank", "rank": rank, "what": "corrupt", "where": match["where"]},
                RankFault,
            )
        return msgspec.convert({"target": "rank", "rank": rank, "what": match["plain"]}, RankFault)
    if match := _RANK_CRASH.fullmatch(text):
        return RankFault(rank=int(match["rank"]), what="crash", at_s=parse_time(match["at"]))
    if (fault := parse_network_fault(text)) is not None:
        return fault
    if match := _SERVER_KILL.fullmatch(text):
        return msgspec.convert({"target": "server", "server": match["server"]}, ServerKill)
    if match := _WORKER_KILL.fullmatch(text):
        return WorkerKill(worker=int(match["worker"]))
    raise _not_an_injection(text)


def format_injection(injection: Injection) -> str:
    """The text that `parse_injection` reads as `injection`."""
    match injection:
        case ServerKill(server=server):
            return f"{server}:kill"
        case WorkerKill(worker=worker):
            return f"worker={worker}:kill"
        case RankFault(what="slow"):
            return f"rank={injection.rank}:slow={repr(injection.factor).removesuffix('.0')}"
        case HostFault() | LinkFault():
            return format_network_fault(injection)
        case RankFault(what="crash"):
            return f"rank={injection.rank}:crash@{injection.at_s:g}s"
        case RankFault(what="corrupt"):
            return f"rank={injection.rank}:corrupt={injection.where}"
        case RankFault():
            return f"rank={injection.rank}:{injection.what}"


def _slow_factor(text: str, digits: str) -> float:
    factor = float(digits)
    if not 1 < factor <= _MAX_SLOW_FACTOR:
        expected = f"a factor above 1 and up to {_MAX_SLOW_FACTOR:.0f}, as in slow=10"
        raise UsageError(f"--inject {text!r}: expected {expected}")
    return factor


def _not_an_injection(text: str) -> UsageError:
    number = re.search(r"\d{1,9}", text, re.ASCII)
    forms = [form.format(n=number[0] if number else 7) for form in _FORMS]
    targets = sorted({re.split("[=:]", form)[0] for form in forms})
    # A cutoff of 0 always finds one: whatever was typed, something valid is shown.
    [target] = difflib.get_close_matches(re.split("[=:]", text)[0], targets, n=1, cutoff=0.0)
    candidates = [form for form in forms if form.startswith(target)]
    [near] = difflib.get_close_matches(text, candidates, n=1, cutoff=0.0)
    return UsageError(
        f"--inject {text!r}: did you mean {near!r}? expected rank=R:never-start, rank=R:raise, "
        "rank=R:slow=FACTOR, rank=R:corrupt=header|first|last|forwarded, root:kill, store:kill, "
        f"worker=W:kill; in virtual time rank=R:crash@T, {EXPECTED}"
    )
