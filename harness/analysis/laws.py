"""How something grows with the number of ranks, from sizes at which it is known without noise: as a
sum of a constant, log n, n and n² with factors of 0 or more.

Of all such sums the one with the fewest terms that is right everywhere to TOLERANCE counts, and of
those the closest. Pure.
"""

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[np.float64]

TERMS: dict[str, Callable[[Array], Array]] = {
    "1": lambda n: np.ones_like(n),
    "log n": np.log2,
    "n": lambda n: n,
    "n log n": lambda n: n * np.log2(n),
    "n²": lambda n: n**2,
}
TOLERANCE = 0.03
SHOWN = 0.03
"""Of the whole at the largest size: a term with less is not named."""
NONE_FITS = "none fits"
NOT_ENOUGH = "not enough sizes"
NOTHING = "0"
FEWEST_SIZES = 4


class Law(NamedTuple):
    """A sum of terms."""

    text: str
    """Its terms, the largest at the largest size first: `n² + n`."""
    shares: dict[str, float]
    """Of each term, at the largest size."""


def law_of(sizes: Sequence[int], values: Sequence[float]) -> Law:
    """How `values` grow over `sizes`, which ascend."""
    n, y = np.array(sizes, dtype=float), np.array(values, dtype=float)
    if not y.any():
        return Law(NOTHING, {})
    if len(n) < FEWEST_SIZES:
        return Law(NOT_ENOUGH, {})
    if (y <= 0).any():
        return Law(NONE_FITS, {})
    for count in (1, 2, 3):
        fits = [_fit(names, n, y) for names in combinations(TERMS, count)]
        error, names, factors = min(fits, key=lambda fit: fit[0])
        if error <= TOLERANCE:
            last = {
                name: factor * float(TERMS[name](n[-1:])[0])
                for name, factor in zip(names, factors, strict=True)
            }
            shares = {name: value / sum(last.values()) for name, value in last.items()}
            shown = sorted((name for name in shares if shares[name] >= SHOWN), key=shares.get)  # type: ignore[arg-type]
            return Law(" + ".join(reversed(shown)), shares)
    return Law(NONE_FITS, {})


def _fit(names: tuple[str, ...], n: Array, y: Array) -> tuple[float, tuple[str, ...], Array]:
    """The largest relative error of the best sum of these, and its factors."""
    from scipy.optimize import nnls  # 60 MiB: for those alone who ask

    terms = np.stack([TERMS[name](n) / y for name in names], axis=1)
    scale = terms.max(axis=0)
    factors, _ = nnls(terms / scale, np.ones(len(n)))
    error = float(np.abs(terms / scale @ factors - 1).max())
    return error, names, factors / scale
