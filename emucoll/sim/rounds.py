"""An AllGather round by round, all ranks at once: the schedule's own formulas, on arrays.

For numbers of transfers that no event loop can play: a ring of 98,304 has 9.66 × 10⁹. The costs and
their order are those of `emucoll.sim.network` under `emucoll.collectives.driver`: in an exchange a
rank writes, then reads, each of which takes its CPU; when it has read all, the next begins. Where
nothing is noisy the times are the same.

Lanes are played as if the rank had a CPU for each: loops that share one are too intricate for
rounds. Connections to peers (bruck) are not played here. Pure: times in, times out.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from emucoll.collectives.rings import HEADER_BYTES
from emucoll.collectives.schedule import NEXT, Exchange, Line, Part, Schedule, both_ways
from emucoll.errors import UsageError
from emucoll.sim.cost import Costs
from emucoll.sim.steady import Band, Hop, after, band

_SAME = 1e-14
"""Of the time: what differs by less differs by rounding."""
_AT_ONCE = 64
"""Rounds that are played before it is asked where the others lead; then twice as many, and so on.
"""
Times: TypeAlias = npt.NDArray[np.float64]
"""Seconds, one of each rank."""


@dataclass(frozen=True)
class Noise:
    """What a message takes beyond its cost: read from a pool that is drawn once, by each message of
    all ranks from another place.
    """

    pool: Times
    """Seconds, none below 0; twice as many as ranks, at least."""
    places: Callable[[int, int], npt.NDArray[np.int64]]
    """`places(below, count)` draws so many whole numbers below `below`."""

    def starts(self, n: int, count: int) -> npt.NDArray[np.int64]:
        """Where each of `count` messages of `n` ranks begins to read. Raises UsageError where the
        pool is too small for that.
        """
        spare = len(self.pool) - n
        if spare < n:
            raise UsageError(f"a pool of {len(self.pool)} draws is too small for {n} ranks")
        return self.places(spare + 1, count)


class Played(NamedTuple):
    """One AllGather."""

    finish: Times
    """When each rank was through."""
    messages: int
    bytes: int


Wiring: TypeAlias = Callable[[Line], Times]
"""Latencies between the ranks of a communicator: to each from the one that sends to it on that
line, which is rank - line.
"""


def wires(hosts: npt.NDArray[np.int64], costs: Costs) -> Wiring:
    """Of ranks that are on these hosts."""

    @lru_cache(maxsize=64)
    def latency(line: Line) -> Times:
        before = np.roll(hosts, line)
        between = np.full(len(hosts), costs.latency_s)
        if costs.intra_rack_latency_s is not None:
            racks = hosts // costs.hosts_per_rack == before // costs.hosts_per_rack
            between[racks] = costs.intra_rack_latency_s
        if costs.intra_host_latency_s is not None:
            between[hosts == before] = costs.intra_host_latency_s
        return between

    return latency


def play(
    schedule: Schedule,
    rounds: int,
    record_bytes: int,
    starts: Times,
    costs: Costs,
    wiring: Wiring,
    noise: Noise | None = None,
    slow: Mapping[int, float] | None = None,
) -> Played:
    """The first `rounds` of `schedule`, with records of `record_bytes`, for ranks that reach it
    at `starts`. The CPU of a rank in `slow` takes so many times as long. A schedule that is cut
    through is played as if a rank read every block by itself, as it would where latency decides.
    Raises UsageError for one that connects to peers.
    """
    n = len(starts)
    if schedule.peers(n):
        raise UsageError(f"{schedule.name} is not played in rounds: it connects to peers")
    if costs.contention_s and both_ways(schedule, n, rounds):
        costs = replace(
            costs,
            send_s=costs.send_s + costs.contention_s,
            recv_s=costs.recv_s + costs.contention_s,
        )
    since = float(starts.min())  # small numbers, whose rounding is small
    finish, messages, sent_bytes = starts - since, 0, 0
    for lane in range(schedule.lanes):
        cpu, wire = starts - since, np.zeros(n)
        for shape, times in _shapes(schedule, n, rounds, record_bytes, lane):
            messages += times * len(shape.lines)
            sent_bytes += times * sum(shape.sizes)
            shape.play(times, cpu, wire, costs, wiring, noise, slow or {})
        finish = np.maximum(finish, cpu)
    return Played(finish + since, n * messages, n * sent_bytes)


@dataclass(frozen=True)
class _Shape:
    """What a round asks of every rank's time: in each exchange, messages on lines."""

    exchanges: tuple[int, ...]
    """How many messages each has."""
    lines: tuple[Line, ...]
    """Of all their messages, one after another."""
    sizes: tuple[int, ...]
    """Bytes of each."""

    def play(
        self,
        times: int,
        cpu: Times,
        wire: Times,
        costs: Costs,
        wiring: Wiring,
        noise: Noise | None,
        slow: Mapping[int, float],
    ) -> None:
        """So many rounds of it; `cpu` and `wire` go on.

        Without noise most rounds need not be played (see `emucoll.sim.steady`): the first ones
        are, until it is known where the others lead.
        """
        n, count = len(cpu), len(self.lines)
        if not count:
            return
        if noise is not None:
            places = noise.starts(n, times * count).reshape(times, count)
            self._play(cpu, wire, costs, wiring, noise.pool, places, slow)
            return
        if self._one_way(costs) and not slow:
            self._travel(times, cpu, costs, wiring)
            return
        nothing, now = np.zeros(n), _AT_ONCE
        one = self._band(n, costs, wiring, slow) if times > now else None
        while times:
            now = min(times, now)
            places = np.zeros((now, count), dtype=np.int64)
            self._play(cpu, wire, costs, wiring, nothing, places, slow)
            times -= now
            now *= 2
            found = after(one, times, cpu, _SAME * float(cpu.max())) if one and times else None
            if found is not None:
                played, cpu[:] = found
                wire[:] = cpu  # free again before the next message
                times -= played

    def _band(self, n: int, costs: Costs, wiring: Wiring, slow: Mapping[int, float]) -> Band | None:
        """One round of it, if it is known."""
        slower = np.ones(n)
        for rank, factor in slow.items():
            slower[rank] = factor
        hops = [
            Hop(line, wiring(line), costs.byte_s * size)
            for line, size in zip(self.lines, self.sizes, strict=True)
        ]
        exchanges, first = [], 0
        for count in self.exchanges:
            exchanges.append(hops[first : first + count])
            first += count
        return band(exchanges, costs.send_s * slower, costs.recv_s * slower)

    def _one_way(self, costs: Costs) -> bool:
        """Does everything go to the next rank, one message at a time, with the wire free again
        before the next?
        """
        alone = set(self.exchanges) <= {0, 1} and set(self.lines) == {NEXT}
        return alone and costs.byte_s * max(self.sizes) <= costs.send_s + costs.recv_s

    def _travel(self, times: int, cpu: Times, costs: Costs, wiring: Wiring) -> None:
        """One-way rounds at once. In each of the exchanges what makes a rank late either stays with
        it or goes to the next, over a link and with a message's time on the wire: of all ways that
        end at a rank the longest counts. On a way of j links it is the j longest messages that
        travel; as many as there are exchanges can.
        """
        n, unit_s = len(cpu), costs.send_s + costs.recv_s
        total = times * len(self.sizes)
        busy_s = sorted((costs.byte_s * size for size in self.sizes), reverse=True)
        # Place p is that of rank (p - total) mod n: those of earlier rounds of the ring come first.
        first = -total % n
        places = np.arange(total + n)
        way = np.cumsum(np.resize(np.roll(wiring(NEXT), -first), total + n))
        start = np.resize(np.roll(cpu, -first), total + n)
        longest = np.full(n, -np.inf)
        fewest, carried_s = 0, 0.0
        for each_s in busy_s:
            most = fewest + times
            ahead = start - way - places * each_s
            best = _window_max(ahead, total - most, total - fewest + n - 1, most - fewest + 1)
            here = best + way[total:] + places[total:] * each_s - fewest * each_s + carried_s
            np.maximum(longest, here, out=longest)
            carried_s += times * each_s
            fewest = most
        cpu[:] = longest + total * unit_s

    def _play(
        self,
        cpu: Times,
        wire: Times,
        costs: Costs,
        wiring: Wiring,
        pool: Times,
        places: npt.NDArray[np.int64],
        slow: Mapping[int, float],
    ) -> None:
        """As many rounds as `places` has rows."""
        n = len(cpu)
        _kernel()(
            cpu,
            wire,
            np.array(self.exchanges, dtype=np.int64),
            np.array([-line % n for line in self.lines], dtype=np.int64),
            np.array([costs.byte_s * size for size in self.sizes]),
            np.array([wiring(line) for line in self.lines]),
            pool,
            places,
            costs.send_s,
            costs.recv_s,
            np.array(list(slow), dtype=np.int64),
            np.array(list(slow.values()), dtype=np.float64) - 1.0,
        )


def _window_max(values: Times, first: int, last: int, width: int) -> Times:
    """Of `values[first]` to `values[last]` the largest in each window of that width."""
    best = values[first : last + 1].copy()
    reach = 1
    while reach < width:
        step = min(reach, width - reach)
        best = np.maximum(best[step:], best[:-step])
        reach += step
    return best


def _shapes(
    schedule: Schedule, n: int, rounds: int, record_bytes: int, lane: int
) -> Iterator[tuple[_Shape, int]]:
    """The rounds in their order, those of one shape in a row together."""
    last, times = None, 0
    for step in range(rounds):
        shape = _shape(schedule.exchanges(n, step), record_bytes, lane)
        if shape != last and last is not None:
            yield last, times
            times = 0
        last, times = shape, times + 1
    if last is not None:
        yield last, times


def _shape(exchanges: tuple[Exchange, ...], record_bytes: int, lane: int) -> _Shape:
    """A block of 0 bytes is no message."""
    counts: list[int] = []
    lines: list[Line] = []
    sizes: list[int] = []
    for exchange in exchanges:
        before = len(lines)
        for transfer in exchange:
            header = transfer.part is Part.HEADER
            size = HEADER_BYTES if header else record_bytes * transfer.blocks
            if size and transfer.lane == lane:
                lines.append(transfer.to)
                sizes.append(size)
        counts.append(len(lines) - before)
    return _Shape(tuple(counts), tuple(lines), tuple(sizes))


def _play(
    cpu: Any,
    wire: Any,
    exchanges: Any,
    sources: Any,
    busy_s: Any,
    latency_s: Any,
    pool: Any,
    places: Any,
    send_s: float,
    recv_s: float,
    slow: Any,
    slower: Any,
) -> None:
    """Rounds of one shape, for numba; loops over ranks are such that they become vector code."""
    n = len(cpu)
    leaves = np.empty((exchanges.max(), n))
    for step in range(len(places)):
        first = 0
        for count in exchanges:
            for k in range(count):
                busy, left = busy_s[first + k], leaves[k]
                for r in range(n):
                    cpu[r] += send_s
                for j in range(len(slow)):
                    cpu[slow[j]] += send_s * slower[j]
                if busy > 0.0:
                    for r in range(n):
                        wire[r] = max(wire[r], cpu[r]) + busy
                        left[r] = wire[r]
                else:
                    for r in range(n):
                        left[r] = cpu[r]
            for k in range(count):
                left, late = leaves[k], latency_s[first + k]
                source, place = sources[first + k], places[step, first + k]
                more = pool[place : place + n]
                for r in range(n - source):
                    cpu[r] = max(cpu[r], left[r + source] + (late[r] + more[r])) + recv_s
                back = source - n
                for r in range(n - source, n):
                    cpu[r] = max(cpu[r], left[r + back] + (late[r] + more[r])) + recv_s
                for j in range(len(slow)):
                    cpu[slow[j]] += recv_s * slower[j]
            first += count


@lru_cache(maxsize=1)
def _kernel() -> Callable[..., None]:
    import numba  # 64 to 100 MiB: for those alone who play rounds

    kernel: Callable[..., None] = numba.njit(_play, cache=True)
    return kernel
