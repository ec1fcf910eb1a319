"""The start of each rank, drawn from a skew.

It depends on the seed and the rank's number alone, not on how ranks are spread over workers.
"""

import random

from harness.skew import LateRanks, NormalSkew, StartSkew, UniformSkew


def skew_s(skew: StartSkew | None, rank: int, seed: int) -> float:
    """How many seconds after the start barrier `rank` starts."""
    match skew:
        case None:
            return 0.0
        case LateRanks(late_s=late_s):
            return late_s.get(rank, 0.0)
        case UniformSkew(high_s=high_s):
            return _draw(seed, rank).uniform(0.0, high_s)
        case NormalSkew(mean_s=mean_s, deviation_s=deviation_s):
            return max(0.0, _draw(seed, rank).gauss(mean_s, deviation_s))


def _draw(seed: int, rank: int) -> random.Random:
    return random.Random(f"start-skew {seed} {rank}")
