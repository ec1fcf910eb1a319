"""Effective training time as others print it, for beside ours. Each has its own definition; none of
them is what `emucoll ett` prints as `ett`.
"""

import math


def with_queue(
    mtbf_s: float, down_s: float, interval_s: float, queue_s: float = 0.0, run_s: float = math.inf
) -> float:
    """Kokolis et al., arXiv 2410.21680v1: without the cost of a write, with the wait in a queue
    after each failure and, once a run, before it.
    """
    kept = 1.0 - (down_s + interval_s / 2) / mtbf_s
    return kept / (1.0 + queue_s / mtbf_s + (down_s + queue_s) / run_s)


def synchronous(apart_s: float, stall_s: float) -> float:
    """FT-HSDP, arXiv 2602.00277: failures so many seconds apart, each of which stops all."""
    return (apart_s - stall_s) / apart_s


def replicated(apart_s: float, stall_s: float, degraded_s: float, replicas: int) -> float:
    """The same where all stall, then go on at (R - 1) / R, then work in full until the next one."""
    full_s = apart_s - stall_s - degraded_s
    return (full_s + degraded_s * (replicas - 1) / replicas) / apart_s


def stall_for(share: float, apart_s: float, out_s: float, replicas: int) -> float:
    """The stall with which `replicated` is `share`, if a replica is out for `out_s` in all.

    Negative where no stall is short enough.
    """
    lost_s = (1.0 - share) * apart_s
    return (lost_s - out_s / replicas) / (1.0 - 1.0 / replicas)


def wasted_s(write_s: float, interval_s: float, retrieve_s: float) -> float:
    """Gemini (SOSP 2023): what a failure wastes, with a checkpoint every `interval_s`."""
    return write_s + interval_s / 2 + retrieve_s


def shortest_interval_s(write_s: float, step_s: float) -> float:
    """Gemini: a checkpoint neither overtakes the one before nor splits a step."""
    return max(write_s, step_s)


def one_failure_an_interval(save_s: float, load_s: float, steps: int, step_s: float) -> float:
    """ByteCheckpoint (NSDI 2025): a failure in the middle of every interval. Always below 1/2: it
    compares checkpoints, and says nothing of a job.
    """
    time_s = save_s + load_s + steps * step_s
    return 1.0 - (save_s + load_s + steps * step_s / 2) / time_s
