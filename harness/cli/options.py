"""What the commands share: options that make a spec, types with units, and how a command ends."""

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import click

from emucoll.errors import EmucollError, UsageError
from emucoll.loading import find_plan, look_in
from harness.clusters import find_cluster
from harness.groups import GROUP_INITS, parse_groups
from harness.names import refuse_unknown
from harness.planned import plan_of
from harness.results.codec import AnyResult, to_json
from harness.results.schema import RunResult
from harness.spec import Spec, check, parse_injection
from harness.units import (
    parse_bandwidth,
    parse_counts,
    parse_hop_delay,
    parse_names,
    parse_ranks,
    parse_size,
    parse_start_skew,
    parse_time,
    parse_time_or_auto,
)

Command = TypeVar("Command", bound=Callable[..., Any])


HANDSHAKE_S, HANDSHAKE_S_PER_RANK = 10.0, 0.001
"""How long an accepted peer may take over its hello. At 98,304 ranks on two cores 10 s went by
between a rank's connect and its turn to speak."""


class _Parsed(click.ParamType[Any]):
    """An option whose text one of our parsers reads."""

    def __init__(self, name: str, parse: Callable[[str], Any]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if not isinstance(value, str):
            return value
        try:
            return self._parse(value)
        except UsageError as error:
            self.fail(str(error), param, ctx)


TIME = _Parsed("time", parse_time)
SIZE = _Parsed("size", parse_size)
HOP_DELAY = _Parsed("time", parse_hop_delay)
START_SKEW = _Parsed("skew", parse_start_skew)
INJECTION = _Parsed("what", parse_injection)
GROUPS = _Parsed("groups", parse_groups)
RANKS = _Parsed("ranks", parse_ranks)
COUNTS = _Parsed("numbers", parse_counts)
NAMES = _Parsed("names", parse_names)
BANDWIDTH = _Parsed("bandwidth", parse_bandwidth)
TIME_OR_AUTO = _Parsed("time", parse_time_or_auto)


SPEC_OPTIONS = [
    click.option("-np", "--nranks", "nranks", type=int, required=True, metavar="N", help="Ranks."),
    click.option(
        "--plan",
        metavar="P",
        help="A whole initialization, instead of the next three (see emucoll plans).",
    ),
    click.option("--formation", metavar="F", help="How the ring forms [tcpstore]."),
    click.option(
        "--allgather",
        metavar="A",
        help="Which AllGather [ring-pipelined].",
    ),
    click.option(
        "--record-bytes",
        type=SIZE,
        metavar="B",
        help="Bytes a rank contributes; 28: its address [28].",
    ),
    click.option(
        "--root",
        default="builtin",
        metavar="builtin|libnccl[:PATH]|HOST:PORT",
        help="Who serves as the root: ours, the root thread of a real libnccl, or one that runs "
        "already [builtin].",
    ),
    click.option(
        "--unique-id",
        metavar="FILE",
        help="The 128 bytes of the unique id of a root at HOST:PORT [that of NCCL_COMM_ID].",
    ),
    click.option(
        "--store",
        default="builtin",
        metavar="builtin|torch|HOST:PORT",
        help="Who serves as the store: ours, PyTorch's own, or one that runs already [builtin].",
    ),
    click.option(
        "--roots",
        type=int,
        metavar="R",
        help="Roots, with nccl-multiroot or a plan's +multiroot [one per 128 ranks].",
    ),
    click.option(
        "--channels",
        type=int,
        metavar="C",
        help="Channels, each of which a plan's ring check walks [2].",
    ),
    click.option(
        "--workers",
        type=int,
        metavar="P",
        help="Worker processes [as many as the limits demand].",
    ),
    click.option(
        "--ranks-per-host",
        type=int,
        metavar="H",
        help="Ranks on one emulated host: who is near, who shares a plan's barrier [8, or as many "
        "as the cluster's hosts have GPUs].",
    ),
    click.option(
        "--start-window",
        type=int,
        metavar="W",
        help="Ranks in formation at once per worker [all, if they fit].",
    ),
    click.option("--steps", type=int, metavar="S", help="Run only the AllGather's first S steps."),
    click.option(
        "--groups",
        type=GROUPS,
        default=(),
        metavar="NAME=SIZE,…|FILE",
        help="Process groups to bring up afterwards, as in tp=8,pp=16,dp=32 [none].",
    ),
    click.option(
        "--group-init",
        type=click.Choice(GROUP_INITS),
        help="How: a root each, a split of all ranks, or a TCPStore ring each.",
    ),
    click.option(
        "--restarts",
        type=int,
        default=0,
        metavar="K",
        help="Bring all ranks up K times more, each time under a new name [0].",
    ),
    click.option(
        "--seed",
        type=int,
        default=1,
        metavar="S",
        help="Of the records that ranks contribute [1].",
    ),
    click.option(
        "--deadline",
        type=TIME,
        default=600.0,
        metavar="T",
        help="End the run after this long, the start of its processes included [600s].",
    ),
    click.option(
        "--handshake-timeout",
        type=TIME,
        metavar="T",
        help="Drop a peer that stays silent in its hello [10s, and 1 ms for each rank].",
    ),
    click.option(
        "--hop-delay",
        type=HOP_DELAY,
        default=(0.0, None),
        metavar="T[,intra-host=T]",
        help="How late every message arrives, as over a network [0].",
    ),
    click.option(
        "--start-skew",
        type=START_SKEW,
        metavar="DIST",
        help="When ranks start: uniform:T, normal:MEAN:DEVIATION or ranks:RANK=T,… [together].",
    ),
    click.option("--ip", type=click.Choice(["4", "6"]), default="4", help="Address family [4]."),
    click.option(
        "--uid-stagger-rate",
        type=float,
        default=7000.0,
        metavar="R",
        help="NCCL_UID_STAGGER_RATE, 0 for none [7000].",
    ),
    click.option(
        "--uid-stagger-threshold",
        type=int,
        default=256,
        metavar="N",
        help="NCCL_UID_STAGGER_THRESHOLD [256].",
    ),
    click.option(
        "--bind",
        default="127.0.0.1",
        metavar="IP",
        help="Address at which the controller listens for its workers [127.0.0.1].",
    ),
    click.option(
        "--external-ranks",
        type=RANKS,
        default=(),
        metavar="LIST",
        help="Ranks that other programs will be, as in 3,7-9 [none].",
    ),
    click.option(
        "--inject",
        type=INJECTION,
        multiple=True,
        metavar="WHAT",
        help="A fault, repeatable: rank=R:never-start, rank=R:raise, rank=R:slow=F, "
        "rank=R:corrupt=header|first|last|forwarded, root:kill, store:kill, worker=K:kill.",
    ),
    click.option(
        "--world",
        type=click.Choice(["loopback", "virtual"]),
        default="loopback",
        help="Real sockets on this machine, or virtual time on a modelled cluster [loopback].",
    ),
    click.option(
        "--cluster", metavar="NAME|FILE", help="Of --world virtual: what things cost there."
    ),
    click.option("--out", metavar="DIR", help="Keep the result and every rank's times here."),
    click.option(
        "--record/--no-record",
        default=True,
        help="With --out: keep every span of every rank, too [yes].",
    ),
]
"""The options that say what to run, in the order in which help shows them."""


def spec_options(command: Command) -> Command:
    """Give a command the options that say what to run."""
    for option in reversed(SPEC_OPTIONS):
        command = option(command)
    return command


def make_spec(options: dict[str, Any]) -> Spec:
    """The spec that the options say. Raises UsageError."""
    values = dict(options)
    values["deadline_s"] = values.pop("deadline")
    handshake_s = values.pop("handshake_timeout")
    if handshake_s is None:  # of many ranks on few cores a busy one may be silent for long
        handshake_s = HANDSHAKE_S + HANDSHAKE_S_PER_RANK * max(0, values["nranks"])
    values["handshake_s"] = handshake_s
    values["hop_delay_s"], values["intra_host_delay_s"] = values.pop("hop_delay")
    look_in(os.getcwd())
    _choose_what_runs(values)
    _choose_hosts(values)
    spec = Spec(**values)
    check(spec)
    plan_of(spec)
    return spec


def _choose_hosts(values: dict[str, Any]) -> None:
    """How many ranks a host has. Raises UsageError for a cluster that does not fit."""
    cluster, asked = values["cluster"], values["ranks_per_host"]
    if cluster is None:
        values["ranks_per_host"] = 8 if asked is None else asked
        return
    if values["world"] != "virtual":
        raise UsageError(f"--cluster {cluster}: it is of --world virtual; add that")
    most = find_cluster(cluster, values["nranks"]).gpus_per_host
    if asked is not None and asked > most:
        raise UsageError(f"--ranks-per-host is {asked}: expected at most {most} on {cluster}")
    values["ranks_per_host"] = most if asked is None else asked


def _choose_what_runs(values: dict[str, Any]) -> None:
    """A plan, or a formation and an AllGather; put in place what is not given. Raises UsageError
    where both are given, and for unknown names.
    """
    parts = {name: values.pop(name) for name in ("formation", "allgather", "record_bytes")}
    given = [f"--{name.replace('_', '-')}" for name, part in parts.items() if part is not None]
    plan = values["plan"]
    if plan is None:
        values |= {name: part for name, part in parts.items() if part is not None}
        formation, allgather = parts["formation"], parts["allgather"]
        if formation is not None:
            refuse_unknown("formation", formation)
        if allgather is not None:
            refuse_unknown("AllGather", allgather)
        return
    if given:
        raise UsageError(
            f"--plan {plan} and {given[0]}: a plan has a formation and AllGathers of its own; "
            "leave one of the two out"
        )
    refuse_unknown("plan", plan)
    values |= {
        "formation": find_plan(plan).formation.name,
        "allgather": None,
        "record_bytes": None,
    }


_lost: set[int] = set()
"""Standard descriptors on which writing has failed."""


def stdout_lost() -> bool:
    """Has writing to stdout failed?"""
    return 1 in _lost


def emit(data: bytes) -> None:
    """Write to stdout; a reader who left early is no error of the run's."""
    try:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except (BrokenPipeError, ValueError):
        _abandon(1)
    except OSError as error:
        _abandon(1)
        raise UsageError(f"cannot write to stdout: {error.strerror}") from None


def complain(text: str) -> None:
    """Write to stderr, if anybody reads it."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except (OSError, ValueError):
        _abandon(2)


def _abandon(descriptor: int) -> None:
    """Nobody reads there any more: keep the interpreter from trying again when it exits."""
    _lost.add(descriptor)
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, descriptor)
        os.close(null)


def finish(result: AnyResult, text: str, as_json: bool, exit_code: int) -> NoReturn:
    """Print the result and end the command. A Ctrl-C comes too late now: the document is whole, and
    the exit code that of the result. SIGTERM ends a command that waits for its reader.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    emit(to_json(result) if as_json else text.encode(errors="backslashreplace"))
    raise SystemExit(exit_code)


def failed_document(error: EmucollError, spec: Spec | None, exit_code: int) -> RunResult:
    """The document of a command that could not even begin."""
    from harness.results.schema import failure

    what, _, rest = str(error).partition("\n")
    return failure(what, evidence=rest or None, exit_code=exit_code, spec=spec)
