"""The parts of emucoll.validate/1: what the model said, and what a run that it did not see took.
Calculates nothing.
"""

from typing import ClassVar

import msgspec

from harness.results.schema import Document
from harness.validation.spec import Regime, ValidateSpec


class ValidatedPoint(msgspec.Struct, frozen=True, kw_only=True):
    """One quantity of one kind of run. Seconds; those of `emulation` are CPU where `phase` says so.

    `formation` is what formed the ring; `allgather` is None where the formation alone is what was
    predicted.
    """

    regime: Regime
    formation: str | None = None
    allgather: str | None = None
    n: int
    phase: str
    predicted_s: float
    measured_s: float
    """The median of the repeats."""
    spread: float
    """Of the repeats: the largest less the smallest, over the median."""
    error: float
    """Predicted less measured, over measured."""
    repeats: int
    cores_busy: float | None = None
    """Share of the cores' time that the run used."""


class RatioPoint(msgspec.Struct, frozen=True, kw_only=True):
    """How many times as long a step of one AllGather took as one of another."""

    n: int
    allgather: str
    base: str
    predicted: float
    measured: float
    error: float


class PublishedRow(msgspec.Struct, frozen=True, kw_only=True):
    """A published total, and what the model says of it after its one knob was fitted elsewhere."""

    system: str
    plan: str
    n: int
    published_s: float
    projected_s: float
    low_s: float
    high_s: float
    residual: float
    """Projected less published, over published."""
    inside: bool
    """Does it lie within the interval?"""
    knob: str
    knob_value_s: float
    fitted: bool
    """Was the knob fitted here?"""


class ValidateResult(Document, kw_only=True, tag="emucoll.validate/1"):
    """The model beside runs that it did not see."""

    schema: ClassVar[str] = "emucoll.validate/1"

    spec: ValidateSpec | None = None  # type: ignore[assignment]  # of many runs
    calibration: str | None = None
    """The name or file of the host's costs; None: measured in turns with the runs."""
    points: list[ValidatedPoint] = msgspec.field(default_factory=list)
    ratios: list[RatioPoint] = msgspec.field(default_factory=list)
    published: list[PublishedRow] = msgspec.field(default_factory=list)
    decided: bool | None = None
    """False: the machine was too busy to tell."""
