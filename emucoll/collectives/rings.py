"""Ring AllGathers: one class with parameters.

One way: in step s of n - 1, rank r sends block r - s to rank r + 1 and receives block r - s - 1
from rank r - 1 (all mod n), as NCCL's bootstrap does up to 2.28.6. Both ways: in step s of floor(n
/ 2) it also sends block r + s to rank r - 1 and receives block r + s + 1 from rank r + 1, over the
same two connections; with n even, the last step is forward only. NCCL announces each block by its
size, and waits for its neighbour's, before the data follows: two dependent exchanges a step one
way, three both ways (2.28.7 and later). Without sizes the two directions are loops of their own
(Meta's proposal, nccl #1791).

The pipelined form is ours: the one-way blocks in the same order without sizes, each byte forwarded
as it comes. It moves a cluster's worth of blocks through one machine, at the price of not
exercising a cost per step.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from emucoll.collectives.schedule import NEXT, PREV, Exchange, Line, Part, Traffic, Transfer

HEADER_BYTES = 4


@dataclass(frozen=True)
class Ring:
    """A ring AllGather (see `emucoll.collectives.schedule.Schedule`)."""

    name: str
    text: str
    frames: Literal["sized", "bare"]
    flow: Literal["lockstep", "cut-through"]
    both_ways: bool = False

    @property
    def lanes(self) -> int:
        """A loop per direction where nothing ties them together."""
        return 2 if self.both_ways and self.frames == "bare" else 1

    def rounds(self, n: int) -> int:
        """n - 1 steps, or half of them both ways."""
        return n // 2 if self.both_ways else n - 1

    def peers(self, n: int) -> tuple[Line, ...]:
        """The ring is enough."""
        return ()

    def reach(self, n: int, rounds: int) -> tuple[int, int]:
        """A block further with every step, in each direction."""
        return rounds, self._backward(n, rounds)

    def exchanges(self, n: int, step: int) -> tuple[Exchange, ...]:
        """Sizes, one direction after the other, then the data of both; or the data alone."""
        return _exchanges(self.frames, step, self._backward(n, step + 1) > step)

    def traffic(self, n: int, rounds: int, block_bytes: int) -> Traffic:
        """A block a step and direction, and its size where it is announced. A block of 0 bytes is
        no message.
        """
        blocks = rounds + self._backward(n, rounds)
        header_bytes = HEADER_BYTES if self.frames == "sized" else 0
        messages = (header_bytes > 0) + (block_bytes > 0)
        return Traffic(blocks * messages, blocks * (header_bytes + block_bytes), blocks)

    def _backward(self, n: int, rounds: int) -> int:
        """Steps of the first `rounds` that go backward too."""
        return min(rounds, (n - 1) // 2) if self.both_ways else 0


@lru_cache(maxsize=1024)  # all ranks of a worker ask for the same few steps at about the same time
def _exchanges(frames: str, step: int, backward: bool) -> tuple[Exchange, ...]:
    data = [Transfer(NEXT, -step, -step - 1)]
    if backward:
        data.append(Transfer(PREV, step, step + 1, lane=int(frames == "bare")))
    if frames == "bare":
        return (tuple(data),)
    headers = tuple((Transfer(each.to, each.sends, each.receives, Part.HEADER),) for each in data)
    return (*headers, tuple(data))


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
RING_BIDIR = Ring(
    "ring-bidir",
    "NCCL's ring from 2.28.7 on: both ways, floor(n/2) steps of three dependent exchanges: size "
    "forward, size backward, the blocks",
    "sized",
    "lockstep",
    both_ways=True,
)
RING_BIDIR_HEADERLESS = Ring(
    "ring-bidir-headerless",
    "Meta's proposal (nccl #1791): both ways without sizes, each direction a loop of its own",
    "bare",
    "lockstep",
    both_ways=True,
)
