"""Profiles of training jobs: `profiles/training/*.toml`, or a user's own file.

Each key is a table with a `value` and either its `source` or an `assumption`, so that no number
stands there without a reason. What is wrong is a UsageError that names file and key, and what was
expected. Calculates nothing.
"""

import math
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from emucoll.errors import UsageError
from harness.cli.suggest import nearest, unknown
from harness.cli.units import parse_size, parse_time

PROFILES = "training"
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Given:
    """One value of a profile, and why."""

    value: float
    because: str
    assumed: bool


@dataclass(frozen=True, kw_only=True)
class TrainingProfile:
    """A training job. `values` holds what the file gives, by key; seconds, bytes, bytes/s."""

    name: str
    text: str
    values: Mapping[str, Given]
    causes: Mapping[str, int] = field(default_factory=dict)
    """Failures counted by cause; empty where nobody counted."""
    causes_source: str | None = None


class _Unfit(Exception):
    """A value that is not what was expected."""


def _time(value: Any) -> float:
    return _quantity(value, parse_time)


def _size(value: Any) -> float:
    return _quantity(value, parse_size)


def _bandwidth(value: Any) -> float:
    text, slash, per = value.rpartition("/") if isinstance(value, str) else ("", "", "")
    if not slash or per.strip() != "s":
        raise _Unfit
    bandwidth = _quantity(text, parse_size)
    if bandwidth == 0:
        raise _Unfit
    return bandwidth


def _quantity(value: Any, parse: Callable[[str], float]) -> float:
    """A bare number is not taken: in a file nobody sees which unit was meant."""
    if not isinstance(value, str) or not value.strip()[-1:].isalpha():
        raise _Unfit
    try:
        return float(parse(value))
    except UsageError:
        raise _Unfit from None


def _number(low: float, high: float, *, whole: bool) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _Unfit
        if whole and not isinstance(value, int):
            raise _Unfit
        if not (math.isfinite(value) and low <= value <= high):
            raise _Unfit
        return float(value)

    return read


_TIME = (_time, "a time of 0 or more with its unit, as in '10min' or '583s'")
_SIZE = (_size, "a size of 0 or more with its unit, as in '4860GB'")
_BANDWIDTH = (_bandwidth, "a size a second, above 0, with its unit, as in '2TB/s'")
_COUNT = (_number(1, 2**31 - 1, whole=True), "a whole number, 1 or more")

KEYS: dict[str, tuple[Callable[[Any], float], str]] = {
    "n": _COUNT,
    "gpus_per_node": _COUNT,
    "failures": _COUNT,
    "observed": _TIME,
    "failures_per_1000_node_days": (_number(0, 1e9, whole=False), "a number, 0 or more"),
    "mean_time_between_failures": _TIME,
    "checkpoint_write": _TIME,
    "checkpoint_size": _SIZE,
    "storage_sustained": _BANDWIDTH,
    "storage_peak": _BANDWIDTH,
    "storage_burst": _SIZE,
    "checkpoint_interval": _TIME,
    "detection": _TIME,
    "restart": _TIME,
    "init": _TIME,
    "stall": _TIME,
    "confined_share": (_number(0, 1, whole=False), "a share, from 0 to 1"),
    "replicas": (_number(2, 2**31 - 1, whole=True), "a whole number, 2 or more"),
    "job_length": _TIME,
}
"""What a profile may hold, how it is read, and what is expected."""

_RATES = ("failures_per_1000_node_days", "mean_time_between_failures", "failures")


def shipped() -> list[str]:
    """The names of the profiles that come with emucoll."""
    folder = files("profiles") / PROFILES
    names = (entry.name for entry in folder.iterdir())
    return sorted(name.removesuffix(".toml") for name in names if name.endswith(".toml"))


def load_profile(name: str) -> TrainingProfile:
    """A profile by its name, or from a file (`.toml`, or a path). Raises UsageError."""
    if name.endswith(".toml") or "/" in name:
        return read_profile(_contents(name), name)
    if name not in shipped():
        raise unknown("training profile", name, shipped())
    return read_profile((files("profiles") / PROFILES / f"{name}.toml").read_bytes(), name)


def read_profile(data: bytes, name: str) -> TrainingProfile:
    """The profile in `data`. `name` is what errors call it. Raises UsageError."""
    try:
        document = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{name} is not TOML: {error}") from None
    text = document.pop("text", None)
    if not isinstance(text, str):
        raise UsageError(f"{name}, key text: expected a sentence that says which job it is")
    causes, causes_source = _causes(document.pop("causes", None), name)
    values = {key: _given(key, entry, name) for key, entry in document.items()}
    _check_whole(values, name)
    return TrainingProfile(
        name=name, text=text, values=values, causes=causes, causes_source=causes_source
    )


def _contents(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            data = file.read(_MOST_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"cannot read the profile {path!r}: {reason}") from None
    if len(data) > _MOST_BYTES:
        raise UsageError(f"the profile {path!r} is longer than {_MOST_BYTES} bytes")
    return data


def _given(key: str, entry: Any, name: str) -> Given:
    if key not in KEYS:
        raise UsageError(f"{name}: no key {key!r}: {nearest(key, [*KEYS, 'text', 'causes'])}")
    if not isinstance(entry, dict) or "value" not in entry:
        raise UsageError(f"{name}, key {key}: expected a table [{key}] with a value")
    for inner in entry:
        if inner not in ("value", "source", "assumption"):
            raise UsageError(f"{name}, key {key}.{inner}: expected value, and source or assumption")
    reasons = [word for word in ("source", "assumption") if word in entry]
    because = entry[reasons[0]] if len(reasons) == 1 else None
    if not isinstance(because, str) or not because.strip():
        raise UsageError(
            f"{name}, key {key}: expected a source, or an assumption, as a sentence, and not both"
        )
    read, expected = KEYS[key]
    try:
        value = read(entry["value"])
    except _Unfit:
        raise UsageError(
            f"{name}, key {key}: value is {entry['value']!r}, expected {expected}"
        ) from None
    return Given(value=value, because=because, assumed=reasons == ["assumption"])


def _causes(entry: Any, name: str) -> tuple[dict[str, int], str | None]:
    if entry is None:
        return {}, None
    counts = entry.get("counts") if isinstance(entry, dict) else None
    source = entry.get("source") if isinstance(entry, dict) else None
    if not isinstance(counts, dict) or not counts or not isinstance(source, str):
        raise UsageError(f"{name}, key causes: expected a source, and a table [causes.counts]")
    if extra := entry.keys() - {"counts", "source"}:
        raise UsageError(f"{name}, key causes.{min(extra)}: expected source and counts")
    for cause, count in counts.items():
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise UsageError(
                f"{name}, key causes.counts.{cause!r}: {count!r}, expected how many there were, "
                "1 or more"
            )
    return counts, source


def _check_whole(values: Mapping[str, Given], name: str) -> None:
    """What needs what, and what excludes what."""
    rates = [key for key in _RATES if key in values]
    if len(rates) > 1:
        raise UsageError(f"{name}, key {rates[1]}: the rate is given by {rates[0]} already")
    needs = {
        "failures": ("n", "observed"),
        "observed": ("failures",),
        "mean_time_between_failures": ("n",),
        "checkpoint_size": ("storage_sustained",),
        "storage_peak": ("storage_sustained",),
        "storage_burst": ("storage_peak",),
    }
    for key, others in needs.items():
        for other in others:
            if key in values and other not in values:
                raise UsageError(f"{name}, key {key}: expected {other} beside it")
    for key in ("observed", "mean_time_between_failures", "job_length"):
        if key in values and values[key].value == 0:
            raise UsageError(f"{name}, key {key}: value is 0, expected more")
    if "checkpoint_size" in values and "checkpoint_write" in values:
        raise UsageError(
            f"{name}, key checkpoint_write: it follows from checkpoint_size and storage_sustained"
        )
    if "storage_peak" in values:
        peak, sustained = values["storage_peak"].value, values["storage_sustained"].value
        if peak < sustained:
            raise UsageError(f"{name}, key storage_peak: expected at least storage_sustained")
