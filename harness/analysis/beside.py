"""A run and a real communicator side by side: rows of phases that mean the same.

The run's phases bear NCCL's names, so most rows pair by name. What is not NCCL's is taken out: the
barrier between formation and AllGather (`bootstrap.barrier`) leaves the run's bootstrap, and
admission is outside it. Connecting and accepting, which NCCL does not time, stand beside what
NCCL's timers do not explain.

Holds true: base is the run, candidate the job; no verdict but noise where the run was saturated or
the log's decimals cannot tell. Must not know files, log lines or how rows are shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from harness.analysis.init_phases import BOOTSTRAP_TOTAL, UNEXPLAINED
from harness.external.nccl_log import BOOTSTRAP_PARTS, BOOTSTRAP_RESOLUTION_S, INIT_RESOLUTION_S
from harness.results.schema import Kind, LogCommunicator, LogPhase, Phase, Row, RunResult

TOLERANCE = 1.25
"""Means within this factor are the same: one run of each says no more."""
OWN = ("bootstrap.barrier",)
"""Phases of a run that are emucoll's and have no counterpart in a job."""

_TIMED = tuple(f"bootstrap.{name}" for name in BOOTSTRAP_PARTS)


@dataclass(frozen=True, slots=True)
class _Time:
    seconds: float
    share: float | None
    kind: Kind
    note: str | None = None


def comparable(result: RunResult, logs: Sequence[LogCommunicator]) -> list[LogCommunicator]:
    """Those that `result` emulates: of its size, initialized rather than split, with times."""
    return [
        each for each in logs if each.nranks == result.nranks and each.phases and not each.is_split
    ]


def rows_of(result: RunResult, communicator: LogCommunicator) -> list[Row]:
    """One row per phase of the log, NCCL's order: the run as base, the job as candidate."""
    emulated = _emulated({phase.name: phase for phase in result.phases})
    names = {phase.name for phase in communicator.phases}
    rows = []
    share = None
    for phase in communicator.phases:
        if phase.name == "bootstrap" and BOOTSTRAP_TOTAL in names:
            share = phase.share  # of Init; its seconds stand in its own line with six decimals
            continue
        row = _row(phase, emulated, bool(result.saturated))
        if phase.name == BOOTSTRAP_TOTAL:
            row = msgspec.structs.replace(row, candidate_share=share)
        rows.append(msgspec.structs.replace(row, communicator=communicator.index))
    return rows


def _row(phase: LogPhase, emulated: dict[str, _Time], saturated: bool) -> Row:
    metric = "bootstrap" if phase.name == BOOTSTRAP_TOTAL else phase.name
    # A mean over many ranks is finer than one line; but all may be rounded the same way.
    resolution_s = BOOTSTRAP_RESOLUTION_S if phase.within else INIT_RESOLUTION_S
    base = emulated.get(metric)
    if base is None:
        return Row(
            metric=metric,
            candidate=phase.mean_s,
            candidate_share=phase.share,
            note="not part of the emulated run",
        )
    return Row(
        metric=metric,
        base=base.seconds,
        candidate=phase.mean_s,
        ratio=phase.mean_s / base.seconds if base.seconds else None,
        verdict="noise" if saturated else verdict(base.seconds, phase.mean_s, resolution_s),
        base_share=base.share,
        base_kind=base.kind,
        candidate_share=phase.share,
        note=base.note,
    )


def verdict(
    base_s: float, candidate_s: float, resolution_s: float
) -> Literal["same", "better", "worse", "noise"]:
    """Is the candidate slower than `base_s`, quicker, or the same within `TOLERANCE`?"""
    if base_s < 2 * resolution_s and candidate_s < 2 * resolution_s:
        return "noise"
    if base_s / TOLERANCE <= candidate_s <= base_s * TOLERANCE:
        return "same"
    if abs(candidate_s - base_s) <= resolution_s:
        return "noise"
    return "worse" if candidate_s > base_s else "better"


def _emulated(run: dict[str, Phase]) -> dict[str, _Time]:
    """The mean of each metric that the run has, in NCCL's terms."""
    found: dict[str, _Time] = {}
    means = {name: phase.mean_s for name, phase in run.items() if phase.mean_s is not None}
    if "bootstrap" in means:
        own = sum(means.get(name, 0.0) for name in OWN)
        whole = max(0.0, means["bootstrap"] - own)
        parts = {name: means[name] for name in _TIMED if name in means}
        gap = max(0.0, whole - sum(parts.values()))
        kind = run["bootstrap"].kind
        found = {
            name: _Time(seconds, _share(seconds, whole), run[name].kind)
            for name, seconds in parts.items()
        }
        found["bootstrap"] = _Time(whole, None, kind, "less the barrier" if own else None)
        note = "connect, accept"
        if "bootstrap.get_key" in means:
            note = "the store's part, connect, accept"
        found[UNEXPLAINED] = _Time(gap, _share(gap, whole), kind, note)
    if "allgathers" in means:  # without them its rest is emucoll's own, not NCCL's
        names = [name for name in ("allgathers", "rest") if name in means]
        found |= {name: _Time(means[name], None, run[name].kind) for name in names}
    return found


def _share(seconds: float, whole: float) -> float | None:
    return seconds / whole if whole else None
