"""The parts of emucoll.calibrate/1: what was asked for, and what things cost on this machine.
Measures nothing.
"""

import re
from typing import ClassVar

import msgspec

from emucoll.errors import UsageError
from harness.hosts import DEFAULT, WRITTEN_TO
from harness.results.schema import Document
from harness.spec import is_text

MAX_REPEAT = 1000
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,99}", re.ASCII)


class CalibrateSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to calibrate."""

    name: str = DEFAULT
    repeat: int = 5
    """How often everything is measured."""
    out: str | None = None

    @property
    def file(self) -> str:
        """Where the values go."""
        return str(WRITTEN_TO / f"{self.name}.toml") if self.out is None else self.out


class CalibratedValue(msgspec.Struct, frozen=True, kw_only=True):
    """One cost of this machine. `low` and `high`: the smallest and the largest of the repeats,
    `value` their median.
    """

    name: str
    value: float
    low: float
    high: float
    unit: str
    """`s/…`: seconds of CPU for one; `share`: of the cores' time."""
    source: str
    """How it was measured."""


class CalibrateResult(Document, kw_only=True, tag="emucoll.calibrate/1"):
    """What the emulation costs on this machine, and the file that it was written to."""

    schema: ClassVar[str] = "emucoll.calibrate/1"

    spec: CalibrateSpec | None = None  # type: ignore[assignment]  # of many runs, all alike
    file: str | None = None
    values: list[CalibratedValue] = msgspec.field(default_factory=list)


def check(spec: CalibrateSpec) -> None:
    """Raise UsageError for what cannot be measured or written."""
    if not 1 <= spec.repeat <= MAX_REPEAT:
        expected = "at least 1" if spec.repeat < 1 else f"at most {MAX_REPEAT}"
        raise UsageError(f"--repeat is {spec.repeat}: expected {expected}")
    if _NAME.fullmatch(spec.name) is None:
        raise UsageError(
            f"--name {spec.name!r}: expected letters, digits, '.', '_' and '-', a letter or digit "
            "first; --out FILE writes to any place"
        )
    if spec.name.endswith(".toml"):
        raise UsageError(f"--name {spec.name!r}: leave .toml out, or give the file with --out")
    if spec.out is not None and (spec.out == "" or "\0" in spec.out or not is_text(spec.out)):
        raise UsageError(f"--out {spec.out!r}: expected a file's path, in UTF-8")
