"""The schedule of a collective: who sends which blocks to whom, and what must wait for what.

A collective of n ranks is a sequence of rounds; a round is a sequence of exchanges; the transfers
of one exchange run concurrently, the next exchange waits for them. The formulas take one rank (an
int) or all ranks at once (a numpy array), so that the same text drives channels and vectorised
rounds. Knows nothing of sockets, clocks or event loops.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Ranks = TypeVar("Ranks", int, npt.NDArray[np.int64])
"""One rank, or an array of them."""


class Part(Enum):
    """What of a block a transfer carries."""

    HEADER = "header"
    """Its size, a 4-byte little-endian integer."""
    DATA = "data"


class Line(Enum):
    """The connections that a formed ring gives every rank."""

    NEXT = 1
    """To rank + 1 (mod n)."""
    PREV = -1
    """To rank - 1 (mod n)."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """One block, or its header, sent by every rank and received by every rank.

    A rank sends block `(rank + sends) mod n` on line `to` and receives block `(rank + receives) mod
    n` from line `source`.
    """

    to: Line
    source: Line
    sends: int
    receives: int
    part: Part = Part.DATA

    def sent_block(self, rank: Ranks, n: int) -> Ranks:
        """Which block `rank` sends."""
        return (rank + self.sends) % n

    def received_block(self, rank: Ranks, n: int) -> Ranks:
        """Which block `rank` receives."""
        return (rank + self.receives) % n


Exchange = tuple[Transfer, ...]


class Traffic(NamedTuple):
    """What one rank sends in the first `rounds` rounds."""

    messages: int
    sent_bytes: int
    blocks: int


class Schedule(Protocol):
    """An AllGather of one block per rank."""

    @property
    def name(self) -> str:
        """What the command line calls it."""

    @property
    def text(self) -> str:
        """One line for `emucoll allgathers`."""

    @property
    def frames(self) -> Literal["sized", "bare"]:
        """Is each block announced by its size?"""

    @property
    def flow(self) -> Literal["lockstep", "cut-through"]:
        """Does a rank forward a block when it has all of it (lockstep), or each byte as it comes
        (cut-through)?
        """

    def rounds(self, n: int) -> int:
        """Rounds of a whole collective of `n` ranks."""

    def exchanges(self, n: int, step: int) -> tuple[Exchange, ...]:
        """The exchanges of round `step`, 0 ... rounds(n) - 1."""

    def traffic(self, n: int, rounds: int, block_bytes: int) -> Traffic:
        """What each rank sends in the first `rounds` rounds."""
