"""An AllGather in rounds takes as long as in virtual time, event by event, and as closed forms say;
and sends as much.
"""

import asyncio
import random
from dataclasses import replace

import numpy as np
import pytest

from emucoll.collectives import ALLGATHERS
from emucoll.collectives.driver import Collective, run
from emucoll.collectives.schedule import NEXT, PREV
from emucoll.collectives.table import RecordTable
from emucoll.errors import UsageError
from emucoll.net.base import Channel
from emucoll.rank import Rank
from emucoll.sim.cost import Costs
from emucoll.sim.loop import VirtualLoop
from emucoll.sim.network import Serial, VirtualWorld
from emucoll.sim.rounds import Noise, Times, play, wires
from emucoll.trace import Trace

US = 1e-6
CLUSTER = Costs(
    latency_s=20 * US,
    intra_host_latency_s=3 * US,
    send_s=1.3 * US,
    recv_s=1.7 * US,
    byte_s=0.0007 * US,
)
RANKS_PER_HOST = 8
CONTENDED = replace(CLUSTER, contention_s=0.9 * US)
IN_RACKS = replace(CLUSTER, intra_rack_latency_s=11 * US, hosts_per_rack=3)
LOCKSTEP = ["ring", "ring-bidir"]


async def ring(
    world: VirtualWorld, n: int, slow: dict[int, float] | None = None
) -> list[dict[int, Channel]]:
    """A formed ring, every rank a process of its own."""
    cpus = [Serial((slow or {}).get(r, 1.0)) for r in range(n)]
    networks = [world.network(host=r // RANKS_PER_HOST, cpu=cpus[r]) for r in range(n)]
    listeners = [network.listen() for network in networks]
    following = [await networks[r].connect(listeners[(r + 1) % n].address, 10.0) for r in range(n)]
    before = [await listener.accept() for listener in listeners]
    return [{NEXT: following[r], PREV: before[r]} for r in range(n)]


def by_events(
    allgather: str,
    n: int,
    record_bytes: int,
    starts: Times,
    costs: Costs,
    slow: dict[int, float] | None = None,
) -> tuple[Times, int, int]:
    """When each rank is through, and what all have sent: by the ranks' own code."""
    schedule, loop = ALLGATHERS[allgather], VirtualLoop()
    world = VirtualWorld(loop, costs)
    table = RecordTable.derived(n, record_bytes, 1, 0, range(n), (n, n))
    collective = Collective(schedule, n, schedule.rounds(n), table)
    finish = np.zeros(n)

    async def one(rank: Rank, lines: dict[int, Channel], start: float) -> None:
        await world.clock.sleep(start)
        await run(rank, lines, collective)
        finish[rank.rank] = loop.time()

    async def main() -> float:
        lines = await ring(world, n, slow)
        for network in world.networks:
            network.counters.messages = network.counters.bytes_sent = 0
        await world.clock.sleep(1.0)
        trace, began = Trace(n, loop.time), loop.time()
        ranks = [
            Rank(r, r, network, world.clock, trace, random.Random(1))
            for r, network in enumerate(world.networks)
        ]
        await asyncio.gather(
            *(
                one(rank, each, start)
                for rank, each, start in zip(ranks, lines, starts, strict=True)
            )
        )
        return began

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        began = runner.run(main())
    assert collective.wrong.count == 0
    counters = [network.counters for network in world.networks]
    return (
        finish - began,
        sum(each.messages for each in counters),
        sum(each.bytes_sent for each in counters),
    )


def by_rounds(
    allgather: str,
    n: int,
    record_bytes: int,
    starts: Times,
    costs: Costs,
    noise: Noise | None = None,
    slow: dict[int, float] | None = None,
) -> tuple[Times, int, int]:
    schedule = ALLGATHERS[allgather]
    wiring = wires(np.arange(n) // RANKS_PER_HOST, costs)
    played = play(schedule, schedule.rounds(n), record_bytes, starts, costs, wiring, noise, slow)
    return played.finish, played.messages, played.bytes


@pytest.mark.parametrize("allgather", LOCKSTEP)
@pytest.mark.parametrize("skew_s", [0.0, 200 * US])
@pytest.mark.parametrize(
    ("n", "record_bytes"),
    [(1, 28), (2, 0), (3, 1), (5, 120), (8, 2320), (15, 28), (64, 120), (257, 28)],
)
def test_rounds_take_as_long_as_events(
    allgather: str, n: int, record_bytes: int, skew_s: float
) -> None:
    starts = np.random.default_rng(n).uniform(0.0, skew_s, n)
    events = by_events(allgather, n, record_bytes, starts, CLUSTER)
    rounds = by_rounds(allgather, n, record_bytes, starts, CLUSTER)
    # Events tell the time since the program began, which takes digits off.
    np.testing.assert_allclose(rounds[0], events[0], rtol=1e-9, atol=1e-14)
    assert rounds[1:] == events[1:]


@pytest.mark.parametrize("costs", [CONTENDED, IN_RACKS], ids=["contention", "racks"])
@pytest.mark.parametrize("allgather", LOCKSTEP)
def test_so_they_do_with_contention_and_racks(allgather: str, costs: Costs) -> None:
    starts = np.random.default_rng(1).uniform(0.0, 100 * US, 70)
    events = by_events(allgather, 70, 120, starts, costs)
    rounds = by_rounds(allgather, 70, 120, starts, costs)
    np.testing.assert_allclose(rounds[0], events[0], rtol=1e-9, atol=1e-14)


def test_only_who_uses_both_directions_of_a_socket_pays_for_its_lock() -> None:
    starts = np.zeros(64)
    for allgather, pays in (("ring", False), ("ring-bidir", True), ("ring-bidir-headerless", True)):
        without, contended = (
            by_rounds(allgather, 64, 120, starts, costs)[0].max() for costs in (CLUSTER, CONTENDED)
        )
        assert bool(contended > without) == pays


@pytest.mark.parametrize("allgather", ["ring-bidir-headerless", "ring-pipelined"])
@pytest.mark.parametrize("n", [2, 3, 8, 9, 64, 257])
def test_where_cpus_cost_nothing(allgather: str, n: int) -> None:
    """Two loops that share a CPU, and reads of several blocks, are not what rounds play."""
    costs = Costs(latency_s=20 * US, intra_host_latency_s=3 * US)
    events = by_events(allgather, n, 28, np.zeros(n), costs)
    rounds = by_rounds(allgather, n, 28, np.zeros(n), costs)
    np.testing.assert_allclose(rounds[0], events[0], rtol=1e-9, atol=1e-14)
    assert rounds[1:] == events[1:]


# -- closed forms


def closed_form(allgather: str, n: int, size: int, costs: Costs) -> float:
    """All ranks alike, each on a host of its own: an exchange is a write, the wire, a latency and a
    read; both ways, the last has two of each, side by side on wire and CPU.
    """
    o, r, gap, latency = costs.send_s, costs.recv_s, costs.byte_s, costs.latency_s

    def one(count: int) -> float:
        return o + gap * count + latency + r

    def both(count: int) -> float:
        """The second block leaves when CPU and wire have had both; it is read last."""
        left = max(o + gap * count, 2 * o) + gap * count
        return max(max(one(count), 2 * o + r), left + latency) + r

    if allgather == "ring":
        return (n - 1) * (one(4) + one(size))
    back = (n - 1) // 2
    return back * (2 * one(4) + both(size)) + (n // 2 - back) * (one(4) + one(size))


@pytest.mark.parametrize("allgather", LOCKSTEP)
@pytest.mark.parametrize(("n", "size"), [(2, 28), (3, 120), (8, 28), (9, 2320), (1024, 120)])
def test_closed_forms(allgather: str, n: int, size: int) -> None:
    alike = Costs(latency_s=20 * US, send_s=1.3 * US, recv_s=1.7 * US, byte_s=0.0007 * US)
    finish, *_ = by_rounds(allgather, n, size, np.zeros(n), alike)
    np.testing.assert_allclose(finish, closed_form(allgather, n, size, alike), rtol=1e-9)


@pytest.mark.parametrize("allgather", [*LOCKSTEP, "ring-bidir-headerless"])
@pytest.mark.parametrize("n", [256, 1000, 2048])
@pytest.mark.parametrize("skew_s", [0.0, 1e-3, 10.0])
def test_rounds_that_repeat_need_not_be_played(allgather: str, n: int, skew_s: float) -> None:
    """Noise that is none makes all of them be played."""
    starts = np.random.default_rng(n).uniform(0.0, skew_s, n)
    none = Noise(np.zeros(2 * n), lambda _, count: np.zeros(count, dtype=np.int64))
    played = by_rounds(allgather, n, 120, starts, CLUSTER, none)
    skipped = by_rounds(allgather, n, 120, starts, CLUSTER)
    np.testing.assert_allclose(skipped[0], played[0], rtol=1e-9)
    assert skipped[1:] == played[1:]


def test_one_slow_rank_delays_by_what_it_adds() -> None:
    """Its record goes round the ring after it: what a rank is late, everybody is, once."""
    n, late = 64, 0.5
    starts = np.zeros(n)
    alike = Costs(latency_s=20 * US, send_s=1.3 * US, recv_s=1.7 * US)
    on_time, *_ = by_rounds("ring", n, 28, starts, alike)
    starts[7] = late
    delayed, *_ = by_rounds("ring", n, 28, starts, alike)
    assert delayed.max() == pytest.approx(on_time.max() + late, rel=1e-9)


def delay_by_a_slow_rank(n: int, costs: Costs, factor: float) -> float:
    """What one rank whose CPU is slow delays a ring AllGather by, all latencies alike.

    The last to be through has waited for a chain of 2 (n - 1) messages, each of which goes on to
    the next rank or finds the rank that it is at busy. It passes the slow one twice; but where that
    is busy for longer than a hop takes, the chain stays there, and comes and goes by a hop as long
    as those take longer still.
    """
    own, hops = costs.send_s + costs.recv_s, 2 * (n - 1)
    hop, busy = own + costs.latency_s, factor * own
    if busy <= hop:
        return 2 * (factor - 1) * own
    coming = max(0.0, costs.latency_s - (factor - 1) * costs.send_s)
    going = max(0.0, costs.latency_s - (factor - 1) * costs.recv_s)
    return hops * (busy - hop) + coming + going


@pytest.mark.parametrize("factor", [3.0, 10.0, 100.0])
def test_a_rank_with_a_slow_cpu(factor: float) -> None:
    n, alike = 64, Costs(latency_s=20 * US, send_s=1.3 * US, recv_s=1.7 * US)
    starts, slow = np.zeros(n), {7: factor}
    events, rounds = (
        by("ring", n, 28, starts, alike, slow=slow)[0] for by in (by_events, by_rounds)
    )
    np.testing.assert_allclose(rounds, events, rtol=1e-9, atol=1e-14)
    on_time, *_ = by_rounds("ring", n, 28, starts, alike)
    expected = delay_by_a_slow_rank(n, alike, factor)
    assert rounds.max() - on_time.max() == pytest.approx(expected, rel=1e-9)


# -- noise


def test_noise_of_a_pool_is_as_good_as_independent_draws() -> None:
    """Mean and 99th percentile of when ranks are through agree within 1 %."""
    n, rng = 512, np.random.default_rng(7)
    few = Noise(
        rng.exponential(5 * US, 1 << 16), lambda below, count: rng.integers(below, size=count)
    )
    steps = 2 * (n - 1)
    fresh = Noise(
        rng.exponential(5 * US, (steps + 1) * n),
        lambda _, count: np.arange(count, dtype=np.int64) * n,
    )
    pooled, *_ = by_rounds("ring", n, 28, np.zeros(n), CLUSTER, few)
    independent, *_ = by_rounds("ring", n, 28, np.zeros(n), CLUSTER, fresh)
    assert pooled.mean() == pytest.approx(independent.mean(), rel=0.01)
    assert np.quantile(pooled, 0.99) == pytest.approx(np.quantile(independent, 0.99), rel=0.01)
    quiet, *_ = by_rounds("ring", n, 28, np.zeros(n), CLUSTER)
    assert pooled.mean() > 1.1 * quiet.mean()


def test_a_pool_that_is_too_small_is_refused() -> None:
    noise = Noise(np.zeros(15), lambda below, count: np.zeros(count, dtype=np.int64))
    with pytest.raises(UsageError, match="a pool of 15 draws is too small for 8 ranks"):
        by_rounds("ring", 8, 28, np.zeros(8), CLUSTER, noise)


def test_what_connects_to_peers_is_refused() -> None:
    with pytest.raises(UsageError, match="bruck is not played in rounds"):
        by_rounds("bruck", 8, 28, np.zeros(8), CLUSTER)
