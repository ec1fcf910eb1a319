"""Bruck's AllGather (dissemination): ceil(log2 n) rounds for any n, at a connection for each.

In round k, rank r sends the 2^k blocks r ... r + 2^k - 1 that it has to rank r - 2^k and receives
as many from rank r + 2^k, blocks r + 2^k onwards (all mod n); the last round sends the n - 2^k that
are still missing. A ring's two connections do not reach these peers: their addresses have to be
gathered first, and each message takes a connection of its own, as NCCL's point to point does.
Source: Bruck et al., "Efficient Algorithms for All-to-All Communications in Multiport Message-
Passing Systems", 1997.
"""

from dataclasses import dataclass
from typing import Literal

from emucoll.collectives.schedule import Exchange, Line, Traffic, Transfer


@dataclass(frozen=True)
class Bruck:
    """Bruck's AllGather (see `emucoll.collectives.schedule.Schedule`)."""

    name: str = "bruck"
    text: str = (
        "Bruck's dissemination: ceil(log2 n) rounds of 1, 2, 4 ... blocks, a connection each; the "
        "peers' addresses come by a ring AllGather first"
    )
    frames: Literal["sized", "bare"] = "bare"
    flow: Literal["lockstep", "cut-through"] = "lockstep"

    @property
    def lanes(self) -> int:
        """One loop."""
        return 1

    def rounds(self, n: int) -> int:
        """ceil(log2 n)."""
        return (n - 1).bit_length()

    def peers(self, n: int) -> tuple[Line, ...]:
        """Ranks r - 1, r - 2, r - 4 ..."""
        return tuple(-(1 << k) for k in range(self.rounds(n)))

    def reach(self, n: int, rounds: int) -> tuple[int, int]:
        """Blocks above the rank's own only."""
        return 0, min(n, 1 << rounds) - 1

    def exchanges(self, n: int, step: int) -> tuple[Exchange, ...]:
        """One transfer of as many blocks as the rank has, or as are missing."""
        distance = 1 << step
        blocks = min(distance, n - distance)
        return ((Transfer(-distance, 0, distance, blocks=blocks),),)

    def traffic(self, n: int, rounds: int, block_bytes: int) -> Traffic:
        """A message a round; what opens its connection is not counted here."""
        blocks = min(n, 1 << rounds) - 1
        return Traffic(rounds if block_bytes else 0, blocks * block_bytes, blocks)


BRUCK = Bruck()
