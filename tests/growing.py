"""Synthetic series of known growth, measured as a user would: sizes, repeats, noise.

A series has a kind: one of the laws of `harness.analysis.growth`, or one that is none of them
(a power between two laws, a step, two terms). A term's share of the whole at the largest size is
drawn from 30 to 99 %, the rest is a constant; of two terms the larger one has it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from harness.analysis.growth import CONSTANT, TERMS, Growth, told_exponent

Floats = npt.NDArray[np.float64]
NOISE = 0.05
REPEATS = 5
SIZES = (
    (64, 128, 256, 512, 1024),
    (128, 256, 512, 1024, 2048),
    (64, 128, 256, 512, 1024, 2048),
    (64, 256, 512, 1024, 2048),
    (96, 192, 384, 768, 1536, 3072),
    (64, 128, 256, 512, 1024, 2048, 4096),
    (256, 512, 1024, 2048, 4096),
)
TARGET = 65_536
POWER, STEP, TWO_TERMS = "n^1.5", "step", "two terms"
KINDS = dict.fromkeys(TERMS, 6) | {POWER: 8, STEP: 8, TWO_TERMS: 8}
"""How many series of each: 60, of which 24 are of no law."""
_PAIRS = (("n", "n²"), ("log n", "n²"), ("log n", "n"), ("n log n", "n²"))
"""Two terms: what is added to the larger one."""


@dataclass(frozen=True)
class Series:
    """What was measured, and what is true."""

    kind: str
    sizes: tuple[int, ...]
    samples: list[list[float]]
    leading: str | None
    """The law of the term that grows fastest; None: no law's."""
    exponent: float | None
    """Of the growing part over these sizes; None: it has none."""
    at_target: float
    """At `TARGET` ranks."""


def series(
    seed: int, times: int = 1, repeats: int = REPEATS, noise: float = NOISE
) -> Iterator[Series]:
    """`times` as many as `KINDS` says, all drawn from `seed`."""
    draws = np.random.default_rng(seed)
    for kind, count in KINDS.items():
        for index in range(count * times):
            sizes = SIZES[int(draws.integers(len(SIZES)))]
            values, leading, exponent = _truth(kind, index, sizes, draws)
            values *= 10 ** draws.uniform(-6, 3)
            factors = 1 + noise * draws.standard_normal((len(sizes), repeats))
            samples = (values[:-1, None] * np.maximum(factors, noise)).tolist()
            yield Series(kind, sizes, samples, leading, exponent, float(values[-1]))


def _truth(
    kind: str, index: int, sizes: tuple[int, ...], draws: np.random.Generator
) -> tuple[Floats, str | None, float | None]:
    """Values at all sizes and at `TARGET`, 1 at the largest size (after a step, more)."""
    n = np.array([*sizes, TARGET], dtype=float)
    share = draws.uniform(0.3, 0.99)
    if kind == CONSTANT:
        return np.ones_like(n), CONSTANT, 0.0
    if kind in TERMS:
        return 1 - share + share * _term(kind, n), kind, told_exponent(kind, sizes)
    if kind == POWER:
        return 1 - share + share * (n / n[-2]) ** 1.5, None, 1.5
    if kind == STEP:
        ratio = np.exp(draws.uniform(np.log(1.5), np.log(5)))
        after = n >= sizes[draws.integers(1, len(sizes))]
        grown = n / n[-2] if index % 2 else np.ones_like(n)
        return grown * np.where(after, ratio, 1.0), None, None
    less, more = _PAIRS[index % len(_PAIRS)]
    return (1 - share) * _term(less, n) + share * _term(more, n), more, None


def _term(law: str, n: Floats) -> Floats:
    return TERMS[law](n) / TERMS[law](n[-2:-1])


def is_right(each: Series, told: Growth) -> bool:
    """Does the first law say what is true? Where none is, only "none fits" is right."""
    said = told.fits[0].law if told.fits else told.answer
    return said == (each.kind if each.kind in TERMS else "none fits")


def is_among(each: Series, told: Growth) -> bool:
    """Likewise, but any of the laws that are printed together may say it."""
    return is_right(each, told) or each.kind in {fit.law for fit in told.fits}


def is_covered(each: Series, told: Growth) -> bool:
    """Does the interval have the true exponent? One that is not given has not. Powers are tried in
    steps of 0.01.
    """
    interval = told.exponent
    if each.exponent is None or interval is None:
        return False
    return interval.low - 0.005 <= each.exponent <= interval.high + 0.005
