"""Local work between an initialization's AllGathers: loops over all ranks that every rank runs by
itself. Declared once, as code and cost.

The code is compiled (numba) and run on data of the sizes and strides that NCCL's own has, or, where
all ranks' loops would take the machine too long, a few are timed and all are charged: who decides
is the harness. Virtual time charges `iterations`. Pure but for the compiler; knows no clock.

Source: NCCL 2.22.3 to 2.30.7, src/init.cc (initTransportsRank) and src/graph/rings.cc
(ncclBuildRings).
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from emucoll.errors import UsageError

Data = tuple[npt.NDArray[Any], ...]


class Extent(NamedTuple):
    """What the length of a rank's loops depends on."""

    nranks: int
    ranks_per_host: int
    channels: int

    @property
    def hosts(self) -> int:
        """Emulated ones; the last may have fewer ranks."""
        return -(-self.nranks // self.ranks_per_host)


@dataclass(frozen=True)
class LocalWork:
    """A loop that every rank runs."""

    name: str
    text: str
    """What it does, in a line."""
    iterations: Callable[[Extent], int]
    """Of its innermost loops, in one call: its cost."""
    data: Callable[[Extent], Data]
    """What it works on, scratch space included: the same for all ranks."""
    code: Callable[..., int]
    """Called with the data's arrays and the rank; anything but 0 is a fault that it found. In the
    subset of Python that numba compiles.
    """
    per_channel: bool = False
    """Is it called once for every channel?"""

    def calls(self, extent: Extent) -> int:
        """How often each rank calls it."""
        return extent.channels if self.per_channel else 1

    def run(self, data: Data, rank: int, extent: Extent) -> None:
        """All of one rank's calls, compiled. Raises ValueError for a fault that they found."""
        function = _jitted(self.code)
        for _ in range(self.calls(extent)):
            if fault := function(*data, rank):
                raise ValueError(f"local work {self.name} of rank {rank} found fault {fault}")


def compiled(work: LocalWork) -> Callable[..., int]:
    """Its code as machine code. Raises UsageError where numba does not take it."""
    import numba  # 64 to 100 MiB: for those alone who run loops

    function = _jitted(work.code)
    try:
        function(*work.data(Extent(2, 1, 1)), 0)  # what compiles it, for data of these types
    except numba.core.errors.NumbaError as error:
        raise UsageError(f"local work {work.name}: numba cannot compile it: {error}") from error
    except Exception as error:
        raise UsageError(
            f"local work {work.name}: it failed for 2 ranks: {type(error).__name__}: {error}"
        ) from error
    return function


@lru_cache
def _jitted(code: Callable[..., int]) -> Callable[..., int]:
    import numba

    ours = code.__module__ == __name__
    try:
        function: Callable[..., int] = numba.njit(code, cache=ours)  # half a second saved
    except RuntimeError:  # no place to keep it: a read-only installation without a home
        function = numba.njit(code)
    return function


# -- NCCL's loops


def _successors(extent: Extent) -> Data:
    n = extent.nranks
    return np.roll(np.arange(n, dtype=np.int32), -1), np.zeros(n, dtype=np.int32)


def _ring_check_nested(successor: Any, ring: Any, rank: int) -> int:
    n = len(successor)
    current = rank
    for i in range(n):
        ring[i] = current
        current = successor[current]
    if current != rank:
        return 1
    for i in range(n):
        found = False
        for j in range(n):
            if ring[j] == i:
                found = True
                break
        if not found:
            return 2
    return 0


RING_CHECK_NESTED = LocalWork(
    name="ring_check",
    text="walks the ring and looks for each rank in it: n²/2 a channel (to 2.28.6)",
    iterations=lambda extent: extent.nranks * (extent.nranks + 1) // 2 + extent.nranks,
    data=_successors,
    code=_ring_check_nested,
    per_channel=True,
)


def _ring_check_bitmap(successor: Any, ring: Any, words: Any, rank: int) -> int:
    n = len(successor)
    words[:] = 0
    current = rank
    for i in range(n):
        words[current >> 6] |= np.uint64(1) << np.uint64(current & 63)
        ring[i] = current
        current = successor[current]
    if current != rank:
        return 1
    i = 0
    while i < n:
        bits = words[i >> 6]
        if i & 63 == 0 and bits == np.uint64(0xFFFFFFFFFFFFFFFF):
            i += 64
            continue
        if bits & (np.uint64(1) << np.uint64(i & 63)) == 0:
            return 2
        i += 1
    return 0


RING_CHECK_BITMAP = LocalWork(
    name="ring_check",
    text="walks the ring and marks each rank in a bitmap: n a channel (2.28.7 on)",
    iterations=lambda extent: extent.nranks + extent.nranks // 64 + extent.nranks % 64,
    data=lambda extent: (
        *_successors(extent),
        np.zeros(-(-extent.nranks // 64), dtype=np.uint64),
    ),
    code=_ring_check_bitmap,
    per_channel=True,
)

_HOST, _PID, _UUID, _DEVICE = 0, 1, 2, 4
"""Words of a peer info record that the loops read; the UUID has two."""


def _peer_infos(record_bytes: int) -> Callable[[Extent], Data]:
    """Records as they lie in a rank's memory, one after another: their stride is what the loops
    over pairs walk.
    """

    def data(extent: Extent) -> Data:
        ranks = np.arange(extent.nranks, dtype=np.uint64)
        peers = np.zeros((extent.nranks, record_bytes // 8), dtype=np.uint64)
        golden = np.uint64(0x9E3779B97F4A7C15)
        peers[:, _HOST] = (ranks // np.uint64(extent.ranks_per_host) + np.uint64(1)) * golden
        peers[:, _PID] = (ranks + np.uint64(1)) * golden
        peers[:, _UUID] = peers[:, _UUID + 1] = ranks
        peers[:, _DEVICE] = ranks % np.uint64(extent.ranks_per_host)
        return (peers,)

    return data


def _same_process(peers: Any, rank: int) -> int:
    n = len(peers)
    here = 0
    for i in range(n):
        if peers[i, 0] == peers[rank, 0] and peers[i, 1] == peers[rank, 1]:
            here += 1
        for j in range(i + 1, n):
            if peers[i, 0] == peers[j, 0] and peers[i, 1] == peers[j, 1]:
                return 1
    return here - 1


def same_process(record_bytes: int) -> LocalWork:
    """The loop over pairs with which NCCL finds ranks that share a process: it ends early where
    there are some, and runs in full in the usual job of one process a GPU.
    """
    return LocalWork(
        name="same_process",
        text="compares every pair of peers for a shared process: n²/2",
        iterations=lambda extent: extent.nranks * (extent.nranks - 1) // 2 + extent.nranks,
        data=_peer_infos(record_bytes),
        code=_same_process,
    )


def _duplicate_gpu(peers: Any, rank: int) -> int:
    n = len(peers)
    several = False
    for i in range(n):
        for j in range(i):
            same_host = peers[i, 0] == peers[j, 0]
            several = same_host and peers[i, 4] == peers[j, 4]
            if same_host and peers[i, 2] == peers[j, 2] and peers[i, 3] == peers[j, 3]:
                return 1
    return int(several)


def duplicate_gpu(record_bytes: int) -> LocalWork:
    """The loop over pairs with which 2.30.7 finds ranks that share a GPU."""
    return LocalWork(
        name="duplicate_gpu",
        text="compares every pair of peers for a shared GPU: n²/2",
        iterations=lambda extent: extent.nranks * (extent.nranks - 1) // 2,
        data=_peer_infos(record_bytes),
        code=_duplicate_gpu,
    )


def _first_ranks(extent: Extent) -> Data:
    ranks = np.arange(extent.nranks, dtype=np.int32)
    first = ranks - ranks % extent.ranks_per_host
    return first, np.zeros(extent.hosts, dtype=np.int32), np.zeros(extent.nranks, dtype=np.int32)


def _node_numbering(first_ranks: Any, nodes: Any, node_of: Any, rank: int) -> int:
    count = 0
    for r in range(len(first_ranks)):
        first = first_ranks[r]
        node = 0
        while node < count and nodes[node] != first:
            node += 1
        if node == count:
            nodes[node] = first
            count += 1
        node_of[r] = node
    return len(nodes) - count


def _node_numbering_iterations(extent: Extent) -> int:
    """The r-th rank of host h compares h + 1 times, the first h times."""
    n, size, hosts = extent.nranks, extent.ranks_per_host, extent.hosts
    last = n - (hosts - 1) * size
    return size * (hosts - 1) * hosts // 2 + last * hosts - hosts


NODE_NUMBERING = LocalWork(
    name="node_numbering",
    text="looks each rank's node up in the list of nodes: n × nodes / 2",
    iterations=_node_numbering_iterations,
    data=_first_ranks,
    code=_node_numbering,
)


def _split_sort(colors: Any, ranks: Any, rank: int) -> int:
    color, count = colors[rank, 0], 0
    if color < 0:
        return 0
    for i in range(len(colors)):
        if colors[i, 0] != color:
            continue
        insert = 0
        while insert < count and colors[ranks[insert], 1] <= colors[i, 1]:
            insert += 1
        for r in range(count, insert, -1):
            ranks[r] = ranks[r - 1]
        ranks[insert] = i
        count += 1
    return 0 if ranks[colors[rank, 1]] == rank else 1


def split_sort(colors: npt.NDArray[np.int32], size: int) -> LocalWork:
    """How a rank finds its group among all ranks' (color, key), shape (nranks, 2), in a split: an
    insertion sort. `size`: of a group, where keys come in ascending order.
    """
    return LocalWork(
        name="split_sort",
        text="insertion sort of a group's ranks among all: n + size²/2",
        iterations=lambda _: len(colors) + size * (size - 1) // 2,
        data=lambda _: (colors, np.zeros(len(colors), dtype=np.int64)),
        code=_split_sort,
    )
