"""A job lived through second by second of its events, with everything that the closed forms take
apart: for checking them. Slow, and obvious.
"""

import heapq
import random

from emucoll.training.isolation import Isolation
from emucoll.training.model import Job


def live(job: Job, isolation: Isolation, interval_s: float, length_s: float, seed: int) -> float:
    """The share of time that was kept."""
    chance = random.Random(seed)
    replicas = isolation.replicas
    mean_up_s = replicas * isolation.confined_mtbf_s(job)
    unconfined = (1 - isolation.confined_share) / job.mtbf_s
    degraded_s = isolation.degraded_s(job)
    now = kept = since = 0.0
    running = 0.0
    """Seconds since the last checkpoint, stalls among them."""
    period = interval_s + job.write_s

    def failures() -> list[tuple[float, int]]:
        heap = [(chance.expovariate(1 / mean_up_s), replica) for replica in range(replicas)]
        heapq.heapify(heap)
        return heap

    while now < length_s:
        # All replicas begin together, from a checkpoint.
        heap, up, clock = failures(), set(range(replicas)), 0.0
        since = running = 0.0
        end = chance.expovariate(unconfined) if unconfined else float("inf")
        """Of this life of the whole job, in its own time, stalls among it."""
        lived = 0.0
        while True:
            due, replica = heapq.heappop(heap)
            step, left = due - clock, end - lived
            goes_on = step < left and now + lived < length_s
            step = min(step, left)
            capacity = len(up) / replicas
            while step > 0:  # through checkpoints, one by one
                part = min(step, period - running)
                work = max(0.0, min(running + part, interval_s) - running)
                since += work * capacity
                running += part
                step -= part
                lived += part
                if period - running < 1e-9:
                    kept += since
                    since = running = 0.0
            if not goes_on:
                break
            clock = due
            if replica in up:
                up.remove(replica)
                if not up:
                    break
                lived += isolation.stall_s
                running += isolation.stall_s  # checkpoints go by the wall clock
                if running > period:
                    running = period
                tries = clock
                while (again := chance.expovariate(1 / mean_up_s)) < degraded_s:
                    tries += again
                heapq.heappush(heap, (tries + degraded_s, replica))
            else:
                up.add(replica)
                heapq.heappush(heap, (clock + chance.expovariate(1 / mean_up_s), replica))
        now += lived
        # The whole job stops: detection, then a recovery that such a failure begins again.
        now += job.detection_s
        while unconfined and (again := chance.expovariate(unconfined)) < job.recovery_s:
            now += again + job.detection_s
        now += job.recovery_s
    return kept / now
