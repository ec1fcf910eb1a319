"""The parts of emucoll.project/1: what a plan would take at a size, phase by phase, and what that
rests on. Times are seconds. Calculates nothing.
"""

from typing import ClassVar

import msgspec

from harness.projection.spec import ProjectSpec
from harness.results.schema import Document
from harness.results.training import Input


class ProjectedPhase(msgspec.Struct, frozen=True, kw_only=True):
    """A phase, in the mean over the ranks. Those with `within` null add up to the whole."""

    name: str
    seconds: float
    low_s: float | None = None
    high_s: float | None = None
    """Of 90 % of the draws of what is uncertain."""
    law: str
    """How it grows with the ranks: the terms of a sum, the largest at the largest size first."""
    within: str | None = None


class ProjectedPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One plan at one size."""

    name: str
    n: int
    total_s: float
    """From the start to the last rank done."""
    low_s: float | None = None
    high_s: float | None = None
    held_out_error: float | None = None
    """Of latency-bound runs that the model did not see: the worst part's, as a share."""
    largest_phase: str
    """Of those that have no phases within."""
    phases: list[ProjectedPhase]


class SpeedUp(msgspec.Struct, frozen=True, kw_only=True):
    """How many times as long `base` takes as `plan`."""

    plan: str
    base: str
    n: int
    ratio: float
    low: float | None = None
    high: float | None = None


class Sensitivity(msgspec.Struct, frozen=True, kw_only=True):
    """What a value of the cluster does to a plan's total: by how many percent it changes when the
    value changes by one.
    """

    plan: str
    n: int
    value: str
    elasticity: float


class Ground(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the plans, and the runs by which the model of it was checked."""

    part: str
    """A formation or an AllGather."""
    points: int
    largest_n: int
    error: float
    """The median of the points' errors, as a share,"""
    worst: float
    """and the largest."""


class PublishedPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of others for such an initialization."""

    system: str
    plan: str
    n: int
    seconds: float
    source: str


class ProjectResult(Document, kw_only=True, tag="emucoll.project/1"):
    """Plans on a cluster that nobody ran them on."""

    schema: ClassVar[str] = "emucoll.project/1"

    spec: ProjectSpec | None = None  # type: ignore[assignment]

    cluster: str | None = None
    """What it is, in words."""
    inputs: list[Input] = msgspec.field(default_factory=list)
    """Its values."""
    plans: list[ProjectedPlan] = msgspec.field(default_factory=list)
    speed_ups: list[SpeedUp] = msgspec.field(default_factory=list)
    sensitivities: list[Sensitivity] = msgspec.field(default_factory=list)
    grounds: list[Ground] = msgspec.field(default_factory=list)
    published: list[PublishedPoint] = msgspec.field(default_factory=list)
