"""Growth laws beside Extra-P, on 60 series whose truth is known (`tests/growing.py`).

An answer of ours counts as right if the first law is the true one; of a series that no law makes
only "none fits" is. The looser count takes any of the laws that are printed together.

Extra-P answers twice: as it comes, out of 42 terms, and out of the five that ours has. It is right

- of a law, if the term of its model is that law's, and of a constant if it has none;
- of n^1.5, if its term's exponent is within 0.1: that of n alone, or of the whole term between the
  smallest and the largest size;
- of two terms, if its term is the one that grows fastest: its model has one term and cannot be the
  sum, so the one that decides at scale is enough;
- of a step, if its model is a constant, or its own error (SMAPE, which it prints) is above
  10 %, twice the noise. It always has a model; such an error is the only way it has to say that
  none fits. This counts for the other series of no law too.

So where no law is true Extra-P is asked for less than we are: it need not say so.
"""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from harness.analysis.growth import CONSTANT, TERMS, Growth, growth, told_exponent
from tests.growing import (
    KINDS,
    POWER,
    TWO_TERMS,
    Series,
    is_among,
    is_covered,
    is_right,
    series,
)
from tests.interop.fetch import FetchError, fetch_extrap

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

MODELS = Path(__file__).with_name("extrap_models.py")
SEEDS = (1, 2, 3, 4, 5)
"""Each makes 60 series."""
MISFIT = 10.0
"""Of SMAPE in %: from here on Extra-P is taken to say that its model does not fit."""
NEAR = 0.1
EXPONENTS = {
    CONSTANT: (0, 0),
    "log n": (0, 1),
    "n": (1, 0),
    "n log n": (1, 1),
    "n²": (2, 0),
    "n² log n": (2, 1),
}
"""Of n and of log n."""
SAME_TERMS = {"poly_exponents": "1,2", "log_exponents": "1"}
OURS, LOOSER, AS_IT_COMES, OUR_TERMS = (
    "ours", "ours, among those together", "Extra-P", "Extra-P, our terms"
)  # fmt: skip


class Model:
    """What Extra-P made of a series."""

    def __init__(self, exponents: tuple[float, float], smape: float) -> None:
        self.exponents = exponents
        self.smape = smape

    def is_right(self, of: Series) -> bool:
        if of.kind in TERMS:
            return self.exponents == EXPONENTS[of.kind]
        if self.smape > MISFIT:
            return True
        if of.kind == POWER:
            n, logarithm = self.exponents
            slope = told_exponent("log n", of.sizes)
            return min(abs(n - 1.5), abs(n + logarithm * slope - 1.5)) <= NEAR + 1e-9
        if of.kind == TWO_TERMS:
            assert of.leading is not None
            return self.exponents == EXPONENTS[of.leading]
        return self.exponents == EXPONENTS[CONSTANT]


@pytest.fixture(scope="module")
def python() -> Path:
    """Of an environment that has Extra-P."""
    try:
        return fetch_extrap()
    except FetchError as error:
        pytest.skip(str(error))


def models(python: Path, many: list[Series], options: dict[str, str]) -> list[Model]:
    asked = {
        "series": [{"sizes": each.sizes, "samples": each.samples} for each in many],
        "options": options,
    }
    done = subprocess.run(
        [python, MODELS], input=json.dumps(asked), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return [
        Model((each["polynomial"], each["logarithm"]), each["smape"])
        for each in json.loads(done.stdout)
    ]


@pytest.mark.parametrize("seed", SEEDS)
def test_laws_are_right_at_least_as_often_as_extra_ps(python: Path, seed: int) -> None:
    many = list(series(seed))
    assert len(many) == 60
    told = [growth(each.sizes, each.samples) for each in many]
    rights = _rights(many, told) | {
        name: [model.is_right(each) for each, model in zip(many, found, strict=True)]
        for name, found in (
            (AS_IT_COMES, models(python, many, {})),
            (OUR_TERMS, models(python, many, SAME_TERMS)),
        )
    }
    covered = [
        is_covered(each, one)
        for each, one in zip(many, told, strict=True)
        if each.exponent is not None
    ]
    table = _table(many, rights) + f"\nintervals: {sum(covered)} of {len(covered)}"
    print(table)
    assert sum(rights[OURS]) >= sum(rights[AS_IT_COMES]), table
    assert sum(rights[OURS]) >= sum(rights[OUR_TERMS]), table
    assert sum(covered) >= 0.9 * len(covered), table


def _rights(many: list[Series], told: list[Growth]) -> dict[str, list[bool]]:
    counts: dict[str, Callable[[Series, Growth], bool]] = {OURS: is_right, LOOSER: is_among}
    return {
        name: [count(each, one) for each, one in zip(many, told, strict=True)]
        for name, count in counts.items()
    }


def _table(many: list[Series], rights: dict[str, list[bool]]) -> str:
    """By kind: how many are right, in the order of `rights`."""
    rows = [("", *rights)]
    for kind, count in KINDS.items():
        here = [each.kind == kind for each in many]
        right = [sum(r for r, is_here in zip(all_, here, strict=True) if is_here)
                 for all_ in rights.values()]  # fmt: skip
        rows.append((f"{kind} ({count})", *map(str, right)))
    rows.append((f"all ({len(many)})", *(str(sum(all_)) for all_ in rights.values())))
    return "\n" + "\n".join(" | ".join(row) for row in rows)
