"""Jitter has the mean that it was given, whatever its distribution."""

import random

import numpy as np
import pytest

from emucoll.errors import UsageError
from harness.jitter import SHAPES, Jitter

MEAN_S, COUNT = 4e-6, 400_000


@pytest.mark.parametrize("shape", SHAPES)
def test_one_by_one_and_by_the_pool_it_is_the_same(shape: str) -> None:
    jitter = Jitter(MEAN_S, shape)
    draws = random.Random(1)
    singly = np.array([jitter.draw(draws) for _ in range(COUNT)])
    pool = jitter.pool(np.random.default_rng(2), COUNT)
    assert min(singly.min(), pool.min()) >= 0
    assert singly.mean() == pytest.approx(MEAN_S, rel=0.02)
    assert pool.mean() == pytest.approx(MEAN_S, rel=0.02)
    for quantile in (0.1, 0.5, 0.9, 0.99):
        expected = np.quantile(singly, quantile)
        assert np.quantile(pool, quantile) == pytest.approx(expected, rel=0.05)


def test_shapes_differ_in_their_tails() -> None:
    tails = {
        shape: np.quantile(Jitter(MEAN_S, shape).pool(np.random.default_rng(1), COUNT), 0.999)
        for shape in SHAPES
    }
    assert tails["uniform"] < tails["exponential"] < tails["lognormal"]


def test_none_is_none_and_an_unknown_one_is_told() -> None:
    assert not Jitter()
    with pytest.raises(UsageError, match="no jitter 'normal'"):
        Jitter(MEAN_S, "normal")
