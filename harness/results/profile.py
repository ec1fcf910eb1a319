"""The parts of emucoll.profile/1: what will dominate at the target, and the evidence. Times are
seconds. Calculates nothing.
"""

from typing import ClassVar, Literal

import msgspec

from harness.profiling.spec import ProfileSpec
from harness.results.schema import Document
from harness.results.training import Input


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that grows: who, in which phase, what of, and how."""

    entity: str
    """`rank` (each of them), `root` or `store`."""
    phase: str
    resource: Literal["cpu", "wait", "memory", "connections", "bytes", "requests"]
    law: str
    """`none fits` where no law does; of several that cannot be told apart the first."""
    laws: list[str] = []
    """All that cannot be told apart."""
    exponent: float | None = None
    low: float | None = None
    high: float | None = None
    share_at_target: float | None = None
    """Of the time until the last rank is done; of memory and counts: null."""
    share: float | None = None
    """The same at the largest size that was run."""
    at_target: float
    """Seconds, bytes or a number."""
    at_target_low: float | None = None
    at_target_high: float | None = None
    """Between which 90 % of what is likely lies, where a law carried it there."""
    location: str | None = None
    kind: Literal["measured", "simulated"]
    """What the law was made from."""
    known_fix: str | None = None
    text: str


class Growing(msgspec.Struct, frozen=True, kw_only=True):
    """One figure over the sizes, and what it would be at the target."""

    entity: str
    phase: str
    resource: str
    function: str | None = None
    """`function (file:line)`: its own CPU, by samples, of one rank or server; its phase is then not
    told.
    """
    kind: Literal["measured", "simulated"]
    unit: str
    sizes: list[int]
    values: list[float]
    """Medians over the repeats."""
    law: str
    exponent: float | None = None
    low: float | None = None
    high: float | None = None
    at_target: float | None = None
    at_target_low: float | None = None
    at_target_high: float | None = None
    simulated_at_target: bool = False
    """Played at the target, and no law carried there."""


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """A stretch of the critical path at the target."""

    who: str
    phase: str
    what: str
    from_s: float
    until_s: float


class ProfileResult(Document, kw_only=True, tag="emucoll.profile/1"):
    """What will dominate at the target."""

    schema: ClassVar[str] = "emucoll.profile/1"

    spec: ProfileSpec | None = None  # type: ignore[assignment]

    verdict: Finding | None = None
    fastest_growing: Finding | None = None
    """Of the findings the one that grows fastest, where that is not the verdict."""
    findings: list[Finding] = msgspec.field(default_factory=list)
    figures: list[Growing] = msgspec.field(default_factory=list)
    critical_path: list[Link] = msgspec.field(default_factory=list)
    total_at_target_s: float | None = None
    cluster: str | None = None
    inputs: list[Input] = msgspec.field(default_factory=list)
