"""What goes wrong between hosts of a modelled network, as rules that add up: delay, loss, and cuts.

TCP makes loss a delay: what is lost is sent again after 200 ms, then after twice as long each time
(Linux: TCP_RTO_MIN, tcp_retries2 15). What a cut without an end keeps back never comes, and nobody
is told: that is what a host without power looks like.

Pure: times and draws are arguments.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

RTO_S, RTO_MAX_S, RETRIES = 0.2, 120.0, 15
"""First timeout of a retransmission, the largest, and how many there are."""


@dataclass(frozen=True)
class Link:
    """Between any host of one set and any of the other, both ways. What it does adds to what other
    rules do.
    """

    hosts: range
    others: range
    delay_s: float = 0.0
    loss: float = 0.0
    """Of messages, 0 to 1."""
    cut_from_s: float | None = None
    """From then on nothing passes,"""
    cut_to_s: float | None = None
    """until then; None: for ever."""

    def joins(self, host: int, other: int) -> bool:
        """Does it lie between the two?"""
        return (host in self.hosts and other in self.others) or (
            host in self.others and other in self.hosts
        )

    def is_cut(self, at_s: float) -> bool:
        """Does nothing pass then?"""
        if self.cut_from_s is None or at_s < self.cut_from_s:
            return False
        return self.cut_to_s is None or at_s < self.cut_to_s


class Links:
    """All rules of one world."""

    def __init__(self, rules: Sequence[Link], draw: Callable[[], float]) -> None:
        """`draw`: a number from 0 to 1, for losses."""
        self._rules = rules
        self._draw = draw
        self._between: dict[tuple[int, int], tuple[Link, ...]] = {}

    def passes(self, host: int, other: int, at_s: float) -> bool:
        """Does one packet that is sent then come through? Delays are none of its business."""
        return all(
            not link.is_cut(at_s) and not (link.loss and self._draw() < link.loss)
            for link in self._of(host, other)
        )

    def delay_s(self, host: int, other: int) -> float:
        """What a packet takes beyond its latency."""
        return sum(link.delay_s for link in self._of(host, other))

    def late_s(self, host: int, other: int, at_s: float) -> float | None:
        """How much later than usual arrives what is sent then, with all that TCP sends again; None:
        never.
        """
        if not self._of(host, other):
            return 0.0
        again_s, waited_s = RTO_S, 0.0
        for _ in range(RETRIES + 1):
            if self.passes(host, other, at_s + waited_s):
                return waited_s + self.delay_s(host, other)
            waited_s += again_s
            again_s = min(2 * again_s, RTO_MAX_S)
        return None

    def _of(self, host: int, other: int) -> tuple[Link, ...]:
        links = self._between.get((host, other))
        if links is None:
            links = tuple(rule for rule in self._rules if rule.joins(host, other))
            self._between[host, other] = links
        return links
