"""Failures played, all at once: what the closed forms are checked by, and how far jobs differ.

From one failure's detection to the next nothing is remembered but the last checkpoint, so failures
are drawn independently and a million of them is a few passes over an array. Replicas that fail
independently and may be out together are played event by event, many jobs abreast. Chance comes
from the generator alone: the same seed gives the same numbers.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from emucoll.training.isolation import Isolation, split
from emucoll.training.model import Job, effective

Floats = npt.NDArray[np.float64]

_BATCH = 1 << 18
"""Failures drawn at once: 2 MiB an array."""
_ABREAST = 1_000
"""Jobs with replicas that are played side by side."""
_MOST_EVENTS = 40
"""Of a job, for each failure that is asked for: its return, and recoveries that fail."""
LONGEST_PLAYED = 4_000
"""Failures of one job that are played; chance in more is scaled from these."""


@dataclass(frozen=True, kw_only=True)
class Played:
    """Effective training time over so many failures, and its standard error."""

    failures: int
    effective: float
    error: float


def play(job: Job, interval_s: float, failures: int, draws: np.random.Generator) -> Played:
    """Play `failures` failures of a job without end."""
    if math.isinf(job.mtbf_s):
        return Played(failures=0, effective=effective(job, interval_s), error=0.0)
    kept_sum = time_sum = kept_squares = time_squares = products = 0.0
    for begin in range(0, failures, _BATCH):
        until_failure = draws.exponential(job.mtbf_s, min(_BATCH, failures - begin))
        kept = _kept(until_failure - job.recovery_s, interval_s, job.write_s)
        time = until_failure + job.detection_s
        kept_sum += float(kept.sum())
        time_sum += float(time.sum())
        kept_squares += float(kept @ kept)
        time_squares += float(time @ time)
        products += float(kept @ time)
    share = kept_sum / time_sum
    # The ratio's error, to first order: that of kept - share * time.
    squares = kept_squares - 2 * share * products + share**2 * time_squares
    return Played(failures=failures, effective=share, error=math.sqrt(max(0.0, squares)) / time_sum)


def play_isolated(
    job: Job, isolation: Isolation, interval_s: float, failures: int, draws: np.random.Generator
) -> Played:
    """The same with isolation: `failures` of replicas in `play_replicas`, as many of the whole job
    in `play`.
    """
    whole = play(split(job, isolation).whole, interval_s, failures, draws)
    replicas = play_replicas(job, isolation, failures, draws)
    share = whole.effective * replicas.effective
    errors = (each.error / each.effective for each in (whole, replicas) if each.effective)
    return Played(
        failures=replicas.failures,
        effective=share,
        error=share * math.sqrt(sum(error**2 for error in errors)),
    )


def play_replicas(
    job: Job, isolation: Isolation, failures: int, draws: np.random.Generator
) -> Played:
    """Replicas that fail, stall all others, recover and return, until `failures` have failed (or
    too many recoveries in vain): the share of work that is done, in a job that nothing stops as a
    whole.
    """
    mtbf = isolation.confined_mtbf_s(job)
    if math.isinf(mtbf):
        return Played(failures=0, effective=1.0, error=0.0)
    mean_up_s, out_s = isolation.replicas * mtbf, isolation.degraded_s(job)
    jobs = min(_ABREAST, max(1, failures // 1_000))
    steps_per_job = max(1, failures // jobs)
    row = np.arange(jobs)
    up = np.ones((jobs, isolation.replicas), dtype=bool)
    recovers = np.ones((jobs, isolation.replicas), dtype=bool)
    due = draws.exponential(mean_up_s, up.shape)
    now, work, stalls = np.zeros(jobs), np.zeros(jobs), np.zeros(jobs)
    # Where recoveries hardly ever succeed, failures of replicas that are up hardly ever come.
    for _ in range(steps_per_job * _MOST_EVENTS):
        if stalls.min() >= steps_per_job:
            break
        which = due.argmin(axis=1)
        then = due[row, which]
        work += (then - now) * up.mean(axis=1)
        now = then
        fails = up[row, which]
        returns = ~fails & recovers[row, which]
        stalls += fails
        until_failure = draws.exponential(mean_up_s, jobs)
        up[row, which] = returns
        recovers[row, which] = returns | (until_failure >= out_s)
        wait = np.where(returns, until_failure, np.minimum(until_failure, out_s))
        due[row, which] = now + wait
    time = now + stalls * isolation.stall_s
    share = float(work.sum() / time.sum())
    squares = float(((work - share * time) ** 2).sum())
    return Played(
        failures=int(stalls.sum()), effective=share, error=math.sqrt(squares) / float(time.sum())
    )


def jobs_effective(
    job: Job,
    interval_s: float,
    job_s: float,
    draws: np.random.Generator,
    *,
    jobs: int = 1_000,
    isolation: Isolation | None = None,
    counted: float | None = None,
) -> Floats:
    """The effective training time of each of `jobs` jobs of `job_s`, whose first start is not
    counted: by chance, and by what is not known of a rate that was taken from `counted` failures.

    A job that sees more than `LONGEST_PLAYED` failures is played up to those, and its deviation
    from the exact form scaled with 1 / sqrt(time).
    """
    whole, running = job, 1.0
    if isolation is not None:
        halves = split(job, isolation)
        whole, running = halves.whole, halves.running
    rates = np.ones(jobs) if not counted else draws.gamma(counted, 1.0 / counted, jobs)
    shares = _whole_jobs(whole, interval_s, job_s, rates, draws)
    if isolation is None or running == 1.0:
        return shares
    lost_s = isolation.stall_s + isolation.degraded_s(job) / isolation.replicas
    confined = isolation.confined_mtbf_s(job)
    # (1 - running) is what they lose in the mean, overlaps and repeated recoveries included.
    expected = rates * job_s * (1.0 - running) / lost_s if lost_s else rates * job_s / confined
    lost = draws.poisson(np.minimum(expected, 1e15)) * lost_s / job_s
    return np.asarray(shares * np.clip(1.0 - lost, 0.0, 1.0))


def _whole_jobs(
    job: Job, interval_s: float, job_s: float, rates: Floats, draws: np.random.Generator
) -> Floats:
    if math.isinf(job.mtbf_s):
        return np.full(len(rates), effective(job, interval_s))
    longest_s = LONGEST_PLAYED * (job.mtbf_s + job.detection_s)
    played_s = min(job_s, longest_s)
    shares = np.empty(len(rates))
    columns = int(played_s / (job.mtbf_s + job.detection_s) * 1.1) + 16
    rows = max(1, _BATCH // columns)
    for begin in range(0, len(rates), rows):
        mtbf = job.mtbf_s / rates[begin : begin + rows]
        shares[begin : begin + rows] = _play_rows(job, interval_s, played_s, mtbf, columns, draws)
    if played_s == job_s:
        return shares
    exact = np.array(
        [effective(replace(job, mtbf_s=job.mtbf_s / rate), interval_s) for rate in rates]
    )
    scaled = exact + (shares - exact) * math.sqrt(played_s / job_s)
    return np.asarray(np.clip(scaled, 0.0, 1.0))


def _play_rows(
    job: Job,
    interval_s: float,
    job_s: float,
    mtbf_s: Floats,
    columns: int,
    draws: np.random.Generator,
) -> Floats:
    """A job a row, a failure a column, each row to the end of its job."""
    kept = np.zeros(len(mtbf_s))
    begins = np.zeros((len(mtbf_s), 1))
    recovery = np.zeros(columns)
    recovery[1:] = job.recovery_s  # a job begins with its work
    while float(begins.min()) < job_s:
        until_failure = draws.exponential(1.0, (len(mtbf_s), columns)) * mtbf_s[:, None]
        ends = begins + np.cumsum(until_failure + job.detection_s, axis=1)
        starts = np.concatenate((begins, ends[:, :-1]), axis=1)
        whole = _kept(until_failure - recovery, interval_s, job.write_s)
        left = np.minimum(job_s - starts, until_failure) - recovery
        last = _kept(left, interval_s, job.write_s, to_the_end=True)
        # A job that ends before its next failure keeps what it has done since its last write.
        fails = starts + until_failure < job_s
        kept += np.where(fails, whole, np.where(starts < job_s, last, 0.0)).sum(axis=1)
        begins, recovery = ends[:, -1:], np.full(columns, job.recovery_s)
    return kept / job_s


def _kept(
    worked_s: Floats, interval_s: float, write_s: float, *, to_the_end: bool = False
) -> Floats:
    """What is kept of uninterrupted seconds, writes among them: whole intervals whose write is
    done; `to_the_end` the last one too, as far as it came.
    """
    worked_s = np.maximum(worked_s, 0.0)
    period = interval_s + write_s
    if period == 0:
        return worked_s
    if math.isinf(period):
        return worked_s if to_the_end else np.zeros_like(worked_s)
    completed = np.floor(worked_s / period)
    kept = completed * interval_s
    if to_the_end:
        kept += np.minimum(worked_s - completed * period, interval_s)
    return np.asarray(kept)
