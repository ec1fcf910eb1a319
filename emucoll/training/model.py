"""Effective training time of a job that restarts from its last checkpoint, in closed forms.

Failures come at a constant rate. After one the job is down until it is detected, in which time
nothing else can fail; then it restarts and initializes, which a further failure interrupts; then it
does again what it had done since its last checkpoint. Writing a checkpoint stops the work. In the
words of Aupy et al. (2013): D is the detection, R restart and initialization, C the write, T the
period, the write included; `interval_s` here is the work between two writes, T - C.

`effective` is exact in all of this. The first-order forms take failures for rare: 0.5 % off where
(lost time of a failure) / (time between failures) is 0.1, 18 % at 0.48.
"""

import math
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a job's time goes to. Seconds; `mtbf_s` may be infinite."""

    mtbf_s: float
    write_s: float = 0.0
    detection_s: float = 0.0
    restart_s: float = 0.0
    init_s: float = 0.0

    @property
    def recovery_s(self) -> float:
        """Restart and initialization: what a failure may interrupt."""
        return self.restart_s + self.init_s

    @property
    def down_s(self) -> float:
        """From a failure to the first step after it, if no other comes."""
        return self.detection_s + self.recovery_s


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Where the job's time goes, as shares that add up to 1."""

    productive: float
    checkpoint: float
    """Writes that were completed."""
    rework: float
    """Work, and writes, that a failure made void."""
    detection: float
    restart: float
    init: float
    stall: float = 0.0
    """With isolation: all replicas wait while one is taken out."""
    degraded: float = 0.0
    """With isolation: the capacity of replicas that are out."""


# -- exact


def effective(job: Job, interval_s: float) -> float:
    """The exact share of time that is kept, in a job without end.

    (T - C) / ((mtbf + D) exp(R / mtbf) (exp(T / mtbf) - 1)), Aupy et al. 2013; 0 where all time
    goes to writing.
    """
    return parts(job, interval_s).productive


def parts(job: Job, interval_s: float) -> Parts:
    """The same, with all that is lost: from one failure to the next, in the mean."""
    mtbf, write = job.mtbf_s, job.write_s
    period = interval_s + write
    if math.isinf(mtbf):
        kept = 1.0 if math.isinf(interval_s) or not period else interval_s / period
        return _shares(kept, 1.0 - kept)
    cycle = mtbf + job.detection_s
    reached = mtbf * math.exp(-job.recovery_s / mtbf)  # work until the next failure
    restart = -mtbf * math.expm1(-job.restart_s / mtbf)
    init = mtbf - reached - restart
    if period == 0:  # every moment is kept, and keeping takes no time
        kept = written = reached
        written = 0.0
    else:
        completed = reached / mtbf / _expm1(period / mtbf)
        kept = 0.0 if completed == 0 else completed * interval_s
        written = completed * write
    return Parts(
        productive=kept / cycle,
        checkpoint=written / cycle,
        rework=max(0.0, reached - kept - written) / cycle,
        detection=job.detection_s / cycle,
        restart=restart / cycle,
        init=max(0.0, init) / cycle,
    )


def best_interval_s(mtbf_s: float, write_s: float) -> float:
    """The work between two writes with which `effective` is highest: infinite without
    failures, else 0 where writing takes no time.

    With t = T / mtbf and c = C / mtbf that is where 1 - exp(-t) = t - c, whatever D and R are.
    """
    if math.isinf(mtbf_s):
        return math.inf
    if write_s == 0:
        return 0.0
    share = write_s / mtbf_s
    period = share + 1.0  # right of the root of a convex function: Newton comes down to it
    while True:
        step = (period + math.expm1(-period) - share) / -math.expm1(-period)
        if step <= 1e-15 * period:
            break
        period -= step
    return max(0.0, period - share) * mtbf_s


# -- first order


def first_order(job: Job, interval_s: float) -> float:
    """(1 - (u0 + interval / 2) / mtbf) / (1 + write / interval), with u0 all that a failure stops
    the job for: Kokolis et al., arXiv 2410.21680v2.

    Below 0 where failures are so frequent that the form means nothing.
    """
    if math.isinf(interval_s):
        return 1.0 if math.isinf(job.mtbf_s) else -math.inf
    lost = (job.down_s + interval_s / 2) / job.mtbf_s
    return (1.0 - lost) / (1.0 + _ratio(job.write_s, interval_s))


def young_interval_s(mtbf_s: float, write_s: float) -> float:
    """sqrt(2 mtbf C): the best interval to first order (Young 1974; Kokolis' too)."""
    return math.inf if math.isinf(mtbf_s) else math.sqrt(2 * mtbf_s * write_s)


def young_period_s(mtbf_s: float, write_s: float) -> float:
    """Young's interval with the write, as Aupy et al. tabulate it."""
    return young_interval_s(mtbf_s, write_s) + write_s


def daly_period_s(job: Job) -> float:
    """sqrt(2 (mtbf + D + R) C) + C (Daly 2004)."""
    return math.sqrt(2 * (job.mtbf_s + job.down_s) * job.write_s) + job.write_s


def refined_period_s(job: Job) -> float | None:
    """RFO of Aupy et al. 2013, sqrt(2 (mtbf - D - R) C); None where a recovery takes longer than
    failures are apart.
    """
    left = job.mtbf_s - job.down_s
    return math.sqrt(2 * left * job.write_s) if left > 0 else None


def _shares(kept: float, written: float) -> Parts:
    """Of a job that never fails."""
    return Parts(
        productive=kept, checkpoint=written, rework=0.0, detection=0.0, restart=0.0, init=0.0
    )


def _ratio(write_s: float, interval_s: float) -> float:
    if write_s == 0:
        return 0.0
    return math.inf if interval_s == 0 else write_s / interval_s


def _expm1(x: float) -> float:
    try:
        return math.expm1(x)
    except OverflowError:
        return math.inf
