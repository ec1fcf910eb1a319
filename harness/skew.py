"""When each rank starts: skew between ranks, as schedulers, image pulls and slow hosts make it.

A rank's skew depends on the seed and its number alone, not on how ranks are spread over workers.
"""

import random

import msgspec


class UniformSkew(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="uniform"):
    """Each rank starts 0 to `high_s` seconds late."""

    high_s: float


class NormalSkew(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="normal"):
    """Normally distributed, never before 0."""

    mean_s: float
    deviation_s: float


class LateRanks(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="ranks"):
    """Some ranks are late, by rank; all others start at once."""

    late_s: dict[int, float]


StartSkew = UniformSkew | NormalSkew | LateRanks


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


def format_skew(skew: StartSkew) -> str:
    """As the command line takes it."""
    match skew:
        case UniformSkew(high_s=high_s):
            return f"uniform:{high_s:g}s"
        case NormalSkew(mean_s=mean_s, deviation_s=deviation_s):
            return f"normal:{mean_s:g}s:{deviation_s:g}s"
        case LateRanks(late_s=late_s):
            return "ranks:" + ",".join(f"{rank}={late:g}s" for rank, late in late_s.items())
