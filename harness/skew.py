"""When ranks start: skew between them, as schedulers, image pulls and slow hosts make it.

Data alone; the drawing is `harness.control.skew`'s.
"""

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


def last_start_s(skew: StartSkew | None) -> tuple[float, float]:
    """When the last rank starts: at least, and about."""
    match skew:
        case None:
            return 0.0, 0.0
        case UniformSkew(high_s=high_s):
            return 0.0, high_s
        case NormalSkew(mean_s=mean_s, deviation_s=deviation_s):
            return 0.0, mean_s + 3 * deviation_s
        case LateRanks(late_s=late_s):
            return max(late_s.values()), max(late_s.values())


def format_skew(skew: StartSkew) -> str:
    """As the command line takes it."""
    match skew:
        case UniformSkew(high_s=high_s):
            return f"uniform:{high_s:g}s"
        case NormalSkew(mean_s=mean_s, deviation_s=deviation_s):
            return f"normal:{mean_s:g}s:{deviation_s:g}s"
        case LateRanks(late_s=late_s):
            return "ranks:" + ",".join(f"{rank}={late:g}s" for rank, late in late_s.items())
