"""The life of one run as a pure state machine: events in, instructions out.

It knows the processes of the run by name and what each has said; it knows no socket, no clock and
no process handle. The controller turns messages, exits, signals and timers into events and carries
the instructions out.

    LAUNCHING -> PREPARING -> FORMING -> RECORDS -> GATHERING -> CLOSING -> DONE
    from GATHERING to PREPARING again, as often as all ranks are to be brought up anew
    and from each of them, when something fails: -> DIAGNOSING -> DONE

A first failure does not end the run at once: for a short grace the machine collects what else
fails, and then blames the likeliest cause. A killed worker makes its neighbours fail too, often
sooner than its own end is noticed.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

GRACE_S = 0.5
"""How long a first failure waits for one that explains it."""
DUMP_S = 5.0
"""How long the workers may take to say whom their ranks wait for."""


class Stage(Enum):
    """Where a run is."""

    LAUNCHING = "launching"
    PREPARING = "preparing"
    FORMING = "forming"
    RECORDS = "records"
    GATHERING = "gathering"
    CLOSING = "closing"
    DIAGNOSING = "diagnosing"
    DONE = "done"


# -- events


@dataclass(frozen=True, slots=True)
class Joined:
    """A process has said hello with the run's token."""

    process: str


@dataclass(frozen=True, slots=True)
class IsReady:
    """A process has prepared what it was last told to."""

    process: str


@dataclass(frozen=True, slots=True)
class AllFormed:
    """All ranks of a worker have formed."""

    process: str


@dataclass(frozen=True, slots=True)
class AllGathered:
    """All ranks of a worker are done."""

    process: str


@dataclass(frozen=True, slots=True)
class Reported:
    """A server has reported, or a worker has said whom its ranks wait for."""

    process: str


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something failed; `weight` says how likely it is the cause and not a consequence: the
    heaviest is blamed.
    """

    weight: "Weight"
    detail: object


@dataclass(frozen=True, slots=True)
class TimeUp:
    """The timer that was last asked for has run out."""


@dataclass(frozen=True, slots=True)
class DeadlineReached:
    """The run's deadline has passed."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The user wants it to end (Ctrl-C, SIGTERM)."""


Event: TypeAlias = (
    Joined
    | IsReady
    | AllFormed
    | AllGathered
    | Reported
    | Trouble
    | TimeUp
    | DeadlineReached
    | Interrupted
)


class Weight(Enum):
    """Causes, likeliest last."""

    CONNECTION_LOST = 1
    NETWORK = 2
    DEADLINE = 3
    RANK_RAISED = 4
    BROKEN = 5
    PROCESS_LOST = 6
    USAGE = 7
    INTERRUPTED = 8


# -- instructions


class Do(Enum):
    """What the controller has to do next."""

    SETUP_ALL = "send every process its setup"
    START = "tell the workers where the servers are, and start"
    SEND_RECORDS = "send the workers what to verify against"
    BEGIN = "begin the AllGather"
    RESTART = "keep what came of it, and send every process a new setup"
    STOP_ALL = "tell every process to stop"
    DUMP = "ask the workers whom their ranks wait for"
    WAIT_GRACE = "set the timer to the grace"
    WAIT_DUMP = "set the timer to the time for dumps"
    CONCLUDE = "the run is over"


@dataclass(slots=True)
class Lifecycle:
    """One run with these workers and servers."""

    workers: frozenset[str]
    servers: frozenset[str]
    restarts: int = 0
    """How often the ranks are still to be brought up anew."""
    stage: Stage = Stage.LAUNCHING
    trouble: Trouble | None = None
    """The likeliest cause of a failure so far."""
    _said: set[str] = field(default_factory=set)

    def handle(self, event: Event) -> list[Do]:
        """Take an event in; what to do about it, in order."""
        if self.stage is Stage.DONE:
            return []
        match event:
            case Interrupted():
                return self._interrupted()
            case DeadlineReached():
                return self._deadline()
            case Trouble():
                return self._failed(event)
            case TimeUp():
                return self._time_up()
            case _:
                return self._progress(event)

    def _progress(self, event: Joined | IsReady | AllFormed | AllGathered | Reported) -> list[Do]:
        if self.stage is Stage.DIAGNOSING:
            if isinstance(event, Reported) and self._all_said(event.process, self.workers):
                return self._conclude()
            return []
        expected, who, then, do = _TRANSITIONS[self.stage]
        if not isinstance(event, expected):
            return []
        everyone = {
            "all": self.workers | self.servers,
            "workers": self.workers,
            "servers": self.servers,
        }[who]
        if not self._all_said(event.process, everyone):
            return []
        if then is Stage.CLOSING and self.restarts:
            self.restarts -= 1
            self.stage = Stage.PREPARING
            return [Do.RESTART]
        self.stage = then
        if then is Stage.CLOSING and not self.servers:
            self.stage = Stage.DONE
            return [*do, Do.CONCLUDE]
        return list(do)

    def _all_said(self, process: str, everyone: frozenset[str]) -> bool:
        self._said.add(process)
        if not everyone <= self._said:
            return False
        self._said.clear()
        return True

    def _failed(self, trouble: Trouble) -> list[Do]:
        first = self.trouble is None
        if self.trouble is None or trouble.weight.value > self.trouble.weight.value:
            self.trouble = trouble
        if trouble.weight is Weight.USAGE:
            return self._conclude()
        if not first:
            return []
        self.stage = Stage.DIAGNOSING
        return [Do.WAIT_GRACE]

    def _deadline(self) -> list[Do]:
        if self.stage is Stage.DIAGNOSING:
            return []
        running = self.stage in (Stage.FORMING, Stage.RECORDS, Stage.GATHERING)
        self.trouble = Trouble(Weight.DEADLINE, self.stage)
        self.stage = Stage.DIAGNOSING
        if not running:
            return self._conclude()
        self._said.clear()
        return [Do.DUMP, Do.WAIT_DUMP]

    def _interrupted(self) -> list[Do]:
        self.trouble = Trouble(Weight.INTERRUPTED, self.stage)
        return self._conclude()

    def _time_up(self) -> list[Do]:
        return self._conclude() if self.stage is Stage.DIAGNOSING else []

    def _conclude(self) -> list[Do]:
        self.stage = Stage.DONE
        return [Do.STOP_ALL, Do.CONCLUDE]


_TRANSITIONS: dict[Stage, tuple[type, str, Stage, tuple[Do, ...]]] = {
    Stage.LAUNCHING: (Joined, "all", Stage.PREPARING, (Do.SETUP_ALL,)),
    Stage.PREPARING: (IsReady, "all", Stage.FORMING, (Do.START,)),
    Stage.FORMING: (AllFormed, "workers", Stage.RECORDS, (Do.SEND_RECORDS,)),
    Stage.RECORDS: (IsReady, "workers", Stage.GATHERING, (Do.BEGIN,)),
    Stage.GATHERING: (AllGathered, "workers", Stage.CLOSING, (Do.STOP_ALL,)),
    Stage.CLOSING: (Reported, "servers", Stage.DONE, (Do.CONCLUDE,)),
}
"""Stage -> (the event it waits for, from whom all, the next stage, what to do then)."""
