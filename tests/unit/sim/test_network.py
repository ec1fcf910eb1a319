"""When things arrive in a modelled network: by hand."""

import asyncio
import math
from collections import Counter
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from emucoll.errors import ConnectFailed
from emucoll.net.base import Channel, Listener
from emucoll.sim.cost import SYN_RETRIES_S, Costs
from emucoll.sim.loop import VirtualLoop
from emucoll.sim.network import Serial, VirtualNetwork, VirtualWorld

T = TypeVar("T")
MS = 1e-3


class Modelled:
    """A world of some costs, in which a test's coroutine runs."""

    def __init__(self, costs: Costs) -> None:
        self.loop = VirtualLoop()
        self.world = VirtualWorld(self.loop, costs)

    def run(self, main: Coroutine[Any, Any, T]) -> T:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            return runner.run(main)

    async def connected(
        self, here: VirtualNetwork, there: VirtualNetwork
    ) -> tuple[Channel, Channel, Listener]:
        listener = there.listen()
        near = await here.connect(listener.address, 10.0)
        return near, await listener.accept(), listener


def test_a_connection_takes_a_round_trip_and_half_a_one_more_to_be_accepted() -> None:
    modelled = Modelled(Costs(latency_s=1 * MS, connect_s=0.1 * MS, accept_s=0.2 * MS))

    async def main() -> tuple[float, float]:
        here, there = modelled.world.network(host=0), modelled.world.network(host=1)
        listener = there.listen()
        accepting = asyncio.create_task(listener.accept())
        await here.connect(listener.address, 10.0)
        connected = modelled.loop.time()
        await accepting
        return connected, modelled.loop.time()

    assert modelled.run(main()) == pytest.approx((2.1 * MS, 3.3 * MS))


@pytest.mark.parametrize(("hosts", "latency_s"), [((0, 1), 5 * MS), ((3, 3), 1 * MS)])
def test_a_message_pays_both_cpus_the_wire_and_the_latency(
    hosts: tuple[int, int], latency_s: float
) -> None:
    costs = Costs(
        latency_s=5 * MS,
        intra_host_latency_s=1 * MS,
        send_s=0.1 * MS,
        recv_s=0.2 * MS,
        byte_s=0.001 * MS,
    )
    modelled = Modelled(costs)

    async def main() -> list[float]:
        here, there = (modelled.world.network(host=host) for host in hosts)
        near, far, _ = await modelled.connected(here, there)
        began = modelled.loop.time()
        for _ in range(3):
            await near.send(bytes(1000))
        times = []
        for _ in range(3):
            await far.recv(1000)
            times.append(modelled.loop.time() - began)
        return times

    # Of each, the wire is the slowest stage: a byte's 1 us for 1,000 of them.
    first = 0.1 * MS + 1 * MS + latency_s + 0.2 * MS
    assert modelled.run(main()) == pytest.approx([first, first + 1 * MS, first + 2 * MS])


def test_a_process_serves_one_message_at_a_time() -> None:
    """As a root does: 100 peers speak at once, and the last waits for 99 others."""
    modelled = Modelled(Costs(latency_s=1 * MS, recv_s=0.5 * MS))

    async def main() -> float:
        server = modelled.world.network(host=0)
        listener = server.listen()
        peers = [modelled.world.network(host=1 + i) for i in range(100)]
        near = await asyncio.gather(*(peer.connect(listener.address, 10.0) for peer in peers))
        far = [await listener.accept() for _ in near]
        began = modelled.loop.time()
        for channel in near:
            await channel.send(b"hello")
        await asyncio.gather(*(channel.recv(5) for channel in far))
        return modelled.loop.time() - began

    assert modelled.run(main()) == pytest.approx(1 * MS + 100 * 0.5 * MS, abs=1 * MS)


def test_processes_may_share_a_cpu() -> None:
    modelled = Modelled(Costs(send_s=1 * MS))

    async def main() -> float:
        core = Serial()
        here, beside = (modelled.world.network(cpu=core) for _ in range(2))
        there = modelled.world.network()
        one = await modelled.connected(here, there)
        two = await modelled.connected(beside, there)
        began = modelled.loop.time()
        for channel in (one[0], two[0]):
            await channel.send(b"x")
        await asyncio.gather(one[1].recv(1), two[1].recv(1))
        return modelled.loop.time() - began

    assert modelled.run(main()) == pytest.approx(2 * MS)


def test_a_pause_of_the_receiver_holds_the_sender_up() -> None:
    modelled = Modelled(Costs(latency_s=1 * MS, window_bytes=1000))

    async def main() -> tuple[bool, float]:
        near, far, _ = await modelled.connected(modelled.world.network(), modelled.world.network())
        near.bound = 0
        sending = asyncio.ensure_future(near.send(bytes(1500)))
        await modelled.world.clock.sleep(1.0)
        held = not sending.done()
        began = modelled.loop.time()
        await far.recv(1500)  # word that there is room takes 1 ms, what follows another
        await sending
        return held, modelled.loop.time() - began

    assert modelled.run(main()) == (True, pytest.approx(2 * MS))


# -- connections that are not answered


def storm(backlog: int, peers: int) -> list[float]:
    """When each of many that ask at once is connected; infinity for who gave up."""
    modelled = Modelled(Costs(somaxconn=backlog))

    async def ask(listener: Listener) -> float:
        try:
            await modelled.world.network().connect(listener.address, 600.0)
        except ConnectFailed:
            return math.inf
        return modelled.loop.time()

    async def accept(listener: Listener) -> None:
        while True:
            await listener.accept()

    async def main() -> list[float]:
        listener = modelled.world.network().listen()
        accepting = asyncio.create_task(accept(listener))
        times = await asyncio.gather(*(ask(listener) for _ in range(peers)))
        accepting.cancel()
        return times

    return modelled.run(main())


def test_a_full_backlog_makes_them_ask_again_at_the_kernels_times() -> None:
    """Each time 129 have room, one more than the backlog."""
    times = storm(backlog=128, peers=1000)
    expected = dict.fromkeys([0.0, *SYN_RETRIES_S[:6]], 129) | {11.0: 1000 - 7 * 129}
    assert Counter(times) == expected


def test_of_4096_on_a_short_backlog_most_give_up() -> None:
    """129 at each of the kernel's times; for the others there are not enough of these."""
    times = Counter(storm(backlog=128, peers=4096))
    let_in = dict.fromkeys([0.0, *SYN_RETRIES_S], 129)
    assert times == let_in | {math.inf: 4096 - 129 * len(let_in)}


def test_a_backlog_for_all_makes_nobody_ask_again() -> None:
    assert set(storm(backlog=65_535, peers=4096)) == {0.0}


def test_who_is_never_let_in_gives_up_as_the_kernel_does() -> None:
    modelled = Modelled(Costs())

    async def main() -> float:
        listener = modelled.world.network().listen(0)
        await modelled.world.network().connect(listener.address, 600.0)
        with pytest.raises(ConnectFailed, match="timed out"):
            await modelled.world.network().connect(listener.address, 600.0)
        return modelled.loop.time()

    assert modelled.run(main()) == 131.0
