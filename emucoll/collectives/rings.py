"""Ring AllGathers: one class with parameters.

In step s of n - 1, rank r sends block r - s to rank r + 1 and receives block r - s - 1 from rank r
- 1 (all mod n), as NCCL's bootstrap does up to 2.28.6. NCCL sends each block's size first and waits
for its neighbour's before the data follows: two dependent exchanges a step. The pipelined form is
ours: the same blocks in the same order without sizes, each byte forwarded as it comes. It moves a
cluster's worth of blocks through one machine, at the price of not exercising a cost per step.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from emucoll.collectives.schedule import Exchange, Line, Part, Traffic, Transfer

HEADER_BYTES = 4


@dataclass(frozen=True)
class Ring:
    """A unidirectional ring AllGather (see `emucoll.collectives.schedule.Schedule`)."""

    name: str
    text: str
    frames: Literal["sized", "bare"]
    flow: Literal["lockstep", "cut-through"]

    def rounds(self, n: int) -> int:
        """n - 1 steps."""
        return n - 1

    def exchanges(self, n: int, step: int) -> tuple[Exchange, ...]:
        """Size, then data; without sizes the data alone."""
        return _exchanges(self.frames, step)

    def traffic(self, n: int, rounds: int, block_bytes: int) -> Traffic:
        """A block a step, and its size where it is announced. A block of 0 bytes is no message."""
        header_bytes = HEADER_BYTES if self.frames == "sized" else 0
        messages = (header_bytes > 0) + (block_bytes > 0)
        return Traffic(rounds * messages, rounds * (header_bytes + block_bytes), rounds)


@lru_cache(maxsize=1024)  # all ranks of a worker ask for the same few steps at about the same time
def _exchanges(frames: str, step: int) -> tuple[Exchange, ...]:
    header = Transfer(Line.NEXT, Line.PREV, -step, -step - 1, Part.HEADER)
    data = Transfer(Line.NEXT, Line.PREV, -step, -step - 1)
    return ((header,), (data,)) if frames == "sized" else ((data,),)


RING = Ring(
    "ring",
    "NCCL's ring up to 2.28.6: n-1 steps in lockstep, each the 4-byte size, then the block",
    "sized",
    "lockstep",
)
RING_PIPELINED = Ring(
    "ring-pipelined",
    "ours, not NCCL's: the same blocks in the same order, bare, each byte forwarded as it comes",
    "bare",
    "cut-through",
)
