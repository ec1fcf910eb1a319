"""The parts of emucoll.ett/1: effective training time of one size, what it goes to, and what would
raise it. Shares are of the job's whole time, times seconds. Calculates nothing.
"""

from typing import Literal

import msgspec


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A number that went in, and where it came from."""

    name: str
    value: float
    low: float | None = None
    high: float | None = None
    """Between which the profile holds it to be; None: it says nothing of that."""
    unit: str | None = None
    origin: Literal["flag", "profile", "default", "calculated"]
    because: str
    """The flag, the profile's source or assumption, or the arithmetic."""


class EttParts(msgspec.Struct, frozen=True, kw_only=True):
    """Where the time goes; the shares add up to 1."""

    productive: float
    checkpoint: float
    rework: float
    detection: float
    restart: float
    init: float
    stall: float
    degraded: float


class Intervals(msgspec.Struct, frozen=True, kw_only=True):
    """Periods of checkpoints, the write included, as their authors give them. None: no failures, or
    no such optimum.
    """

    young_s: float | None = None
    daly_s: float | None = None
    refined_s: float | None = None
    """First order with D and R (RFO of Aupy et al.)."""
    best_s: float | None = None
    """Of the exact form."""


class Worth(msgspec.Struct, frozen=True, kw_only=True):
    """What one change would do at this size, all else as it is."""

    change: str
    text: str
    ett: float
    gpu_hours_saved: float
    """Of a job as long as `job_length_s`, to do the same work; negative: so many more."""


class Simulated(msgspec.Struct, frozen=True, kw_only=True):
    """The Monte Carlo run beside the closed form."""

    failures: int
    ett: float
    error: float
    """Standard error."""
    causes: dict[str, int] = {}
    """Causes drawn for these failures, from the profile's counts."""


class Without(msgspec.Struct, frozen=True, kw_only=True):
    """The same job where every failure stops it all."""

    ett: float
    first_order: float
    checkpoint_interval_s: float | None


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Effective training time over n, for the picture alone."""

    name: str
    n: list[int]
    ett: list[float]
    dashed: bool = False


class EttPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One size. `ett` is the exact form. Between `low` and `high` lie 90 % of jobs of the given
    length, by chance and by the ranges that the profile gives.
    """

    n: int
    plan: str | None = None
    isolation: int | None = None
    ett: float
    low: float
    high: float
    first_order: float
    checkpoint_interval_s: float | None
    """Work between two writes; None: never one, for want of failures."""
    parts: EttParts
    nodes: int
    mtbf_s: float | None
    """None: no failures."""
    checkpoint_write_s: float
    init_s: float
    job_length_s: float
    failures: float
    """Expected in a job of that length."""
    intervals: Intervals = Intervals()
    without_isolation: Without | None = None
    worth: list[Worth] = []
    monte_carlo: Simulated | None = None
