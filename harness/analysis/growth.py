"""How something measured grows with the number of ranks: which law, and with which exponent.

A law is a constant and one growing term, both with factors of 0 or more. Each is fitted to all
sizes but one and asked for that one; whose answers are the closest is the best, if it also fits all
sizes as well as chance lets it, and is likelier than what is no law: any power, a step, two
terms. What fits about as well stands beside it: sizes that cannot tell two laws apart must not
choose between them. The exponent is that of `constant + factor nᵖ`, with all p that fit nearly as
well as the best: an interval that needs no law. What is said of larger sizes has a range: what laws
and all that is no law say, as likely as each is. Laws for what has no noise are in
`harness.analysis.laws`. Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from harness.analysis.likelihood import (
    Seen,
    Ways,
    evidence,
    of_two,
    powers,
    range_at,
    steps,
    with_constant,
)

Floats: TypeAlias = npt.NDArray[np.float64]
CONSTANT = "constant"
TERMS: dict[str, Callable[[Floats], Floats]] = {
    CONSTANT: np.zeros_like,
    "log n": np.log2,
    "n": lambda n: n,
    "n log n": lambda n: n * np.log2(n),
    "n²": lambda n: n**2,
    "n² log n": lambda n: n**2 * np.log2(n),
}
FEWEST_SIZES = 5
SYSTEMATIC = 0.02
"""Of a value: what no repetition shows, such as caches that a size fits into and the next does not.
"""
UNREPEATED = 0.05
"""Of a value: how far it is taken to be off where nothing was repeated."""
_ODDS = 0.99
"""A law is dropped that chance would make fit better so often."""
_INTERVAL = 0.95
_RANGE = 0.9
"""Of what is said of larger sizes: the odds that the truth lies within."""
_EXPECTED = (1.0, 0.3, 0.3)
"""How often a power, a step and two terms are expected for each time that a law is."""
_TOLD_APART = 4.0
"""A law whose χ² is larger by so much than the best one's is the worse one."""
_POWERS = np.round(np.arange(-1.0, 4.005, 0.01), 2)
_REFITS = 3
_FLAT = 1e-12
"""Of two terms: by how much they have to differ."""

Answer = Literal["law", "not enough evidence", "none fits", "nothing"]


@dataclass(frozen=True)
class Fit:
    """One law, fitted: `constant + factor x term`."""

    law: str
    constant: float
    factor: float
    error: float
    """Of its answers for sizes that it was not fitted to, relative: root of the mean square."""

    def at(self, n: float) -> float:
        """What it says of `n` ranks."""
        term = TERMS[self.law](np.array([n], dtype=float))
        return self.constant + self.factor * float(term[0])


class Exponent(NamedTuple):
    """Of the growing part."""

    value: float
    low: float
    high: float


class _Points(NamedTuple):
    """One value for each size."""

    n: Floats
    values: Floats
    off: Floats
    """Relative: how far each may be off."""
    freedom: float
    """From how many values more than needed that is known."""

    def without(self, index: int) -> "_Points":
        """All but one."""
        n, values, off = (np.delete(each, index) for each in self[:3])
        return _Points(n, values, off, self.freedom)


class Extrapolated(NamedTuple):
    """What is said of a size: 90 % of what is likely lies between `low` and `high`."""

    low: float
    value: float
    high: float


@dataclass(frozen=True)
class Growth:
    """What sizes and values tell."""

    answer: Answer
    fits: tuple[Fit, ...] = ()
    """The best first, then those that cannot be told apart from it; those that do not fit are
    missing.
    """
    exponent: Exponent | None = None
    """None: unknown, or nothing of that form fits."""
    _points: _Points | None = field(default=None, repr=False, compare=False)

    def at(self, n: float) -> Extrapolated | None:
        """What it says of `n` ranks: the best law or, where none fits, the middle of the range.

        The range is what laws, powers, steps and sums of two laws say, each as likely as what was
        measured makes it. What did not show at all at the sizes measured is not in it. None: there
        is nothing to tell it from.
        """
        if self._points is None:
            return None
        seen = _seen(self._points)
        here = _families(self._points.n, self._points.n)
        there = _families(np.array([n], dtype=float), self._points.n)
        low, middle, high = range_at(list(zip(here, there, strict=True)), seen, _RANGE)
        value = self.fits[0].at(n) if self.fits else middle
        return Extrapolated(min(low, value), value, max(high, value))


def growth(
    sizes: Sequence[int],
    samples: Sequence[Sequence[float]],
    off: Sequence[float] | None = None,
) -> Growth:
    """Of what was measured at each of `sizes`, once or several times: `samples`, none below 0.

    `off` is for each of `sizes` the relative standard error of its mean, where that is known: of
    counted samples 1/√count. It stands in for what repetitions show. At a size where nothing was
    counted (infinity is a fit `off`) there may be too little to be seen: where something was
    counted at a larger one, such a size is left out.
    """
    if not any(value for each in samples for value in each):
        return Growth("nothing")
    points = _repeated(sizes, samples) if off is None else _told(sizes, samples, off)
    if len(points.n) < FEWEST_SIZES:
        return Growth("not enough evidence")
    if np.any(points.values <= 0):
        return Growth("none fits")
    exponent = _exponent(points)
    fits = _fits(points)
    if not fits:
        return Growth("none fits", exponent=exponent, _points=points)
    if fits[0].law == CONSTANT:
        exponent = _slope(points)
    return Growth("law", fits, exponent, points)


def _fits(points: _Points) -> tuple[Fit, ...]:
    """The best law first, then those that are as good; none, if what is no law is likelier."""
    fitting = [fit for law in TERMS if (fit := _fitting(law, points)) is not None]
    if not fitting:
        return ()
    least = min(chi for _, chi in fitting)
    by_error = sorted(fitting, key=lambda each: each[0].error)
    fits = [fit for fit, chi in by_error if fit is by_error[0][0] or chi <= least + _TOLD_APART]
    fits.sort(key=lambda fit: fit.law != CONSTANT)  # what chance would make grow so does not grow
    *laws, power, step, pair = _families(points.n, points.n)
    seen = _seen(points)
    (likely,) = evidence(laws[list(TERMS).index(fits[0].law)], seen)
    others = zip((power, step, pair), _EXPECTED, strict=True)
    no_law = [_mean(evidence(ways, seen)) + np.log(odds) for ways, odds in others]
    return tuple(fits) if likely >= max(no_law) else ()


def _told(
    sizes: Sequence[int], samples: Sequence[Sequence[float]], off: Sequence[float]
) -> _Points:
    """Means, and how far these may be off: by what the caller knows of each."""
    by_size: dict[int, list[tuple[float, float, int]]] = {}
    for size, each, relative in zip(sizes, samples, off, strict=True):
        sum_ = float(np.sum(each))
        by_size.setdefault(size, []).append((sum_, sum_ and sum_ * relative, len(each)))
    largest = max(size for size, told in by_size.items() if any(each[0] for each in told))
    rows = []
    for size, told in sorted(by_size.items()):
        sums, errors, counts = np.array(told, dtype=float).T
        if sum_ := np.sum(sums):
            rows.append((size, sum_ / np.sum(counts), np.sqrt(np.sum(errors**2)) / sum_))
        elif size > largest:
            rows.append((size, 0.0, 0.0))
    n, values, known = np.array(rows, dtype=float).T
    return _Points(n, values, np.hypot(known, SYSTEMATIC), np.inf)


def _repeated(sizes: Sequence[int], samples: Sequence[Sequence[float]]) -> _Points:
    """Means, and how far these may be off: by what repetitions of all sizes together show."""
    by_size: dict[int, list[float]] = {}
    for size, each in zip(sizes, samples, strict=True):
        by_size.setdefault(size, []).extend(each)
    known = sorted(by_size)
    values = np.array([np.mean(by_size[size]) for size in known])
    counts = np.array([len(by_size[size]) for size in known])
    freedom = int(np.sum(counts - 1))
    noise = UNREPEATED
    if freedom and np.all(values > 0):
        squares = sum(
            float(np.sum((np.array(by_size[size]) / mean - 1) ** 2))
            for size, mean in zip(known, values, strict=True)
        )
        noise = float(np.sqrt(squares / freedom))
    off = np.sqrt(noise**2 / counts + SYSTEMATIC**2)
    return _Points(np.array(known, dtype=float), values, off, freedom)


def _seen(points: _Points) -> Seen:
    return Seen(points.values, points.off, points.freedom)


def _families(n: Floats, sizes: Floats) -> list[Ways]:
    """At `n`, of what was measured at `sizes`: each law as `TERMS` has them, powers, steps and sums
    of two laws.
    """
    largest = sizes[-1:]
    shapes = {law: term(n) / term(largest) for law, term in TERMS.items() if law != CONSTANT}
    laws = {CONSTANT: np.ones_like(n)} | shapes
    return [
        *(with_constant([laws[law]]) for law in TERMS),
        powers(n, float(largest[0])),
        steps(n, sizes),
        of_two(list(shapes.values())),
    ]


def _mean(logs: Floats) -> float:
    """The logarithm of the mean of what these are logarithms of."""
    return float(np.logaddexp.reduce(logs) - np.log(len(logs)))


def _fitting(law: str, points: _Points) -> tuple[Fit, float] | None:
    """The law and its χ², if it fits."""
    term = TERMS[law](points.n)
    constant, factor = (float(each) for each in _fit(term, points))
    chi = float(_chi(constant + factor * term, points))
    parameters = 1 if law == CONSTANT else 2
    if chi > _most_chi(_ODDS, len(points.n) - parameters, points.freedom):
        return None
    errors = []
    for index in range(len(points.n)):
        others = points.without(index)
        base, rise = _fit(np.delete(term, index), others)
        said = base + rise * term[index]
        errors.append(np.log(points.values[index] / said))
    return Fit(law, constant, factor, float(np.sqrt(np.mean(np.square(errors))))), chi


@lru_cache(maxsize=256)
def _most_chi(odds: float, freedom: int, of_noise: float) -> float:
    """Below it lies χ² of so many degrees of freedom, with these odds.

    Noise that repetitions show is itself known no better than its own freedom lets it; what is
    told or, without repetitions, taken for it counts as known.
    """
    from scipy.stats import chi2, f  # 60 MiB: for those alone who ask

    if 0 < of_noise < np.inf:
        return float(freedom * f.ppf(odds, freedom, of_noise))
    return float(chi2.ppf(odds, freedom))


def _fit(terms: Floats, points: _Points) -> tuple[Floats, Floats]:
    """Constant and factor, with which the relative errors are least, of each of `terms`' rows."""
    scale = np.maximum(terms.max(axis=-1, keepdims=True), np.finfo(float).tiny)
    term, told = terms / scale, points.values
    for _ in range(_REFITS):
        w = 1 / (told * points.off) ** 2
        ones, cross, squares = (np.sum(w * term**power, axis=-1) for power in (0, 1, 2))
        value, slope = (np.sum(w * points.values * term**power, axis=-1) for power in (0, 1))
        determinant = ones * squares - cross**2
        with np.errstate(divide="ignore", invalid="ignore"):
            constant = (value * squares - slope * cross) / determinant
            factor = (slope * ones - value * cross) / determinant
            alone = slope / squares
        flat = ~(determinant > _FLAT * ones * squares) | (factor < 0)
        rising = ~flat & (constant < 0)
        constant = np.where(flat, value / ones, np.where(rising, 0.0, constant))
        factor = np.where(flat, 0.0, np.where(rising, alone, factor))
        told = constant[..., None] + factor[..., None] * term
        told = np.maximum(told, 1e-9 * points.values)
    return constant, factor / scale[..., 0]


def _chi(told: Floats, points: _Points) -> Floats:
    return np.asarray(np.sum((np.log(points.values / told) / points.off) ** 2, axis=-1))


def _exponent(points: _Points) -> Exponent | None:
    """Of the growing part of `constant + factor nᵖ`, p above 0."""
    powers = _POWERS[_POWERS > 0]
    terms = (points.n / points.n[0]) ** powers[:, None]
    constant, factor = _fit(terms, points)
    chis = _chi(constant[:, None] + factor[:, None] * terms, points)
    return _interval(powers, chis, len(points.n) - 3, points.freedom)


def _slope(points: _Points) -> Exponent | None:
    """Of the whole, for what does not grow: of `factor nᵖ`."""
    ratios = np.log(points.values / (points.n / points.n[0]) ** _POWERS[:, None])
    weights = 1 / points.off**2
    levels = np.sum(weights * ratios, axis=-1, keepdims=True) / np.sum(weights)
    chis = np.sum(weights * (ratios - levels) ** 2, axis=-1)
    return _interval(_POWERS, chis, len(points.n) - 2, points.freedom)


def _interval(powers: Floats, chis: Floats, freedom: int, of_noise: float) -> Exponent | None:
    best = int(chis.argmin())
    if chis[best] > _most_chi(_ODDS, freedom, of_noise):
        return None
    near = powers[chis <= chis[best] + _most_chi(_INTERVAL, 1, of_noise)]
    return Exponent(float(powers[best]), float(near[0]), float(near[-1]))


def told_exponent(law: str, sizes: Sequence[int]) -> float:
    """The exponent of a law's growing part between the smallest and the largest size."""
    n = np.array([min(sizes), max(sizes)], dtype=float)
    if law == CONSTANT:
        return 0.0
    ((low, high),) = pairwise(np.log(TERMS[law](n)))
    return float((high - low) / np.log(n[1] / n[0]))
