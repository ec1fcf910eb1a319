"""What `emucoll validate` is asked for, and the runs that answers it."""

from collections.abc import Iterator
from typing import Literal, TypeAlias

import msgspec

from emucoll.collectives import ALLGATHERS
from emucoll.errors import UsageError
from emucoll.formation import FORMATIONS
from emucoll.loading import find_formation, find_schedule
from harness.names import refuse_unknown
from harness.spec import Spec
from harness.suggest import unknown

Regime: TypeAlias = Literal["emulation", "latency-bound"]
EMULATION: Regime = "emulation"
"""n ranks share these cores, which are busy all the time."""
LATENCY_BOUND: Regime = "latency-bound"
"""Messages arrive late, and cores wait: as on a cluster."""
REGIMES: tuple[Regime, ...] = (EMULATION, LATENCY_BOUND)
MAX_REPEAT = 100
HOP_DELAY_S = 0.020
CONNECTING_HOP_DELAY_S = 0.040
"""Where connections are made there is much CPU for each message: the cores would not wait."""
STEPS = 512
"""Of the AllGathers of busy cores; the latency-bound ones are whole."""
SIZES: dict[Regime, tuple[int, ...]] = {EMULATION: (2048, 4096), LATENCY_BOUND: (8, 32, 128)}
_DEADLINE_S = 300.0


class ValidateSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to check."""

    regime: tuple[str, ...] = REGIMES
    formation: tuple[str, ...] = ()
    allgather: tuple[str, ...] = ()
    """Names, or paths of the user's own; both empty: all that there are."""
    repeat: int = 5
    calibration: str | None = None
    """A host that was calibrated before; None: this one is calibrated in turns with the runs."""
    published: bool = False
    """Instead of runs: what others published beside what the model says."""
    out: str | None = None
    """The file that the result goes to."""

    @property
    def formations(self) -> tuple[str, ...]:
        """Those to check."""
        everything = not self.formation and not self.allgather
        return tuple(FORMATIONS) if everything else self.formation

    @property
    def allgathers(self) -> tuple[str, ...]:
        """Those to check."""
        everything = not self.formation and not self.allgather
        return tuple(ALLGATHERS) if everything else self.allgather


def check(spec: ValidateSpec) -> None:
    """Raise UsageError for what there is not."""
    for regime in spec.regime:
        if regime not in REGIMES:
            raise unknown("regime", regime, REGIMES)
    if not 1 <= spec.repeat <= MAX_REPEAT:
        raise UsageError(f"--repeat is {spec.repeat}: expected 1 to {MAX_REPEAT}")
    for name in spec.formation:
        refuse_unknown("formation", name)
        find_formation(name)
    for name in spec.allgather:
        refuse_unknown("AllGather", name)
        find_schedule(name)
    if spec.out == "":
        raise UsageError("--out is empty: expected a file")


def held_out(spec: ValidateSpec) -> Iterator[tuple[Regime, bool, Spec]]:
    """The runs, each with its regime and whether its AllGather is what it is for. Formations run
    with one step after them.
    """
    for regime in REGIMES:
        if regime not in spec.regime:
            continue
        for n in SIZES[regime]:
            for formation in spec.formations:
                late_s = CONNECTING_HOP_DELAY_S if regime == LATENCY_BOUND else 0.0
                yield regime, False, _run(n, late_s, formation=formation, steps=1)
            for allgather in spec.allgathers:
                steps = STEPS if regime == EMULATION else None
                connects = bool(find_schedule(allgather).peers(n))
                late_s = CONNECTING_HOP_DELAY_S if connects else HOP_DELAY_S
                late_s = late_s if regime == LATENCY_BOUND else 0.0
                yield regime, True, _run(n, late_s, allgather=allgather, steps=steps)


def _run(
    n: int,
    late_s: float,
    formation: str = "tcpstore",
    allgather: str = "ring",
    steps: int | None = None,
) -> Spec:
    return Spec(
        nranks=n,
        formation=formation,
        allgather=allgather,
        record_bytes=28,
        steps=steps,
        hop_delay_s=late_s,
        deadline_s=_DEADLINE_S,
        handshake_s=_DEADLINE_S,
    )
