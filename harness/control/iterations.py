"""A process that times the loops of plans: `python -m harness.control.iterations NRANKS`.

It prints the seconds that one innermost iteration of each takes, by name, for one rank of so many.
"""

import sys

from emucoll.plans.local import (
    NODE_NUMBERING,
    RING_CHECK_BITMAP,
    RING_CHECK_NESTED,
    Extent,
    LocalWork,
    duplicate_gpu,
    same_process,
)
from harness.control.helper import begin, tell
from harness.control.sample import one_rank_s

PEER_INFO_BYTES = 144
"""Of a record that the loops over pairs walk, in NCCL 2.30.7."""
RANKS_PER_HOST = 8
LOOPS: dict[str, LocalWork] = {
    "ring_check": RING_CHECK_NESTED,
    "ring_check_bitmap": RING_CHECK_BITMAP,
    "same_process": same_process(PEER_INFO_BYTES),
    "duplicate_gpu": duplicate_gpu(PEER_INFO_BYTES),
    "node_numbering": NODE_NUMBERING,
}


def iteration_s(work: LocalWork, extent: Extent) -> float:
    """Of its innermost loops."""
    return one_rank_s(work, extent) / (work.iterations(extent) * work.calls(extent))


if __name__ == "__main__":
    begin()
    EXTENT = Extent(int(sys.argv[1]), RANKS_PER_HOST, 1)
    tell({name: iteration_s(work, EXTENT) for name, work in LOOPS.items()})
