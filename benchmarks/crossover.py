"""Where a bidirectional ring is faster than a unidirectional one, and what moves that: `python -m
benchmarks.crossover [CLUSTER]`. Simulated: rounds in virtual time, no rank is run.

Rows are the cost of sharing a socket (what each write and read takes longer where both directions
are in use); columns are ranks. A figure is the time of the bidirectional AllGather over that of the
unidirectional one: below 1 it gains.
"""

import sys
from dataclasses import dataclass, replace

import numpy as np

from emucoll.collectives import ALLGATHERS
from emucoll.collectives.rings import Ring
from emucoll.collectives.schedule import NEXT, PREV, Exchange, Schedule, Transfer
from emucoll.sim.cost import Costs
from emucoll.sim.rounds import play, wires
from harness.clusters import find_cluster, in_order

RECORD_BYTES = 120
SIZES = (2, 3, 4, 6, 8, 9, 16, 64, 384, 4096)
CONTENTIONS_US = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0)


@dataclass(frozen=True)
class Overlapped(Ring):
    """A ring whose sizes travel with the blocks: one exchange a step, in one loop."""

    @property
    def lanes(self) -> int:
        """One, both ways too."""
        return 1

    def exchanges(self, n: int, step: int) -> tuple[Exchange, ...]:
        """The data of both directions at once."""
        forward = Transfer(NEXT, -step, -step - 1)
        if self._backward(n, step + 1) <= step:
            return ((forward,),)
        return ((forward, Transfer(PREV, step, step + 1)),)


PAIRS: dict[str, tuple[Schedule, Schedule]] = {
    "sizes first (NCCL)": (ALLGATHERS["ring-bidir"], ALLGATHERS["ring"]),
    "sizes with the blocks": (
        Overlapped("both", "", "bare", "lockstep", both_ways=True),
        Overlapped("one", "", "bare", "lockstep"),
    ),
}


def ratio(pair: str, n: int, costs: Costs, ranks_per_host: int) -> float:
    """Time of the bidirectional AllGather of `n` ranks over that of the unidirectional one."""
    wiring = wires(in_order(n, ranks_per_host), costs)
    both, one = (
        play(schedule, schedule.rounds(n), RECORD_BYTES, np.zeros(n), costs, wiring).finish.max()
        for schedule in PAIRS[pair]
    )
    return float(both / one)


def break_even_us(pair: str, n: int, costs: Costs, ranks_per_host: int) -> float | None:
    """The cost of sharing a socket at which both take as long, in µs; None: without any it already
    loses.
    """
    low, high = 0.0, 1000.0
    if ratio(pair, n, costs, ranks_per_host) >= 1:
        return None
    while high - low > 0.01:
        middle = (low + high) / 2
        shared = replace(costs, contention_s=middle * 1e-6)
        if ratio(pair, n, shared, ranks_per_host) < 1:
            low = middle
        else:
            high = middle
    return low


def main() -> None:
    """Print the tables of a cluster, as it is and with one latency everywhere."""
    name = sys.argv[1] if len(sys.argv) > 1 else "h100-roce-98k"
    cluster = find_cluster(name, 1)
    costs = cluster.costs()
    flat = replace(costs, intra_host_latency_s=None, intra_rack_latency_s=None)
    for where, these in (("ranks by host", costs), ("one latency everywhere", flat)):
        for pair in PAIRS:
            print(f"# {name}, {where}, {pair}: bidirectional / unidirectional, simulated")
            print("  sharing (us)" + "".join(f"{n:>7}" for n in SIZES))
            for contention_us in CONTENTIONS_US:
                shared = replace(these, contention_s=contention_us * 1e-6)
                row = (ratio(pair, n, shared, cluster.gpus_per_host) for n in SIZES)
                print(f"{contention_us:>14g}" + "".join(f"{each:>7.2f}" for each in row))
            even = (break_even_us(pair, n, these, cluster.gpus_per_host) for n in SIZES)
            row_of = ("     -" if each is None else f"{each:6.1f}" for each in even)
            print("  even at (us)" + "".join(f" {each}" for each in row_of))


if __name__ == "__main__":
    main()
