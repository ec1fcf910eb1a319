"""How likely ways to grow are, laws and others, and what they say of other sizes.

Each way is a mixture of two shapes that are 1 at the largest size: a constant and a law, a constant
and a power, a constant and a step, two laws. The share of the lesser shape is what a way leaves
open, as is the level. A way counts as likely as it is in the mean over all shares, so that one with
more freedom has no advantage for it. It holds that more than one way is possible, and chooses none.
It knows no law by name. Pure.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Floats: TypeAlias = npt.NDArray[np.float64]

POWERS = np.round(np.arange(0.25, 3.01, 0.025), 3)
_LOG_ODDS = np.arange(-12.0, 7.01, 0.05)
_SHARES = 1 / (1 + np.exp(-_LOG_ODDS))
"""Of the lesser shape at the largest size; so closely set that 5 % of any value lies between."""
_EVENLY = _SHARES * (1 - _SHARES)
_IN_LOGARITHM = 1 - _SHARES
_WEIGHTS = _EVENLY / _EVENLY.sum() / 2 + _IN_LOGARITHM / _IN_LOGARITHM.sum() / 2
"""Half the odds for shares between 0 and 1, half for ones that are small, however small."""
_NORMAL = np.array([-1.64, -0.67, 0.0, 0.67, 1.64])
"""Five values that stand for a normal distribution."""
_NEGLIGIBLE = 20.0
"""So much less in the logarithm: even of all ways together it would not count."""
FEWEST_FREEDOM, MOST_FREEDOM = 2, 20
"""Of the noise: a guess counts as known from three values, and no noise as known better than from
20, since what no repetition shows is a guess.
"""


class Ways(NamedTuple):
    """As many as there are rows; a column for each size."""

    lesser: Floats
    greater: Floats


class Seen(NamedTuple):
    """What was measured: a value a size."""

    values: Floats
    off: Floats
    """Relative: how far each may be off."""
    freedom: float
    """From how many values more than needed that is known."""


class _Likely(NamedTuple):
    """By way and share."""

    logs: Floats
    """Of the likelihood, weight of the share included."""
    levels: Floats
    """Of the logarithm of the value at the largest size: the likeliest."""


def with_constant(shapes: Sequence[Floats]) -> Ways:
    """Of a constant and each of these."""
    greater = np.stack(shapes)
    return Ways(np.ones_like(greater), greater)


def of_two(shapes: Sequence[Floats]) -> Ways:
    """Of each two of these; the one that grows more slowly comes first."""
    lesser, greater = np.triu_indices(len(shapes), 1)
    rows = np.stack(shapes)
    return Ways(rows[lesser], rows[greater])


def powers(n: Floats, largest: float) -> Ways:
    """A constant and a power."""
    return with_constant([(n / largest) ** power for power in POWERS])


def steps(n: Floats, sizes: Floats) -> Ways:
    """A jump up at one of `sizes`, of what is constant or grows as n."""
    after = np.stack([np.where(n >= size, 1.0, 0.0) for size in sizes[1:]])
    flat, rising = np.ones_like(after), np.tile(n / sizes[-1], (len(after), 1))
    return Ways(np.concatenate([flat, rising]), np.concatenate([after, rising * after]))


def evidence(ways: Ways, seen: Seen) -> Floats:
    """The logarithm of the likelihood of each way, in the mean over its shares."""
    return np.asarray(np.logaddexp.reduce(_likely(ways, seen).logs, axis=-1))


def range_at(
    families: Sequence[tuple[Ways, Ways]], seen: Seen, odds: float
) -> tuple[float, float, float]:
    """Low, median and high of what all families together say of a size, with these odds within.

    Of each family its ways at the sizes that were measured, and at the one asked for (a column). A
    family counts as one, however many ways it has.
    """
    logs, said = [], []
    for known, asked in families:
        likely = _likely(known, seen)
        there = _mixed(asked)[..., 0]
        logs.append((likely.logs - np.log(len(likely.logs))).ravel())
        said.append((likely.levels + there).ravel())
    off = _NORMAL / np.sqrt(np.sum(1 / seen.off**2))  # of the level
    weights, values = np.concatenate(logs), np.concatenate(said)
    counts = weights > weights.max() - _NEGLIGIBLE
    weights = np.repeat(weights[counts], len(off))
    values = (values[counts, None] + off).ravel()
    order = np.argsort(values)
    sums = np.cumsum(np.exp(weights[order] - weights.max()))
    wanted = np.array([(1 - odds) / 2, 0.5, (1 + odds) / 2]) * sums[-1]
    low, middle, high = np.exp(values[order][np.searchsorted(sums, wanted)])
    return float(low), float(middle), float(high)


def _mixed(ways: Ways) -> Floats:
    """The logarithm, by way, share and size."""
    share = _SHARES[:, None]
    mixed = share * ways.lesser[:, None, :] + (1 - share) * ways.greater[:, None, :]
    return np.asarray(np.log(mixed))


def _likely(ways: Ways, seen: Seen) -> _Likely:
    """Student's t over all sizes: noise is as unknown as its freedom says."""
    precision = 1 / seen.off**2
    apart = np.log(seen.values) - _mixed(ways)
    levels = apart @ precision / precision.sum()
    chis = (apart - levels[..., None]) ** 2 @ precision
    freedom = min(max(seen.freedom, FEWEST_FREEDOM), MOST_FREEDOM)
    logs = -(freedom + len(seen.values) - 1) / 2 * np.log1p(chis / freedom)
    return _Likely(logs + np.log(_WEIGHTS), levels)
