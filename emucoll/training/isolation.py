"""Effective training time where a failure takes out one replica of R and the others go on.

The published unit is a data-parallel replica (FT-HSDP, arXiv 2602.00277: 12 of 8,192 GPUs). When
one fails, all wait for `stall_s` until it is taken out; then the others go on at (R - 1) / R until
it is back. It heals from another, so nothing is done twice. Replicas fail independently; several
may be out together. A replica that fails while it recovers begins its recovery again, and stops
nobody.

What stops the whole job still needs a checkpoint: failures that are not confined to a replica, and
that all replicas are out together.
"""

import math
from dataclasses import dataclass, replace

from emucoll.training.model import (
    Job,
    Parts,
    best_interval_s,
    effective,
    first_order,
    parts,
    young_interval_s,
)

LONGEST_INTERVAL_S = 86_400.0
"""Of a job that hardly ever needs its checkpoints: they are written once a day all the same."""


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """One replica of `replicas` at a time. `init_s` is that of a replica alone; None: the job's."""

    replicas: int
    stall_s: float = 0.0
    confined_share: float = 1.0
    """Of all failures, those that stay within a replica."""
    init_s: float | None = None

    def out_s(self, job: Job) -> float:
        """From a replica's failure until it is back, if it does not fail again meanwhile."""
        init_s = job.init_s if self.init_s is None else self.init_s
        return job.detection_s + job.restart_s + init_s

    def degraded_s(self, job: Job) -> float:
        """What of it follows the stall."""
        return max(0.0, self.out_s(job) - self.stall_s)

    def confined_mtbf_s(self, job: Job) -> float:
        """Between failures of any replica."""
        return job.mtbf_s / self.confined_share if self.confined_share else math.inf


@dataclass(frozen=True, kw_only=True)
class Split:
    """An isolated job as two that do not know of each other."""

    whole: Job
    """What stops all replicas, and goes back to a checkpoint."""
    running: float
    """Of a job that nothing stops as a whole, the share of work that is done."""
    stalled: float
    degraded: float


def split(job: Job, isolation: Isolation) -> Split:
    """The two: the job as a whole, and its replicas.

    While the job is not stalled a replica is up for R mtbf in the mean, then out for
    R mtbf (exp(x) - 1) with x = degraded_s / (R mtbf). So up to a factor the job's time divides
    into 1 (work), exp(x) - 1 (capacity that is out) and stall_s / mtbf. All are out together as
    often as the last one fails: (a / mtbf) (1 - a)^(R - 1), with a = exp(-x) a replica's
    availability.
    """
    mtbf = isolation.confined_mtbf_s(job)
    if math.isinf(mtbf):
        return Split(whole=job, running=1.0, stalled=0.0, degraded=0.0)
    exponent = isolation.degraded_s(job) / (isolation.replicas * mtbf)
    available, stalled = math.exp(-exponent), isolation.stall_s / mtbf
    not_stalled = 1.0 / (1.0 + stalled * available)
    running = available * not_stalled
    all_out = not_stalled * available / mtbf
    all_out *= (-math.expm1(-exponent)) ** (isolation.replicas - 1)
    rate = (1.0 - isolation.confined_share) / job.mtbf_s + all_out
    whole = replace(job, mtbf_s=1.0 / rate if rate > 0 else math.inf)
    return Split(
        whole=whole,
        running=running,
        stalled=stalled * running,
        degraded=1.0 - running - stalled * running,
    )


def isolated_effective(job: Job, isolation: Isolation, interval_s: float) -> float:
    """The share of time that is kept: exact for each of the two halves, which are taken to be
    independent.
    """
    halves = split(job, isolation)
    return effective(halves.whole, interval_s) * halves.running


def isolated_parts(job: Job, isolation: Isolation, interval_s: float) -> Parts:
    """The same, with all that is lost."""
    halves = split(job, isolation)
    whole = parts(halves.whole, interval_s)
    return replace(
        whole,
        productive=whole.productive * halves.running,
        stall=whole.productive * halves.stalled,
        degraded=whole.productive * halves.degraded,
    )


def isolated_best_interval_s(job: Job, isolation: Isolation) -> float:
    """The best interval against what stops the whole job, a day at most."""
    best = best_interval_s(split(job, isolation).whole.mtbf_s, job.write_s)
    return min(best, LONGEST_INTERVAL_S)


def isolated_young_interval_s(job: Job, isolation: Isolation) -> float:
    """Young's, against failures that are not confined; a day at most."""
    return min(
        young_interval_s(_unconfined(job, isolation).mtbf_s, job.write_s), LONGEST_INTERVAL_S
    )


def isolated_first_order(job: Job, isolation: Isolation, interval_s: float) -> float:
    """(full + degraded (R - 1) / R) / M of FT-HSDP, where M are the seconds from one failure to the
    next, each of which finds all replicas up; less what failures of the whole job take, and writes.
    """
    lost = isolation.stall_s + isolation.degraded_s(job) / isolation.replicas
    confined = lost / isolation.confined_mtbf_s(job)
    whole = _unconfined(job, isolation)
    writes = first_order(replace(whole, mtbf_s=math.inf), interval_s)
    return first_order(whole, interval_s) - confined * writes


def _unconfined(job: Job, isolation: Isolation) -> Job:
    share = 1.0 - isolation.confined_share
    return replace(job, mtbf_s=job.mtbf_s / share if share > 0 else math.inf)
