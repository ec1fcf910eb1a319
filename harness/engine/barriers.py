"""The barrier of a host's ranks, where thousands of hosts go through the same one.

Its ranks park until the last has come. What their barrier takes depends on how late each of them is
and where they are, and after an AllGather that is the same on most hosts: so it is run once for
each case, in a small virtual world of its own, by the code that ranks run. Not for runs with
jitter or injected faults, in which no two are alike.
"""

import asyncio
import random
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple

from emucoll.net.counters import Counters
from emucoll.p2p import PointToPoint, barrier
from emucoll.rank import Job, Rank
from emucoll.sim.cost import Costs
from emucoll.sim.loop import VirtualLoop
from emucoll.sim.network import Serial, VirtualNetwork, VirtualWorld
from emucoll.trace import Trace

_SAME_DIGITS = 12
"""Cases that differ by less than a picosecond are one."""


class _Case(NamedTuple):
    """What decides how a barrier goes: of each rank, seconds after the first has come."""

    starts: tuple[float, ...]
    free: tuple[float, ...]
    """When its CPU is free."""
    hosts: tuple[int, ...]
    """All 0 where they are on one."""


class _End(NamedTuple):
    """How it went for one rank: seconds after the first came."""

    finish_s: float
    free_s: float
    busy_s: float
    counters: Counters
    descriptors: int
    """As many more it held at once."""


@dataclass(frozen=True)
class _Waiting:
    """A rank that has reached it."""

    rank: Rank
    network: VirtualNetwork
    future: "asyncio.Future[None]"
    since: float


class PlayedBarriers:
    """Of all hosts of a run."""

    def __init__(self, loop: VirtualLoop, costs: Costs, job: Job, tagged_apart: bool) -> None:
        """None is reached yet."""
        self._loop = loop
        self._costs = costs
        self._job = job
        self._tagged_apart = tagged_apart
        self._waiting: dict[range, list[_Waiting]] = {}
        self._known: dict[_Case, list[_End]] = {}

    def reach(self, rank: Rank, network: VirtualNetwork, members: range) -> Awaitable[None]:
        """Wait for the others of `members`."""
        future: asyncio.Future[None] = self._loop.create_future()
        waiting = self._waiting.setdefault(members, [])
        waiting.append(_Waiting(rank, network, future, self._loop.time()))
        if len(waiting) == len(members):
            del self._waiting[members]
            self._play(sorted(waiting, key=lambda each: each.rank.rank))
        return future

    def _play(self, waiting: list[_Waiting]) -> None:
        first = min(each.since for each in waiting)
        hosts = tuple(each.network.host for each in waiting)
        case = _Case(
            tuple(round(each.since - first, _SAME_DIGITS) for each in waiting),
            tuple(
                round(max(each.since, each.network.cpu.free_at) - first, _SAME_DIGITS)
                for each in waiting
            ),
            hosts if len(set(hosts)) > 1 else (0,) * len(hosts),
        )
        ends = self._known.get(case)
        if ends is None:
            with ThreadPoolExecutor(1) as executor:  # a loop cannot run within another
                ends = self._known[case] = executor.submit(self._run, case).result()
        path = waiting[0].network.world.path
        last, last_piece = max(waiting, key=lambda each: each.since).network, None
        if path is not None:
            now = self._loop.time()
            last_piece = path.close(last.number, now, last.cpu.done_s(now))
        for each, end in zip(waiting, ends, strict=True):
            network = each.network
            network.cpu.free_at = first + end.free_s
            network.cpu.busy_s += end.busy_s
            network.counters.add(end.counters)
            network.peak_descriptors = max(
                network.peak_descriptors, network.held_descriptors + end.descriptors
            )
            finish = max(self._loop.time(), first + end.finish_s)
            if path is not None:
                did = path.goes_on(last_piece, last.number, ((finish, "barrier"),))
                path.woken(network.number, did, network.cpu.busy_s)
            self._loop.at(finish, each.future.set_result)

    def _run(self, case: _Case) -> list[_End]:
        loop = VirtualLoop()
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(self._simulate(case, loop))

    async def _simulate(self, case: _Case, loop: VirtualLoop) -> list[_End]:
        """Ranks that have nothing but a listener."""
        world, count = VirtualWorld(loop, self._costs), len(case.starts)
        trace, numbers = Trace(count, loop.time), random.Random(0)
        networks = [world.network(host, Serial()) for host in case.hosts]
        listeners = [network.listen() for network in networks]
        for network, free_at in zip(networks, case.free, strict=True):
            network.cpu.free_at, network.cpu.busy_s = free_at, 0.0

        async def go(number: int) -> _End:
            network = networks[number]
            rank = Rank(number, number, network, world.clock, trace, numbers)
            ends = PointToPoint(rank, self._job, listeners[number], self._tagged_apart)
            await world.clock.sleep(case.starts[number])
            await barrier(rank, ends, range(count), lambda peer: listeners[peer].address)
            cpu, more = network.cpu, network.peak_descriptors - 1
            return _End(loop.time(), cpu.free_at, cpu.busy_s, network.counters, more)

        return await asyncio.gather(*(go(number) for number in range(count)))
