"""Profiles: TOML files of values with units, each with its source or marked as an assumption.

    latency.between_hosts = { value = "50us", low = "20us", high = "100us", assumption = "…" }

What a file has too much, too little, without a unit or out of bounds is a UsageError that names
file and key, and says what was expected.
"""

import math
import tomllib
from collections.abc import Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from emucoll.errors import UsageError
from harness.suggest import nearest, unknown
from harness.units import parse_size, parse_time

Kind: TypeAlias = Literal["time", "size", "count", "number", "share", "counts", "text"]
"""What a value is: seconds, bytes, a whole number from 1 on, a number from 0 on, one up to 1, a
table of whole numbers by name, or words.
"""
_EXPECTED = {
    "time": "a time with its unit, such as 50us",
    "size": "a size with its unit, such as 3GB",
    "count": "a whole number, 1 or more",
    "number": "a number, 0 or more",
    "share": "a number from 0 to 1",
    "counts": "a table of whole numbers, each 1 or more",
    "text": "words",
}
_PARTS = ("value", "low", "high", "source", "assumption")


class Value(NamedTuple):
    """One value: seconds, bytes or a count. `low` and `high` are `value` where nothing is said."""

    value: float
    low: float
    high: float
    source: str | None
    """None: it is an assumption."""
    why: str
    """The source, or why it is assumed."""
    counts: Mapping[str, int] = {}
    """What is counted, by name; `value` is their sum."""
    words: str = ""
    """What a text says; `value` is 0 then."""


class Profile(NamedTuple):
    """A file's content."""

    name: str
    """As the user gave it."""
    text: str
    """What it describes, in a line."""
    values: dict[str, Value]
    """By dotted key."""


def names(folder: str) -> list[str]:
    """The profiles that emucoll brings along."""
    return names_in(files("profiles").joinpath(folder))


def names_in(folder: Traversable) -> list[str]:
    """The profiles in that folder; none where it cannot be read."""
    try:
        found = [each.name for each in folder.iterdir()]
    except OSError:
        return []
    return sorted(name.removesuffix(".toml") for name in found if name.endswith(".toml"))


def read(folder: str, name: str, layout: Mapping[str, Kind], optional: set[str]) -> Profile:
    """The profile of that name in `profiles/FOLDER`, or the user's file of that path. `layout` has
    all keys that there may be, of which those in `optional` may be missing. Raises UsageError.
    """
    return read_file(_find(folder, name), name, layout, optional)


def read_file(
    where: Traversable, name: str, layout: Mapping[str, Kind], optional: set[str]
) -> Profile:
    """The profile in that file; errors call it `name`. Else as `read`."""
    try:
        content = tomllib.loads(where.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{name}: it is no TOML: {error}") from None
    text = content.pop("text", "")
    if not isinstance(text, str):
        raise UsageError(f"{name}: text is {text!r}: expected words")
    values = {}
    for key, entry in _entries(content):
        if key not in layout:
            raise UsageError(f"{name}: unknown key {key!r}: {nearest(key, layout)}")
        values[key] = _value(f"{name}: {key}", entry, layout[key])
    for key in layout:
        if key not in values and key not in optional:
            raise UsageError(f"{name}: {key} is missing: expected {_EXPECTED[layout[key]]}")
    return Profile(name, text, values)


def _find(folder: str, name: str) -> Traversable:
    if name in names(folder):
        return files("profiles").joinpath(folder, f"{name}.toml")
    path = Path(name)
    if "/" in name or path.suffix == ".toml":
        return path
    raise unknown(folder.removesuffix("s"), name, names(folder))


def _entries(content: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """By dotted key; a table without a value of its own is a group of them."""
    for name, entry in content.items():
        key = f"{prefix}{name}"
        if isinstance(entry, dict) and not any(part in entry for part in _PARTS):
            yield from _entries(entry, f"{key}.")
        else:
            yield key, entry


def _value(key: str, entry: object, kind: Kind) -> Value:
    if not isinstance(entry, dict):
        raise UsageError(
            f'{key} is {entry!r}: expected {{ value = …, source = "…" }}, or an assumption'
        )
    for part in entry:
        if part not in _PARTS:
            raise UsageError(f"{key}: unknown part {part!r}: {nearest(part, _PARTS)}")
    source, assumption = entry.get("source"), entry.get("assumption")
    why = assumption if source is None else source
    if (source is None) is (assumption is None) or not isinstance(why, str) or not why.strip():
        raise UsageError(f"{key}: expected where it is from: either source or assumption, in words")
    if kind == "text":
        return Value(0.0, 0.0, 0.0, source, why, words=_words(key, entry))
    if kind == "counts":
        counts = _counts(key, entry)
        total = float(sum(counts.values()))
        return Value(total, total, total, source, why, counts)
    value, low, high = (
        _number(f"{key}.{part}", entry.get(part), kind) if part in entry else None
        for part in ("value", "low", "high")
    )
    if value is None:
        raise UsageError(f"{key}: value is missing: expected {_EXPECTED[kind]}")
    low, high = value if low is None else low, value if high is None else high
    if not low <= value <= high:
        raise UsageError(f"{key}: expected low ≤ value ≤ high, not {low:g}, {value:g}, {high:g}")
    return Value(value, low, high, source, why)


def _words(key: str, entry: Mapping[str, Any]) -> str:
    words = entry.get("value")
    if not isinstance(words, str) or not words.strip() or entry.keys() & {"low", "high"}:
        raise UsageError(f"{key}: expected value, {_EXPECTED['text']}")
    return words


def _counts(key: str, entry: Mapping[str, Any]) -> dict[str, int]:
    counts = entry.get("value")
    if not isinstance(counts, dict) or not counts or entry.keys() & {"low", "high"}:
        raise UsageError(f"{key}: expected value, {_EXPECTED['counts']}")
    for name, count in counts.items():
        _number(f"{key}.value.{name!r}", count, "count")
    return counts


def _number(key: str, given: object, kind: Kind) -> float:
    expected = _EXPECTED[kind]
    if kind == "count":
        if not isinstance(given, int) or isinstance(given, bool) or given < 1:
            raise UsageError(f"{key} is {given!r}: expected {expected}")
        return given
    if kind in ("number", "share"):
        most = 1.0 if kind == "share" else math.inf
        if isinstance(given, bool) or not isinstance(given, int | float):
            raise UsageError(f"{key} is {given!r}: expected {expected}")
        if not (math.isfinite(given) and 0 <= given <= most):
            raise UsageError(f"{key} is {given!r}: expected {expected}")
        return float(given)
    if not isinstance(given, str) or not given.strip()[-1:].isalpha():
        raise UsageError(f"{key} is {given!r}: the unit is missing: expected {expected}")
    if given.strip().startswith("-"):
        raise UsageError(f"{key}: {given!r} is negative: expected {expected}")
    try:
        return parse_time(given) if kind == "time" else float(parse_size(given))
    except UsageError as error:
        raise UsageError(f"{key}: {error}") from None
