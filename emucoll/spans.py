"""When each rank was in which phase, and whom it waited for there: every span, one after another,
in arrays made beforehand.

A rank's phases in `trace.Trace` are sums; these are what the sums are of. Recording only.
"""

from array import array
from collections.abc import Iterable

NO_PEER, PEER_ROOT, PEER_STORE, PEER_ALL = -1, -2, -3, -4
"""Whom a rank waits for when it is not a rank: nobody, the root, the store, every rank."""
PEERS: dict[object, int] = {
    None: NO_PEER,
    "root": PEER_ROOT,
    "store": PEER_STORE,
    "all": PEER_ALL,
}
PER_RANK = 24
"""Spans that a rank is given room for; more are made room for as they come."""


def peer_number(peer: int | str | None) -> int:
    """A rank as it is, a server or nobody as one of the constants."""
    return peer if isinstance(peer, int) else PEERS[peer]


class SpanLog:
    """The spans of the ranks of one trace, in the order in which they ended. All arrays have the
    same length, of which the first `used` entries are spans.
    """

    __slots__ = ("begins", "ends", "peers", "phases", "slots", "used")

    def __init__(self, count: int) -> None:
        """Room for `count` ranks."""
        self.used = 0
        self.slots = array("i", bytes(4 * PER_RANK * count))
        self.phases = array("H", bytes(2 * PER_RANK * count))
        """Indices into the trace's names."""
        self.peers = array("i", bytes(4 * PER_RANK * count))
        self.begins = array("d", bytes(8 * PER_RANK * count))
        """By the trace's clock, as `ends`."""
        self.ends = array("d", bytes(8 * PER_RANK * count))

    def add(self, slot: int, phase: int, peer: int | str | None, begin: float, end: float) -> None:
        """One more."""
        at = self.used
        if at == len(self.slots):
            for each in self._arrays():
                each.frombytes(bytes(each.itemsize * (at // 2 + 1)))
        self.slots[at] = slot
        self.phases[at] = phase
        self.peers[at] = peer if isinstance(peer, int) else PEERS[peer]
        self.begins[at] = begin
        self.ends[at] = end
        self.used = at + 1

    def packed(self) -> dict[str, bytes]:
        """By the arrays' names, as they lie in memory."""
        names = ("slots", "phases", "peers", "begins", "ends")
        return {
            name: memoryview(each)[: self.used].tobytes()
            for name, each in zip(names, self._arrays(), strict=True)
        }

    def _arrays(self) -> Iterable["array[int] | array[float]"]:
        return (self.slots, self.phases, self.peers, self.begins, self.ends)
