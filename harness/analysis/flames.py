"""Sampled stacks as trees: merged, carried to another size function by function, cut to what can be
seen; and as speedscope's file format.

A tree is arrays, a node after its parent; node 0 is the whole. Pure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

SPEEDSCOPE = "https://www.speedscope.app/file-format-schema.json"
_FRAME = re.compile(r"(?P<name>.*) \((?P<file>.*):(?P<line>\d+)\)", re.DOTALL)


@dataclass(frozen=True)
class Flame:
    """What was on a CPU, as a tree of calls."""

    names: list[str]
    parents: list[int]
    """Indices, each below its own; -1 of the whole."""
    own_s: list[float]
    """In the function itself."""
    total_s: list[float]
    """With all that it called."""
    exponents: list[float | None]
    """With which `total_s` grows: the mean of the functions in it, by their time. None: nothing is
    known of most of it.
    """
    depths: list[int]


class Carried(NamedTuple):
    """What a law makes of a function's own time at the target."""

    factor: float
    """Times what it was at the largest size."""
    exponent: float | None


UNKNOWN = Carried(1.0, None)
"""Of a function that no law is known of: as much as at the largest size."""


def merge(
    whole: str,
    stacks: Iterable[Sequence[str]],
    seconds: Iterable[float],
    laws: Mapping[str, Carried] | None = None,
) -> Flame:
    """The tree of `stacks`, outermost function first, each with its `seconds`; with `laws`, by
    function, what they come to at the target. `whole` is the name of the root.
    """
    names, parents, own_s, known_s, weighed, depths = [whole], [-1], [0.0], [0.0], [0.0], [0]
    places: dict[tuple[int, str], int] = {}
    for stack, spent_s in zip(stacks, seconds, strict=True):
        at = 0
        for function in stack:
            below = places.setdefault((at, function), len(names))
            if below == len(names):
                names.append(function)
                parents.append(at)
                depths.append(depths[at] + 1)
                for column in (own_s, known_s, weighed):
                    column.append(0.0)
            at = below
        law = UNKNOWN if laws is None else laws.get(names[at], UNKNOWN)
        own_s[at] += spent_s * law.factor
        if law.exponent is not None:
            known_s[at] += spent_s * law.factor
            weighed[at] += spent_s * law.factor * law.exponent
    total_s = _summed(parents, own_s)
    known_s, weighed = _summed(parents, known_s), _summed(parents, weighed)
    exponents = [
        exponent / of_s if of_s > 0 and of_s >= spent_s / 2 else None
        for exponent, of_s, spent_s in zip(weighed, known_s, total_s, strict=True)
    ]
    return Flame(names, parents, own_s, total_s, exponents, depths)


def _summed(parents: Sequence[int], values: Sequence[float]) -> list[float]:
    """Each with all below it."""
    sums = list(values)
    for at in range(len(parents) - 1, 0, -1):
        sums[parents[at]] += sums[at]
    return sums


def prune(flame: Flame, least_share: float = 0.001, most: int = 3000) -> Flame:
    """Without nodes that are less than `least_share` of the whole, and of the others the largest
    `most`. What they took stays in the totals of those above them.
    """
    whole_s = flame.total_s[0]
    large = [at for at in range(1, len(flame.names)) if flame.total_s[at] >= least_share * whole_s]
    # A parent is never smaller than its children, and comes before them: none loses its parent.
    large.sort(key=lambda at: (-flame.total_s[at], at))
    kept = [0, *sorted(large[: most - 1])]
    places = {old: new for new, old in enumerate(kept)}
    return Flame(
        [flame.names[at] for at in kept],
        [-1, *(places[flame.parents[at]] for at in kept[1:])],
        [flame.own_s[at] for at in kept],
        [flame.total_s[at] for at in kept],
        [flame.exponents[at] for at in kept],
        [flame.depths[at] for at in kept],
    )


def unknown_share(
    stacks: Iterable[Sequence[str]], counts: Iterable[int], laws: Mapping[str, Carried]
) -> float:
    """Of the samples, those whose innermost function has no law."""
    known, whole = 0, 0
    for stack, count in zip(stacks, counts, strict=True):
        whole += count
        known += count if stack and stack[-1] in laws else 0
    return 1 - known / whole if whole else 0.0


class Profile(NamedTuple):
    """One of a speedscope file's."""

    name: str
    stacks: Sequence[Sequence[str]]
    seconds: Sequence[float]


def speedscope(name: str, profiles: Sequence[Profile], exporter: str) -> dict[str, Any]:
    """A document of `SPEEDSCOPE`, of type "sampled": a profile each, the last one opened."""
    frames: dict[str, int] = {}
    told = []
    for profile in profiles:
        samples = [
            [frames.setdefault(function, len(frames)) for function in stack]
            for stack in profile.stacks
        ]
        told.append(
            {
                "type": "sampled",
                "name": profile.name,
                "unit": "seconds",
                "startValue": 0,
                "endValue": sum(profile.seconds),
                "samples": samples,
                "weights": list(profile.seconds),
            }
        )
    return {
        "$schema": SPEEDSCOPE,
        "shared": {"frames": [_frame(function) for function in frames]},
        "profiles": told,
        "name": name,
        "activeProfileIndex": max(0, len(told) - 1),
        "exporter": exporter,
    }


def _frame(function: str) -> dict[str, Any]:
    """`function (file:line)`, or whatever it is."""
    parts = _FRAME.fullmatch(function)
    if parts is None:
        return {"name": function}
    return {"name": parts["name"], "file": parts["file"], "line": int(parts["line"])}
