"""What the controller, its workers and its servers say to each other: typed, versioned, msgpack;
never pickle.

A process introduces itself with `Hello`, which carries the run's token; whoever has not done so is
a stranger and is ignored. Bulk data (addresses, per-rank times) travels as packed bytes. Knows
nothing of sockets.
"""

from typing import TypeAlias

import msgspec

from emucoll.wrong import Wrong
from harness.spec import Spec
from harness.work import Work

PROTOCOL = 5
"""Raised with every change that an older worker would not understand."""


# -- from any process


class Hello(msgspec.Struct, frozen=True, kw_only=True, tag="hello"):
    """The first message of every process."""

    protocol: int
    token: str
    process: str
    """Its name, as the controller started it: "worker 3", "root", "store"."""
    host: str
    loop: str


class Broken(msgspec.Struct, frozen=True, kw_only=True, tag="broken"):
    """A process cannot go on. `kind`: "usage" (the user's doing) or "harness"."""

    kind: str
    what: str


class RankFailed(msgspec.Struct, frozen=True, kw_only=True, tag="rank-failed"):
    """A rank ended with an exception. `kind`: "raised", "closed" (a peer or server went away) or
    "network".
    """

    rank: int
    phase: str
    peer: int
    kind: str
    what: str


# -- to and from servers


class ServerSetup(msgspec.Struct, frozen=True, kw_only=True, tag="server-setup"):
    """What a root or store has to be. `kill_at`: end yourself with SIGKILL at that many check-ins
    (fault injection).
    """

    kind: str
    nranks: int
    formation: str
    nroots: int
    """0 for a store."""
    group_roots: tuple[int, ...]
    """How many ranks each root of a process group has, beside the roots of all ranks."""
    several_roots: bool
    """Could there be more, as the formation goes?"""
    check_in_bytes: int
    """What our own root takes."""
    windowed: bool
    """Not all ranks start together."""
    source: str
    magic: int
    library: str | None
    handshake_s: float
    deadline_s: float
    hop_delay_s: float
    kill_at: int | None
    record: bool
    """What it does over time, too."""


class ServerReady(msgspec.Struct, frozen=True, kw_only=True, tag="server-ready"):
    """Where the server listens: a store's 28-byte address, or its roots' 128-byte unique ids, one
    after another, and the size of their check-in.
    """

    address: bytes
    check_in_bytes: int | None = None
    version: str | None = None


class ServerReport(msgspec.Struct, frozen=True, kw_only=True, tag="server-report"):
    """What a server did since it was ready; a foreign program counts little."""

    work: Work
    dropped: list[str]
    """Why strangers were turned away; the first few of `dropped_count`."""
    dropped_count: int
    series: dict[str, list[float]] = {}
    """Where it was recorded: a value a sample, by column (`control.series`)."""


# -- to and from workers


class Setup(msgspec.Struct, frozen=True, kw_only=True, tag="setup"):
    """What a worker has to run: ranks `first` ... `first + count - 1` of `spec`, on its own
    address.
    """

    spec: Spec
    first: int
    count: int
    source: str
    window: int | None
    magic: int
    comm: str
    report_check_ins: bool
    """Tell of every rank that has checked in (for fault injection), not only now and then."""
    kill_at_first_block: bool
    folder: str
    """Where the user's own modules lie, beside what is installed."""
    keep_store: bool
    """May ranks keep the connection to the store that a plan's front has opened?"""
    attempt: int
    """How often these ranks have been brought up before."""
    charges: dict[str, float]
    """By phase the seconds of local work that each rank lets pass; without one it runs its own."""
    record: bool = False
    """Every span of every rank, and what the worker does over time."""


class Prepared(msgspec.Struct, frozen=True, kw_only=True, tag="prepared"):
    """The worker waits for the start, or for the AllGather once it has its records."""


class Start(msgspec.Struct, frozen=True, kw_only=True, tag="start"):
    """All ranks start. `store` is its 28-byte address, `unique_ids` the roots' 128 bytes each, one
    after another.
    """

    store: bytes | None
    unique_ids: bytes
    group_ids: bytes
    """Of process groups' roots, in the same way."""
    check_in_bytes: int | None


class Progress(msgspec.Struct, frozen=True, kw_only=True, tag="progress"):
    """How many of the worker's ranks are in which phase, and how far they are."""

    phases: dict[str, int]
    checked_in: int
    formed: int
    gathered: int
    share: float
    """Of the AllGather's blocks, received so far."""


class Formed(msgspec.Struct, frozen=True, kw_only=True, tag="formed"):
    """All ranks of the worker have formed; the addresses of each one's listeners in the plan's
    order (`Plan.published`), 28 bytes each, for verification only.
    """

    addresses: bytes
    seconds: float


class Records(msgspec.Struct, frozen=True, kw_only=True, tag="records"):
    """What all workers published (`Formed`), in rank order; None where no record has an address."""

    addresses: bytes | None


class Begin(msgspec.Struct, frozen=True, kw_only=True, tag="begin"):
    """All ranks begin the AllGather."""


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one AllGather in one worker."""

    began_s: float
    """Since the start, its first rank; `ended_s`: its last rank done."""
    ended_s: float
    wrong: int
    wrong_blocks: list[Wrong]
    blocks: int
    """Delivered."""
    learned: dict[int, bytes]
    """The records of external ranks, as they came first."""


class GroupsUp(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one kind of process group in one worker. `began_s`: None if nobody began."""

    began_s: float | None
    ended_s: float
    connections: int
    requests: int
    retries: int
    wrong: int
    wrong_blocks: list[Wrong]


class Finished(msgspec.Struct, frozen=True, kw_only=True, tag="finished"):
    """All ranks of the worker are done: what they did, and how long each took over each phase."""

    total_s: float
    """From the start to its last rank done."""
    gathers: list[Gathered]
    """One for each of the spec's AllGathers, in their order."""
    groups: list[GroupsUp]
    """One for each kind of process group, in the spec's order."""
    phases: dict[str, bytes]
    """Per phase the wall time of each rank, float64."""
    totals: bytes
    """Per rank its own total, float64."""
    cpu_s: dict[str, float]
    """Per phase, summed over the ranks; "loop" is what belongs to none."""
    work: Work
    """All its ranks', and the event loop's."""
    reads: int
    """Of the AllGathers alone, as `writes`."""
    writes: int
    peak_descriptors: int
    held_descriptors: int
    dropped: list[str]
    """Why strangers were turned away; the first few of `dropped_count`."""
    dropped_count: int
    spans: "Spans | None" = None
    series: dict[str, list[float]] = {}
    """As a server's."""
    started_at: float = 0.0
    """The time of the day when it started its ranks."""


class Spans(msgspec.Struct, frozen=True, kw_only=True):
    """The arrays of an `emucoll.spans.SpanLog`, and what its phases are called; times by the
    worker's clock, since its start.
    """

    names: list[str]
    slots: bytes
    phases: bytes
    peers: bytes
    begins: bytes
    ends: bytes
    began: float
    """What the clock said at the start."""


class Dump(msgspec.Struct, frozen=True, kw_only=True, tag="dump"):
    """Tell whom each rank waits for; of a store, which keys are waited for."""


class StuckKeys(msgspec.Struct, frozen=True, kw_only=True, tag="stuck-keys"):
    """Keys of the store that clients wait for, the most waited for first, and how many do."""

    keys: list[tuple[bytes, int]]


class WaitingRanks(msgspec.Struct, frozen=True, kw_only=True, tag="waiting"):
    """Each rank's phase (an index into `names`, u16) and peer (i64: a rank or a constant of
    `emucoll.spans`).
    """

    first: int
    """The worker's first rank."""
    names: list[str]
    phases: bytes
    peers: bytes


class Stop(msgspec.Struct, frozen=True, kw_only=True, tag="stop"):
    """Close everything and exit; servers report first."""


AnyMessage: TypeAlias = (
    Hello
    | Broken
    | RankFailed
    | ServerSetup
    | ServerReady
    | ServerReport
    | Setup
    | Prepared
    | Start
    | Progress
    | Formed
    | Records
    | Begin
    | Finished
    | Dump
    | StuckKeys
    | WaitingRanks
    | Stop
)

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(AnyMessage)


def encode(message: AnyMessage) -> bytes:
    """One frame."""
    return _encoder.encode(message)


def decode(data: bytes) -> AnyMessage:
    """The message in a frame. Raises msgspec.MsgspecError for anything else."""
    try:
        return _decoder.decode(data)
    except RecursionError as error:  # a stranger's frame, nested a thousand deep
        raise msgspec.DecodeError(str(error)) from None
