"""How often NCCL tries to connect, by version: pauses alone, for whoever connects to take.

Must not know who connects to whom, nor any clock.
"""

import errno
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import TypeAlias

Backoff: TypeAlias = dict[int, Iterator[float]]
"""By errno the seconds to wait before each further try. What isn't there, or has run out, is fatal.
For one connection: it is used up.
"""

RETRIED = (errno.EINTR, errno.EAGAIN, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ECONNREFUSED)
"""What NCCL retries since 2.24."""


def alike(pauses: Iterable[float]) -> Backoff:
    """The same pauses whatever of `RETRIED` it was, all of them counted together."""
    return dict.fromkeys(RETRIED, iter(pauses))


def nccl_backoff() -> Backoff:
    """NCCL 2.24 and later: k x 100 ms before the k-th of 34 further tries, 59.5 s in all."""
    return alike(0.1 * k for k in range(1, 35))


def nccl_backoff_2_23() -> Backoff:
    """NCCL 2.23 and before: 1 ms before each further try; the 20,000th refusal or the third timeout
    is fatal, and so is all else at once.
    """
    return {errno.ECONNREFUSED: repeat(0.001, 19_999), errno.ETIMEDOUT: repeat(0.001, 2)}


def pause_s(backoff: Backoff, code: int) -> float | None:
    """Seconds to wait before the next try, after `code`; None if there is to be none."""
    pauses = backoff.get(code)
    return None if pauses is None else next(pauses, None)
