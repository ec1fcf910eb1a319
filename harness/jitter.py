"""What a message takes beyond its latency, by chance: a mean, and a distribution around it."""

import math
import random
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from emucoll.errors import UsageError
from harness.suggest import nearest

SHAPES = ("exponential", "lognormal", "uniform")
SIGMA = 1.0
"""Of the lognormal's logarithm: one message of a hundred takes six times the mean and more."""
Draws: TypeAlias = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Jitter:
    """Seconds that are never below 0."""

    mean_s: float = 0.0
    shape: str = SHAPES[0]
    """`exponential`; `lognormal`, of SIGMA; or `uniform`, from 0 to twice the mean."""

    def __post_init__(self) -> None:
        """Raise UsageError for a shape that there is not."""
        if self.shape not in SHAPES:
            raise UsageError(f"there is no jitter {self.shape!r}: {nearest(self.shape, SHAPES)}")

    def __bool__(self) -> bool:
        """Is there any?"""
        return self.mean_s > 0

    def draw(self, draws: random.Random) -> float:
        """One message's."""
        if self.shape == "lognormal":
            return draws.lognormvariate(self._mu, SIGMA)
        if self.shape == "uniform":
            return draws.uniform(0.0, 2 * self.mean_s)
        return draws.expovariate(1 / self.mean_s)

    def pool(self, draws: np.random.Generator, count: int) -> Draws:
        """Those of many messages, shape (count,)."""
        if self.shape == "lognormal":
            return draws.lognormal(self._mu, SIGMA, count)
        if self.shape == "uniform":
            return draws.uniform(0.0, 2 * self.mean_s, count)
        return draws.exponential(self.mean_s, count)

    @property
    def _mu(self) -> float:
        return math.log(self.mean_s) - SIGMA**2 / 2
