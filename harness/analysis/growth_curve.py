"""The line that a growth law draws from the largest size that was run to the target. Pure."""

import numpy as np

from harness.analysis.growth import TERMS

_POINTS = 40


def curve(
    law: str, largest: tuple[int, float], target: tuple[int, float]
) -> tuple[list[float], list[float]] | None:
    """Sizes and values, of the `law` (a constant and its term) that goes through the values at the
    `largest` size and at the `target`; where it is none of ours, of a power of n. None where no
    line leads there.
    """
    (fewer, begin), (more, end) = largest, target
    if fewer >= more or begin <= 0 or end <= 0:
        return None
    n = np.geomspace(fewer, more, _POINTS)
    term = TERMS.get(law)
    if term is None:
        values = begin * (end / begin) ** (np.log(n / fewer) / np.log(more / fewer))
        return n.tolist(), values.tolist()
    shape = term(n)
    rise = shape[-1] - shape[0]
    share = (shape - shape[0]) / rise if rise else np.linspace(0.0, 1.0, _POINTS)
    return n.tolist(), (begin + (end - begin) * share).tolist()
