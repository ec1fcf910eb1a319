"""Where many equal rounds lead, without playing them.

A round without noise is linear in max and plus: a rank's time after it is the largest of the times
before it of the ranks around, each plus what lies between. Round after round, what decides a rank's
time is the longest of all ways that lead to it through the rounds. The cycle that takes longest per
round sets the pace, and a way can wait in one for as long as it has rounds left. So, with every
round's weight less the pace, the longest way that passes such a cycle is the answer, if it needs no
more rounds than there are; and the longest of any number of rounds is an upper bound. Where the two
are equal the answer is exact, and only then is it given. Where all ranks are alike, the slowest way
goes on and on in one direction: it stays where it is for who goes along with it.

Pure: times in, times out.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
UNITS = (1, 2)
"""Rounds of the cycles that may set the pace: a rank with itself, and with its neighbour in turns.
"""
_MOST_SWEEPS = 64


class Hop(NamedTuple):
    """A message of an exchange, as time sees it."""

    line: int
    """From rank - line to rank."""
    latency_s: Floats
    """To each rank."""
    busy_s: float
    """On the wire."""


class Band(NamedTuple):
    """What rounds make of times: `weights[r, reach + k]` is what lies between rank r - k before
    them and rank r after them; -inf where nothing does.
    """

    reach: int
    weights: Floats

    def seen_along(self, k: int) -> "Band":
        """By who goes k ranks on with every round, if all ranks are alike."""
        n, reach = len(self.weights), self.reach + abs(k)
        weights = np.full((n, 2 * reach + 1), -np.inf)
        first = reach - self.reach - k
        weights[:, first : first + 2 * self.reach + 1] = self.weights
        return Band(reach, weights)

    def then(self, other: "Band") -> "Band":
        """These rounds, then `other`'s."""
        n, reach = len(self.weights), self.reach + other.reach
        weights = np.full((n, 2 * reach + 1), -np.inf)
        for k in range(2 * other.reach + 1):
            before = np.roll(self.weights, k - other.reach, axis=0)
            part = weights[:, k : k + 2 * self.reach + 1]
            np.maximum(part, before + other.weights[:, k, None], out=part)
        return Band(reach, weights)


def band(exchanges: Sequence[Sequence[Hop]], send_s: Floats, recv_s: Floats) -> Band | None:
    """One round: in each exchange a rank writes all messages, then reads all; `send_s` and `recv_s`
    are the CPU that one takes of each rank. None where an exchange may find the wire still busy
    with the one before.
    """
    n = len(send_s)
    whole = Band(0, np.zeros((n, 1)))
    for hops in exchanges:
        reach = max((abs(hop.line) for hop in hops), default=0)
        weights = np.full((n, 2 * reach + 1), -np.inf)
        weights[:, reach] = len(hops) * send_s
        left = np.zeros(n)
        for number, hop in enumerate(hops, start=1):
            left = np.maximum(left, number * send_s) + hop.busy_s
            part = weights[:, reach + hop.line]
            np.maximum(part, np.roll(left, hop.line) + hop.latency_s, out=part)
            weights += recv_s[:, None]
        if np.any(left > weights[:, reach] + send_s):
            return None
        whole = whole.then(Band(reach, weights))
    return whole


def after(round_band: Band, times: int, starts: Floats, same: float) -> tuple[int, Floats] | None:
    """The times after at most `times` rounds, and of how many: all but those that are less than a
    whole turn. None where it is not known. Weights that differ by `same` or less are the same.
    """
    reach, weights = round_band
    if np.all(np.max(weights, axis=0) <= np.min(weights, axis=0) + same):
        along = int(weights[0].argmax()) - reach  # so far a round
        found = _after(round_band.seen_along(along), times, starts, same)
        return None if found is None else (times, np.roll(found, along * times))
    turn = round_band
    for unit in UNITS:
        if unit > 1:
            turn = turn.then(round_band)
        found = _after(turn, times // unit, starts, same)
        if found is not None:
            return times // unit * unit, found
    return None


def _after(turn: Band, times: int, starts: Floats, same: float) -> Floats | None:
    own = turn.weights[:, turn.reach]
    pace = float(own.max())
    weights = turn.weights - pace
    upper, length = starts.copy(), np.zeros(len(starts), dtype=np.int64)
    if not _kernel()(upper, length, weights, turn.reach, same, _MOST_SWEEPS):
        return None  # a longer cycle is slower
    waits = own >= pace - same
    lower = np.where(waits, upper, -np.inf)
    if not _kernel()(lower, length, weights, turn.reach, same, _MOST_SWEEPS):
        return None
    if length.max() > times or not np.all(lower >= upper - same):
        return None
    return lower + times * pace


def _relax(
    times: Any, length: Any, weights: Any, reach: int, same: float, most_sweeps: int
) -> bool:
    """Longest ways of any length to each rank, for numba; False where they grow without end.
    `length` counts their turns.
    """
    n = len(times)
    for _ in range(most_sweeps):
        settled = True
        for number in range(2 * n):
            r = number if number < n else 2 * n - 1 - number
            for k in range(-reach, reach + 1):
                other = (r - k) % n
                time = times[other] + weights[r, reach + k]
                if time > times[r] + same:
                    times[r] = time
                    length[r] = length[other] + 1
                    settled = False
        if settled:
            return True
    return False


@lru_cache(maxsize=1)
def _kernel() -> Callable[..., bool]:
    import numba  # 64 to 100 MiB: for those alone who play rounds

    kernel: Callable[..., bool] = numba.njit(_relax, cache=True)
    return kernel
