"""The JSON documents of docs and contract, as types: emucoll.run/1, emucoll.doctor/1,
emucoll.names/1, emucoll.compare/1, emucoll.ett/1.

Every key is always present, null where there is no value; keys of later versions are ignored. Times
are seconds, sizes bytes; `algbw` and `busbw` are nccl-tests' own figures, in its GB/s (10^9 bytes
per second). Measures nothing and reads nothing.
"""

from typing import ClassVar, Literal, TypeAlias

import msgspec

from harness.results.environment import Environment
from harness.results.training import EttPoint, Input
from harness.spec import Spec
from harness.training.spec import EttSpec
from harness.work import Work

Kind: TypeAlias = Literal["measured", "charged", "simulated", "projected"]


class RunWarning(msgspec.Struct, frozen=True, kw_only=True):
    """What a reader must know before believing the numbers. `code` is for programs and stays."""

    code: str
    text: str


class Waiting(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that was waiting when the run ended.

    `for_` is a rank, a server ("root", "store") or None: not known.
    """

    rank: int
    phase: str | None = None
    for_: int | str | None = msgspec.field(name="for", default=None)


class RunError(msgspec.Struct, frozen=True, kw_only=True):
    """Why it failed: what happened, how that is known, the likely cause, what to do next."""

    what: str
    evidence: str | None = None
    cause: str | None = None
    next: str | None = None
    rank: int | None = None
    phase: str | None = None
    peer: int | str | None = None
    """The other side: a rank, a server or an address."""
    worker: int | None = None
    waiting: list[Waiting] = []


class Document(msgspec.Struct, kw_only=True, tag_field="schema"):
    """What every document holds."""

    kind: Literal["measured", "simulated", "projected"] | None = None
    spec: Spec | None = None
    environment: Environment | None = None
    seed: int | None = None
    ok: bool
    warnings: list[RunWarning] = []
    error: RunError | None = None


class Formation(msgspec.Struct, frozen=True, kw_only=True):
    """From the start barrier to the last rank formed."""

    name: str
    seconds: float | None = None
    ranks_per_s: float | None = None
    roots: int | None = None
    """How many there were; None without any."""


class AllGather(msgspec.Struct, frozen=True, kw_only=True):
    """One AllGather over all ranks.

    `transfers` are blocks delivered; `wrong` is None where nothing was verified.
    """

    name: str
    record_bytes: int
    phase: str | None = None
    seconds: float | None = None
    steps: int | None = None
    of_steps: int | None = None
    transfers: int | None = None
    transfers_per_s: float | None = None
    algbw: float | None = None
    busbw: float | None = None
    wrong: int | None = None
    flow: Literal["lockstep", "cut-through"] | None = None
    frames: Literal["sized", "bare"] | None = None
    reads: int | None = None
    writes: int | None = None
    blocks_per_read: float | None = None
    note: str | None = None
    """What this AllGather does not show, in a sentence."""


class WrongBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A block that differs: `rank` received it from `peer` in round `step` of the AllGather of
    `phase`; it should hold the record of rank `block`.
    """

    rank: int
    block: int | None
    what: str
    peer: int | None = None
    step: int | None = None
    phase: str | None = None


class Phase(msgspec.Struct, frozen=True, kw_only=True):
    """One phase over all ranks.

    The means of those with `within` None add up to the run's `mean_total_s`.
    """

    name: str
    mean_s: float | None = None
    p50_s: float | None = None
    p99_s: float | None = None
    max_s: float | None = None
    cpu_s: float | None = None
    kind: Kind = "measured"
    within: str | None = None


class WorkByRole(msgspec.Struct, frozen=True, kw_only=True):
    """None: the run had no such role."""

    ranks: Work | None = None
    root: Work | None = None
    store: Work | None = None
    controller: Work | None = None


class Memory(msgspec.Struct, frozen=True, kw_only=True):
    """Worker peaks per rank, peaks of all processes, and what the kernel's sockets and TCP slabs
    grew by.
    """

    rss_bytes_per_rank: float | None = None
    peak_rss_bytes: int | None = None
    kernel_socket_bytes: int | None = None


class Descriptors(msgspec.Struct, frozen=True, kw_only=True):
    """Open files: one rank's once it is formed, and a worker's at its peak."""

    held_per_rank: float | None = None
    peak_per_worker: int | None = None


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of process group, with `--groups`."""

    kind: str
    count: int
    size: int
    seconds: float | None = None
    connections: int | None = None
    requests: int | None = None
    wrong: int | None = None


class BringUp(msgspec.Struct, frozen=True, kw_only=True):
    """One of the times that all ranks were brought up, with `--restarts`."""

    total_s: float
    formation_s: float | None
    mean_total_s: float
    connections: int | None
    retries: int | None
    wrong: int


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """What a run in virtual time took of this machine: measured, unlike all else in its result."""

    seconds: float
    cpu_s: float
    peak_rss_bytes: int
    events: int


class RunResult(Document, kw_only=True, tag="emucoll.run/1"):
    """What came of a run, whole or failed. `exit_code` is what the process ends with."""

    schema: ClassVar[str] = "emucoll.run/1"

    exit_code: int
    nranks: int | None = None
    workers: int | None = None
    servers: dict[str, str] = {}
    """By role what served: "built-in", or the real program and its version."""
    start_window: int | None = None
    total_s: float | None = None
    mean_total_s: float | None = None
    charged_s: float | None = None
    """Of each rank's total, what was charged: the local work of phases of that kind."""
    formation: Formation | None = None
    allgathers: list[AllGather] = []
    wrong: int | None = None
    wrong_blocks: list[WrongBlock] = []
    """The first few."""
    phases: list[Phase] = []
    work: WorkByRole = WorkByRole()
    memory: Memory = Memory()
    descriptors: Descriptors = Descriptors()
    restarts: list[BringUp] = []
    """With `--restarts`, every bring-up in its order; all else is of the last, but for what servers
    did and `wrong`, which are of all.
    """
    groups: list[Group] = []
    saturated: bool | None = None
    trace_hash: str | None = None
    simulation: Simulation | None = None
    """With `--world virtual`."""


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """One limit of the machine.

    `have` None: the machine does not tell, or has no such limit; `fits` None: then too.
    """

    name: str
    have: int | float | str | None = None
    need: int | float | str | None = None
    because: str
    remedy: str | None = None
    fits: bool | None = None
    severity: Literal["refuse", "warn", "info"] | None = None
    """What not fitting means: the run is refused, or its result warns, or says so."""


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What a run would take; projected, never measured. `because` is the arithmetic."""

    workers: int | None = None
    start_window: int | None = None
    transfers: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    memory_bytes: int | None = None
    because: str | None = None


class DoctorResult(Document, kw_only=True, tag="emucoll.doctor/1"):
    """Does the run fit this machine, limit by limit."""

    schema: ClassVar[str] = "emucoll.doctor/1"

    fits: bool | None = None
    limits: list[Limit] = []
    estimate: Estimate | None = None


class Name(msgspec.Struct, frozen=True, kw_only=True):
    """A name the command line takes, and what it stands for."""

    name: str
    text: str
    does: list[str] = []
    """Of a plan: what it does, step by step."""


class NamesResult(Document, kw_only=True, tag="emucoll.names/1"):
    """What formations, AllGathers or plans there are."""

    schema: ClassVar[str] = "emucoll.names/1"

    names: list[Name] = []


class Operand(msgspec.Struct, frozen=True, kw_only=True):
    """One of the things compared, and what its content told that it is."""

    role: Literal["base", "candidate"]
    kind: Literal["run", "nccl-log"]
    names: list[str] = []
    """Paths as given."""
    text: str
    """What it is, in a sentence."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of both: the mean over the ranks, in seconds, and its share of its whole.

    `ratio` is candidate over base. None: that side does not have it, and `note` says why.
    """

    metric: str
    base: float | None = None
    candidate: float | None = None
    ratio: float | None = None
    verdict: Literal["same", "better", "worse", "noise"] | None = None
    base_share: float | None = None
    candidate_share: float | None = None
    base_kind: Kind | None = None
    communicator: int | None = None
    """Index of the logs' communicator; None where the row is not one's."""
    note: str | None = None


class LogFile(msgspec.Struct, frozen=True, kw_only=True):
    """What one log file held, in lines."""

    name: str
    lines: int = 0
    nccl_lines: int = 0
    init_lines: int = 0
    init_timings: int = 0
    bootstrap_timings: int = 0
    torn: int = 0
    rejoined: int = 0
    damaged: int = 0


class LogPhase(msgspec.Struct, frozen=True, kw_only=True):
    """One of NCCL's own timers over the ranks that a log shows.

    Shares are of Init's total, of those within bootstrap of Bootstrap's; `share` is that of the
    means, `share_min` and `share_max` those of single ranks.
    """

    name: str
    within: str | None = None
    ranks: int
    mean_s: float
    p50_s: float
    p99_s: float
    max_s: float
    max_rank: int | None
    share: float | None = None
    share_min: float | None = None
    share_max: float | None = None


class LateRank(msgspec.Struct, frozen=True, kw_only=True):
    """A rank that others waited for. `seen` False: the logs hold no line of it."""

    rank: int
    seen: bool
    late_s: float
    text: str


class LogCommunicator(msgspec.Struct, frozen=True, kw_only=True):
    """One communicator, as far as the logs show it. `nranks` None: no line tells its size."""

    index: int
    comm_id: str | None = None
    function: str | None = None
    nranks: int | None
    parent: int | None = None
    """Index of the one it was split from."""
    is_split: bool = False
    color: int | None = None
    child_count: int | None = None
    generation: int = 0
    named: bool = True
    """False: no line says which communicator it is; its ranks were put together by size."""
    seen: int
    unseen: int | None
    unseen_ranks: list[list[int]] = []
    """[first, last] of each gap, the first 1,000."""
    incomplete: int = 0
    """Ranks that started and of which no line says that they completed."""
    incomplete_ranks: list[list[int]] = []
    nodes: int | None = None
    """As NCCL counts them."""
    host_names: int = 0
    phases: list[LogPhase] = []
    slowest_rank: int | None = None
    late: list[LateRank] = []
    findings: list[str] = []


class CompareResult(Document, kw_only=True, tag="emucoll.compare/1"):
    """Two things side by side: a run and the logs of real jobs.

    `spec`, `environment`, `seed` and `kind` are those of the run.
    """

    schema: ClassVar[str] = "emucoll.compare/1"

    operands: list[Operand] = []
    rows: list[Row] = []
    saturated: bool | None = None
    files: list[LogFile] = []
    """The first 1,000."""
    file_count: int = 0
    versions: dict[str, int] = {}
    """Processes that wrote each version."""
    communicators: list[LogCommunicator] = []
    findings: list[str] = []


class EttResult(Document, kw_only=True, tag="emucoll.ett/1"):
    """Effective training time over n. `kind` is projected: nothing of it was measured here."""

    schema: ClassVar[str] = "emucoll.ett/1"

    spec: EttSpec | None = None  # type: ignore[assignment]  # nothing is run: another spec
    profile: str | None = None
    """What the profile says that it is."""
    inputs: list[Input] = []
    causes: dict[str, int] = {}
    """Failures by cause, as the profile counts them."""
    points: list[EttPoint] = []


class ExportedRank(msgspec.Struct, frozen=True, kw_only=True):
    """A rank in a trace."""

    rank: int
    name: str
    """With what it is there for: `rank 57 (slowest)`."""
    spans: int


class ExportResult(Document, kw_only=True, tag="emucoll.export/1"):
    """What was written for another program: of a schedule, how many messages, of how many bytes in
    all; of a run, how many spans of which ranks.
    """

    schema: ClassVar[str] = "emucoll.export/1"

    file: str | None = None
    form: Literal["goal", "perfetto"] | None = None
    nranks: int | None = None
    allgather: str | None = None
    steps: int | None = None
    messages: int | None = None
    bytes: int | None = None
    ranks: list[ExportedRank] = []
    counters: dict[str, list[str]] = {}
    """By process the names of its curves."""


def bandwidth(
    nranks: int, record_bytes: int, transfers: int, seconds: float
) -> tuple[float | None, float | None]:
    """nccl-tests' (algbw, busbw) of an AllGather, GB/s, from the blocks that all ranks together
    received.

    algbw is the size of one rank's result, its own record included, over the time; busbw leaves
    that record out, which for a whole AllGather is nccl-tests' algbw * (n - 1) / n. Both hold for
    the first steps of one too. None without time.
    """
    if seconds <= 0:
        return None, None
    received = transfers / nranks * record_bytes
    return (received + record_bytes) / seconds / 1e9, received / seconds / 1e9


def failure(
    what: str,
    *,
    exit_code: int = 2,
    evidence: str | None = None,
    cause: str | None = None,
    next: str | None = None,
    spec: Spec | None = None,
    environment: Environment | None = None,
    warnings: list[RunWarning] | None = None,
) -> RunResult:
    """A run that failed before anything ran: what `--json` prints for a usage error, `spec` None if
    there is none yet.
    """
    return RunResult(
        spec=spec,
        environment=environment,
        seed=None if spec is None else spec.seed,
        ok=False,
        warnings=warnings or [],
        error=RunError(what=what, evidence=evidence, cause=cause, next=next),
        exit_code=exit_code,
        nranks=None if spec is None else spec.nranks,
    )
