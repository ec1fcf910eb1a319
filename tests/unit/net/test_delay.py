"""How late messages are: each by its delay, not by what came before it."""

import asyncio
import time

import pytest

from emucoll.net.base import Channel
from emucoll.net.delay import HELD_BYTES, Alarms, LateChannel, LateNetwork, make_network
from emucoll.net.tcp import TcpNetwork
from tests.worlds import LateWorld, make_world

pytestmark = pytest.mark.alone


def late_world() -> LateWorld:
    world = make_world("late-uvloop-ipv4")
    assert isinstance(world, LateWorld)
    return world


async def pair(world: LateWorld, delay_s: float) -> tuple[Channel, LateChannel]:
    here, there = world.network(), world.network()
    assert isinstance(there, LateNetwork)
    listener = there.listen()
    near = await here.connect(listener.address, 10.0)
    far = await listener.accept()
    assert isinstance(far, LateChannel)
    far.delay_s = delay_s
    return near, far


def test_messages_on_their_way_together_are_late_together() -> None:
    """Ten of them, a tenth of the delay apart: the last comes after 1.9 delays, not after ten."""
    world, delay_s, count = late_world(), 0.2, 10

    async def main() -> None:
        near, far = await pair(world, delay_s)
        sent, came = [], []

        async def receive() -> None:
            for _ in range(count):
                await far.recv(3)
                came.append(time.monotonic())

        receiving = asyncio.ensure_future(receive())
        for _ in range(count):
            sent.append(time.monotonic())
            await near.send(b"abc")
            await asyncio.sleep(delay_s / count)
        await receiving
        late = [there - here for here, there in zip(sent, came, strict=True)]
        assert min(late) >= delay_s, "none comes before its time"
        assert came[-1] - sent[0] < 5 * delay_s, "they wait for each other"

    world.run(main())


def test_the_end_is_late_too_and_comes_after_the_last_bytes() -> None:
    world, delay_s = late_world(), 0.1

    async def main() -> None:
        near, far = await pair(world, delay_s)
        began = time.monotonic()
        await near.send(b"abc")
        near.close()
        assert bytes(await far.recv_some(10)) == b"abc"
        assert not await far.recv_some(10)
        assert time.monotonic() - began >= delay_s

    world.run(main())


def test_what_is_held_is_bounded() -> None:
    world = late_world()

    async def main() -> None:
        near, far = await pair(world, 0.05)
        total = 8 * HELD_BYTES
        sending = asyncio.ensure_future(_send(near, total))
        got = 0
        while got < total:
            data = await far.recv_some(1 << 20)
            got += len(data)
            assert far._held <= 2 * HELD_BYTES
        await sending

    async def _send(channel: Channel, total: int) -> None:
        for _ in range(total >> 20):
            await channel.send(bytes(1 << 20))

    world.run(main())


def test_alarms_ring_in_order_and_not_before_their_time() -> None:
    world = late_world()

    async def main() -> None:
        network = world.network()
        assert isinstance(network, LateNetwork)
        alarms: Alarms = network.alarms
        rung: list[tuple[int, float]] = []
        now = time.monotonic()
        done = asyncio.get_running_loop().create_future()
        dues = [now + 0.03, now - 1, now + 0.01, now + 0.0101, now + 0.03]
        for index, due in enumerate(dues):
            alarms.at(due, lambda index=index: rung.append((index, time.monotonic())))  # type: ignore[misc]
        alarms.at(now + 0.05, lambda: done.set_result(None))
        await done
        assert [index for index, _ in rung] == [1, 2, 3, 0, 4]
        assert all(at >= dues[index] for index, at in rung)

    world.run(main())


def test_no_delay_is_an_ordinary_network() -> None:
    world = late_world()

    async def main() -> None:
        network = make_network("127.0.0.1", 0.0)
        assert type(network) is TcpNetwork
        network.close()

    world.run(main())
