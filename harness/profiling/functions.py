"""What each function takes of a CPU by itself, at each size, from samples; and which one is meant
where a finding has none.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from harness.results.samples import Sampled

LEAST_SHARE = 0.01
"""Of a role's samples at the largest size: rarer functions are not told of."""
LEAST_COUNT = 10
MOST_FUNCTIONS = 20
"""Of a role."""


class Own(NamedTuple):
    """CPU seconds in a function itself, of one rank or server."""

    seconds: dict[int, float]
    """By size."""
    off: dict[int, float]
    """By how much they may be off, relative: chance alone."""


def own_times(sampled: Sequence[Sampled]) -> dict[tuple[str, str], Own]:
    """By role and function, those that matter at the largest size."""
    found: dict[tuple[str, str], Own] = {}
    for role in dict.fromkeys(each.role for each in sampled):
        of_role = [each for each in sampled if each.role == role]
        largest = max(of_role, key=lambda each: each.n)
        counts = {each.n: own_counts(each) for each in of_role}
        least = max(LEAST_COUNT, LEAST_SHARE * sum(largest.counts))
        for function, count in counts[largest.n].most_common(MOST_FUNCTIONS):
            if count < least:
                break
            own = found[role, function] = Own({}, {})
            for each in of_role:
                seen = counts[each.n][function]
                own.seconds[each.n] = seen * second_of(each)
                own.off[each.n] = 1 / math.sqrt(max(seen, 1))
    return found


def second_of(sampled: Sampled) -> float:
    """CPU seconds of one rank, or server, in one bring-up, that a sample stands for."""
    ranks = sampled.n if sampled.role == "rank" else 1
    return sampled.every_s / sampled.bring_ups / ranks


def own_counts(sampled: Sampled) -> Counter[str]:
    """How often each function was the innermost."""
    counts: Counter[str] = Counter()
    for stack, count in zip(sampled.stacks, sampled.counts, strict=True):
        counts[stack[-1]] += count
    return counts


def hottest(sampled: Iterable[Sampled], role: str, file: str | None) -> str | None:
    """The function of `role` that was seen most, at the largest size: of those in `file`, where
    that was seen, the one whose own work or calls took most.
    """
    of_role = [each for each in sampled if each.role == role]
    if not of_role:
        return None
    largest = max(of_role, key=lambda each: each.n)
    counts: Counter[str] = Counter()
    for stack, count in zip(largest.stacks, largest.counts, strict=True):
        inside = [each for each in stack if file is not None and f"({file}:" in each]
        if inside:
            counts[inside[-1]] += count
    counts = counts or own_counts(largest)
    return counts.most_common(1)[0][0] if counts else None
