"""The schedule of a collective: who sends which blocks to whom, and what must wait for what.

A collective of n ranks is a sequence of rounds; a round is a sequence of exchanges; the transfers
of one exchange run concurrently, the next exchange waits for them. The formulas take one rank (an
int) or all ranks at once (a numpy array), so that the same text drives channels and vectorised
rounds. Knows nothing of sockets, clocks or event loops.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Literal, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

Ranks = TypeVar("Ranks", int, npt.NDArray[np.int64])
"""One rank, or an array of them."""


class Part(Enum):
    """What of a block a transfer carries."""

    HEADER = "header"
    """Its size, a 4-byte little-endian integer."""
    DATA = "data"


Line: TypeAlias = int
"""A connection of a rank, named by whom it leads to: rank + line (mod n)."""
NEXT: Line = 1
PREV: Line = -1
"""The two that a formed ring gives every rank; each carries bytes both ways."""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Blocks, or the header of one, sent by every rank and received by every rank.

    A rank sends blocks `(rank + sends + i) mod n`, i = 0 ... `blocks` - 1, on line `to`, and
    receives blocks `(rank + receives + i) mod n` from line `source`.
    """

    to: Line
    sends: int
    receives: int
    part: Part = Part.DATA
    blocks: int = 1
    lane: int = 0
    """Transfers of different lanes do not wait for each other: each lane goes through the rounds at
    its own pace.
    """
    source: Line = field(init=False)
    """-`to`: if all ranks send to rank + to, each receives from rank - to."""

    def __post_init__(self) -> None:
        """Find the source."""
        object.__setattr__(self, "source", -self.to)

    def sent_block(self, rank: Ranks, n: int) -> Ranks:
        """The first block that `rank` sends."""
        return (rank + self.sends) % n

    def received_block(self, rank: Ranks, n: int) -> Ranks:
        """The first block that `rank` receives."""
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

    @property
    def lanes(self) -> int:
        """How many loops run side by side, each through all rounds."""

    def rounds(self, n: int) -> int:
        """Rounds of a whole collective of `n` ranks."""

    def peers(self, n: int) -> tuple[Line, ...]:
        """Lines beyond the ring's two that it sends on, a new connection for each: empty for rings.
        Their addresses have to be gathered before.
        """

    def reach(self, n: int, rounds: int) -> tuple[int, int]:
        """How far below and above a rank lie the blocks that the first `rounds` rounds bring it."""

    def exchanges(self, n: int, step: int) -> tuple[Exchange, ...]:
        """The exchanges of round `step`, 0 ... rounds(n) - 1."""

    def traffic(self, n: int, rounds: int, block_bytes: int) -> Traffic:
        """What each rank sends in the first `rounds` rounds."""


def rounds_run(schedule: Schedule, n: int, steps: int | None) -> int:
    """How many of its rounds are run where only the first `steps` are wanted; None: all."""
    rounds = schedule.rounds(n)
    return rounds if steps is None else min(steps, rounds)


def both_ways(schedule: Schedule, n: int, rounds: int) -> bool:
    """Do the first `rounds` rounds use both directions of the ring's two connections?"""
    return not schedule.peers(n) and min(schedule.reach(n, rounds)) > 0
