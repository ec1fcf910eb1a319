"""Laws of growth, from sizes at which something is known without noise."""

import math
from collections.abc import Callable

import pytest

from harness.analysis.laws import NONE_FITS, NOT_ENOUGH, NOTHING, law_of

SIZES = [512, 1024, 2048, 4096, 8192, 98304]


def growing(how: Callable[[int], float], sizes: list[int] = SIZES) -> list[float]:
    return [how(n) for n in sizes]


@pytest.mark.parametrize(
    ("how", "text"),
    [
        (lambda n: 3.0, "1"),
        (lambda n: 2e-5 * n, "n"),
        (lambda n: 1e-9 * n * n, "n²"),
        (lambda n: 1e-9 * n * n + 2e-5 * n, "n² + n"),
        (lambda n: 4.0 + 2e-5 * n, "1 + n"),
        (lambda n: 1e-3 * math.log2(n), "log n"),
        (lambda n: 5e-5 * n + 0.02, "n"),
    ],
)
def test_sums_are_found(how: Callable[[int], float], text: str) -> None:
    assert law_of(SIZES, growing(how)).text == text


def test_shares_are_those_at_the_largest_size() -> None:
    law = law_of(SIZES, growing(lambda n: 1e-9 * n * n + 2e-5 * n))
    quadratic, linear = 1e-9 * 98304**2, 2e-5 * 98304
    assert law.shares["n²"] == pytest.approx(quadratic / (quadratic + linear), rel=1e-6)


def test_what_no_sum_gives_is_said() -> None:
    assert law_of(SIZES, growing(lambda n: n**-0.5)).text == NONE_FITS
    assert law_of(SIZES, [1.0, 5.0, 1.0, 5.0, 1.0, 5.0]).text == NONE_FITS
    assert law_of(SIZES, [0.0] * 6).text == NOTHING
    assert law_of([1, 2, 4], [1.0, 2.0, 4.0]).text == NOT_ENOUGH
    assert law_of(SIZES, [0.0, 0.0, 1.0, 2.0, 4.0, 8.0]).text == NONE_FITS
