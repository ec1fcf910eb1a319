"""Growth laws out of noisy series, whose truth is known."""

from collections import Counter

import numpy as np
import pytest

from harness.analysis.growth import CONSTANT, TERMS, growth, told_exponent
from tests.growing import TARGET, is_among, is_covered, is_right
from tests.growing import series as drawn

SIZES = (128, 256, 512, 1024, 2048)
MIDDLE = SIZES[2]
NOISE = 0.05


def series(law: str, constant: float) -> np.ndarray:
    """1 at the middle size, and `constant` beside it."""
    n, middle = np.array(SIZES, dtype=float), np.array([MIDDLE], dtype=float)
    if law == CONSTANT:
        return np.ones_like(n)
    return np.asarray(constant + TERMS[law](n) / TERMS[law](middle))


def noisy(values: np.ndarray, repeats: int, seed: int) -> list[list[float]]:
    numbers = np.random.default_rng(seed)
    return [list(v * (1 + NOISE * numbers.standard_normal(repeats))) for v in values]


def counts(values: np.ndarray, repeats: int, draws: int = 20) -> Counter[str]:
    found: Counter[str] = Counter()
    for seed in range(draws):
        told = growth(SIZES, noisy(values, repeats, seed))
        found[told.fits[0].law if told.fits else told.answer] += 1
    return found


@pytest.mark.parametrize("law", TERMS)
@pytest.mark.parametrize("constant", [0.0, 0.1, 1.0])
def test_the_law_is_found_and_the_exponent_in_its_interval(law: str, constant: float) -> None:
    draws = [growth(SIZES, noisy(series(law, constant), 5, seed)) for seed in range(20)]
    assert sum(bool(told.fits) and told.fits[0].law == law for told in draws) >= 14
    assert sum(law in {fit.law for fit in told.fits} for told in draws) >= 19
    truth, covered = told_exponent(law, SIZES), 0
    for told in draws:
        if told.exponent is not None:
            covered += told.exponent.low - 0.005 <= truth <= told.exponent.high + 0.005
    assert covered >= 18


@pytest.mark.parametrize("law", TERMS)
def test_without_noise_it_is_exact(law: str) -> None:
    told = growth(SIZES, [[v, v] for v in series(law, 0.2)])
    assert told.fits[0].law == law
    assert told.fits[0].at(98304) == pytest.approx(
        1.0 if law == CONSTANT else 0.2 + TERMS[law](np.array([98304.0]))[0]
        / TERMS[law](np.array([float(MIDDLE)]))[0], rel=1e-6
    )  # fmt: skip


@pytest.mark.parametrize(
    "values",
    [
        [(n / MIDDLE) ** 1.5 for n in SIZES],
        [(n / MIDDLE) ** 0.5 for n in SIZES],
        [(n / MIDDLE) ** 3 for n in SIZES],
        [5.0 if n > MIDDLE else 1.0 for n in SIZES],
        [n * (5.0 if n > MIDDLE else 1.0) for n in SIZES],
        [n / MIDDLE + (n / MIDDLE) ** 2 for n in SIZES],
        [5.0, 4.0, 3.0, 2.0, 1.0],
    ],
)
def test_what_no_law_makes_has_none(values: list[float]) -> None:
    assert counts(np.array(values), 5)["none fits"] >= 19


def test_a_power_that_is_no_law_has_its_exponent() -> None:
    told = growth(SIZES, noisy(np.array(SIZES, dtype=float) ** 1.5, 5, 1))
    assert told.answer == "none fits"
    assert told.exponent is not None
    assert 1.4 < told.exponent.low <= 1.5 <= told.exponent.high < 1.6


def test_a_step_has_no_exponent() -> None:
    told = growth(SIZES, noisy(np.array([1.0, 1, 1, 5, 5]), 5, 1))
    assert told == type(told)("none fits")


def test_laws_that_cannot_be_told_apart_stand_together() -> None:
    """A constant that is twice what grows, once each: n and n log n look alike."""
    told = growth(SIZES, noisy(series("n", 2.0), 1, 3))
    assert {"n", "n log n"} <= {fit.law for fit in told.fits}
    says = [fit.at(98304) for fit in told.fits]
    assert max(says) > 1.3 * min(says)


def test_few_sizes_are_not_enough() -> None:
    assert growth(SIZES[:4], [[1.0]] * 4).answer == "not enough evidence"
    assert growth((64, 64, 128, 256, 512), [[1.0]] * 5).answer == "not enough evidence"


def test_nothing_has_no_law() -> None:
    assert growth(SIZES, [[0.0, 0.0]] * 5).answer == "nothing"
    assert growth(SIZES, [[0.0], [0.0], [0.0], [0.0], [1.0]]).answer == "none fits"


def test_the_order_of_sizes_does_not_matter() -> None:
    samples = noisy(series("n²", 0.1), 2, 5)
    there, back = growth(SIZES, samples), growth(SIZES[::-1], samples[::-1])
    assert there.exponent == back.exponent
    assert [fit.law for fit in there.fits] == [fit.law for fit in back.fits]


def counted(means: list[float], seed: int) -> tuple[list[list[float]], list[float]]:
    """Counts of samples, and how far each is off."""
    seen = np.random.default_rng(seed).poisson(means)
    return [[float(count)] for count in seen], [count**-0.5 if count else np.inf for count in seen]


def test_few_samples_say_less_than_many() -> None:
    """Growing as n, from 20 counts (22 % off) to 320: noise that one number for all has not."""
    draws = [
        growth(SIZES, *counted([20 * n / SIZES[0] for n in SIZES], seed)) for seed in range(40)
    ]
    assert sum("n" in {fit.law for fit in told.fits} for told in draws) >= 36
    exponents = [told.exponent for told in draws if told.exponent is not None]
    assert sum(each.low - 0.005 <= 1 <= each.high + 0.005 for each in exponents) >= 36


def test_what_is_known_stands_in_for_what_repetitions_show() -> None:
    samples = noisy(series("n", 0.1), 2, 1)
    few, many = (growth(SIZES, samples, [off] * len(SIZES)).exponent for off in (0.2, 0.0))
    assert few is not None
    assert many is not None
    assert few.high - few.low > 3 * (many.high - many.low)


def test_a_size_at_which_nothing_was_counted_is_left_out() -> None:
    seen = [[0.0], [4.0], [8.0], [16.0], [32.0], [64.0]]
    off = [np.inf, *(each[0] ** -0.5 for each in seen[1:])]
    without = growth(SIZES, seen[1:], off[1:])
    assert growth((64, *SIZES), seen, off) == without
    assert without.fits[0].law == "n"
    assert growth((64, *SIZES), seen).answer == "none fits"
    assert growth(SIZES, seen[:5], off[:5]).answer == "not enough evidence"


def test_what_was_counted_no_more_at_the_largest_size_has_no_law() -> None:
    assert growth((*SIZES, 4096), [[4.0]] * 5 + [[0.0]], [0.5] * 6).answer == "none fits"


def test_a_size_that_is_given_twice_is_known_better() -> None:
    samples = noisy(series("n", 0.0), 1, 2)
    once = growth(SIZES, samples, [0.1] * 5).exponent
    twice = growth(SIZES * 2, samples * 2, [0.1] * 10).exponent
    assert once is not None
    assert twice is not None
    assert twice.high - twice.low < 0.8 * (once.high - once.low)


def test_laws_are_right_and_intervals_hold_over_many_series() -> None:
    """60 series, four times over: as in `tests/interop/test_growth_laws.py`."""
    told = [(each, growth(each.sizes, each.samples)) for each in drawn(seed=2, times=4)]
    lawful = [pair for pair in told if pair[0].kind in TERMS]
    others = [pair for pair in told if pair[0].kind not in TERMS]
    share = {
        name: sum(right(*pair) for pair in pairs) / len(pairs)
        for name, right, pairs in (
            ("laws", is_right, lawful),
            ("laws, or among those printed together", is_among, lawful),
            ("none fits", is_right, others),
            ("intervals", is_covered, [pair for pair in told if pair[0].exponent is not None]),
        )
    }
    assert share["laws"] >= 0.8, share
    assert share["laws, or among those printed together"] >= 0.95, share
    assert share["none fits"] >= 0.8, share
    assert share["intervals"] >= 0.9, share


@pytest.mark.parametrize(("repeats", "noise"), [(5, 0.05), (1, 0.05), (3, 0.2)])
def test_what_is_said_of_a_larger_size_has_a_range_that_holds(repeats: int, noise: float) -> None:
    """Of 16 to 64 times as many ranks as were measured, steps and sums of two laws included."""
    covered, exponents = [], []
    for each in drawn(seed=3, repeats=repeats, noise=noise):
        told = growth(each.sizes, each.samples)
        said = told.at(TARGET)
        assert said is not None
        assert said.low <= said.value <= said.high
        covered.append(0.97 * said.low <= each.at_target <= 1.03 * said.high)
        if each.exponent is not None:
            exponents.append(is_covered(each, told))
    assert np.mean(covered) >= 0.9
    assert np.mean(exponents) >= 0.9


def test_noise_that_no_repetition_shows_says_little_of_a_larger_size() -> None:
    """A server's CPU at few ranks, once each, 30 % off."""
    values = np.array([[0.011], [0.009], [0.017], [0.013], [0.026]])
    noise, clear = growth(SIZES, values).at(98304), growth(SIZES, noisy(series("n", 1), 5, 1))
    assert noise is not None
    assert noise.high > 30 * noise.low
    said = clear.at(98304)
    assert said is not None
    assert said.high < 3 * said.low


def test_a_law_with_no_noise_says_one_thing_of_a_larger_size() -> None:
    told = growth(SIZES, [[v, v] for v in series("n²", 0.2)], [0.0] * 5)
    said = told.at(98304)
    assert said is not None
    assert said.value == told.fits[0].at(98304)
    assert said.low < said.value < said.high < 2 * said.low


def test_what_has_no_law_says_something_of_a_larger_size() -> None:
    power = growth(SIZES, noisy(np.array(SIZES, dtype=float) ** 1.5, 5, 1)).at(SIZES[-1] * 4)
    assert power is not None
    assert power.low <= 8 * SIZES[-1] ** 1.5 <= power.high < 1.3 * power.low
    step = growth(SIZES, noisy(np.array([1.0, 1, 1, 5, 5]), 5, 1)).at(98304)
    assert step is not None
    assert 4.5 < step.low <= step.high < 5.5


def test_nothing_says_nothing_of_a_larger_size() -> None:
    assert growth(SIZES, [[0.0]] * 5).at(98304) is None
    assert growth(SIZES[:4], [[1.0]] * 4).at(98304) is None
