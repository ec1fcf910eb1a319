"""Worlds in which tests run the seam's own text: real TCP on both event loops and both address
families, TCP that is late, and virtual time.

A test that is a coroutine function runs inside the fixture `world`, or the default one, under a
deadline, and no descriptor may be left when its networks are closed. A folder opts in with

    from tests.worlds import pytest_pyfunc_call, world  # noqa: F401
"""

import asyncio
import inspect
import os
import random
import socket
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar

import pytest

from emucoll.net.base import Clock, Network
from emucoll.net.delay import LateNetwork
from emucoll.net.tcp import TcpClock, TcpNetwork
from emucoll.sim.cost import Costs
from emucoll.sim.loop import VirtualLoop
from emucoll.sim.network import VirtualClock, VirtualNetwork, VirtualWorld

try:
    import uvloop
except ImportError:
    uvloop = None  # type: ignore[assignment]

T = TypeVar("T")
DEADLINE_S = 60.0


class Sent(NamedTuple):
    """What went out through one network."""

    messages: int
    bytes: int
    connections: int


class World(Protocol):
    """A clock and any number of networks, each what one process would see."""

    name: str

    @property
    def clock(self) -> Clock:
        """As its ranks see it."""

    def network(self) -> Network:
        """One more process's view."""

    def sent(self, network: Network) -> Sent:
        """What that process has sent so far."""

    def close(self, network: Network) -> None:
        """End that process: its connections are reset, its listeners closed. Idempotent."""

    def run(self, main: Coroutine[Any, Any, T], deadline_s: float = DEADLINE_S) -> T:
        """Run a coroutine to its end, then close every network."""


class TcpWorld:
    """Loopback: a source address for each network where the family has several."""

    def __init__(self, loop: str, family: str) -> None:
        self.name = f"tcp-{loop}-{family}"
        self.clock = TcpClock()
        self.networks: list[TcpNetwork] = []
        self._loop_factory: Callable[[], asyncio.AbstractEventLoop] = (
            asyncio.new_event_loop if loop == "asyncio" else uvloop.new_event_loop
        )
        self._family = family
        self._prefix = f"127.{random.randrange(64, 255)}.{random.randrange(256)}"

    def network(self) -> TcpNetwork:
        index = len(self.networks)
        source = "::1" if self._family == "ipv6" else f"{self._prefix}.{1 + index}"
        self.networks.append(self._network(source))
        return self.networks[-1]

    def _network(self, source: str) -> TcpNetwork:
        return TcpNetwork(source)

    def sent(self, network: Network) -> Sent:
        assert isinstance(network, TcpNetwork)
        counters = network.counters
        return Sent(counters.messages, counters.bytes_sent, counters.connects)

    def close(self, network: Network) -> None:
        assert isinstance(network, TcpNetwork)
        network.close()

    def run(self, main: Coroutine[Any, Any, T], deadline_s: float = DEADLINE_S) -> T:
        with asyncio.Runner(loop_factory=self._loop_factory) as runner:
            return runner.run(self._main(main, deadline_s))

    async def _main(self, main: Coroutine[Any, Any, T], deadline_s: float) -> T:
        self.networks.clear()
        before = descriptors()
        try:
            async with asyncio.timeout(deadline_s):
                return await main
        finally:
            for network in self.networks:
                network.close()
            assert descriptors() <= before, "descriptors are left"


class LateWorld(TcpWorld):
    """Loopback with a latency."""

    def __init__(self, loop: str, family: str) -> None:
        super().__init__(loop, family)
        self.name = f"late-{loop}-{family}"

    def _network(self, source: str) -> TcpNetwork:
        return LateNetwork(source, LATE_S)


class VirtualTime:
    """A modelled network in which messages take some microseconds."""

    name = "virtual"
    clock: VirtualClock
    _world: VirtualWorld

    def network(self) -> VirtualNetwork:
        return self._world.network(host=len(self._world.networks))

    def sent(self, network: Network) -> Sent:
        assert isinstance(network, VirtualNetwork)
        counters = network.counters
        return Sent(counters.messages, counters.bytes_sent, counters.connects)

    def close(self, network: Network) -> None:
        assert isinstance(network, VirtualNetwork)
        network.close()

    def run(self, main: Coroutine[Any, Any, T], deadline_s: float = DEADLINE_S) -> T:
        loop = VirtualLoop(deadline_s)
        self._world = VirtualWorld(loop, COSTS)
        self.clock = self._world.clock
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(self._main(main, deadline_s))

    async def _main(self, main: Coroutine[Any, Any, T], deadline_s: float) -> T:
        before = descriptors()
        try:
            async with asyncio.timeout(deadline_s):
                return await main
        finally:
            for network in self._world.networks:
                network.close()
            assert descriptors() == before, "virtual time has taken real descriptors"


async def settle(world: World) -> None:
    """Let what is under way arrive, and everybody run until he waits: a few turns of the loop. No
    test passes because of it; some fail without.
    """
    for _ in range(10):
        await world.clock.sleep(0.001)


def descriptors() -> int:
    """How many this process holds."""
    return len(os.listdir("/proc/self/fd"))


def has_ipv6() -> bool:
    """Can a listener be bound on ::1?"""
    try:
        with socket.socket(socket.AF_INET6) as sock:
            sock.bind(("::1", 0))
    except OSError:
        return False
    return True


TCP_WORLDS = [
    f"tcp-{loop}-{family}" for loop in ("asyncio", "uvloop") for family in ("ipv4", "ipv6")
]
WORLDS = [*TCP_WORLDS, "late-uvloop-ipv4", "virtual"]
COSTS = Costs(
    latency_s=20e-6,
    send_s=1e-6,
    recv_s=1e-6,
    byte_s=1e-10,
    connect_s=10e-6,
    accept_s=10e-6,
    listen_s=5e-6,
)
"""Of virtual time, where a test does not say otherwise."""
LATE_S = 0.002
"""How late every message is in a world that is late."""


def make_world(name: str) -> World:
    """The world of that name; skips the test where this machine lacks it."""
    if name == "virtual":
        return VirtualTime()
    kind, loop, family = name.split("-")
    if loop == "uvloop" and uvloop is None:
        pytest.skip("uvloop is not installed")
    if family == "ipv6" and not has_ipv6():
        pytest.skip("this machine has no ::1")
    return LateWorld(loop, family) if kind == "late" else TcpWorld(loop, family)


def default_world() -> World:
    """The one that workers use here."""
    return make_world("tcp-asyncio-ipv4" if uvloop is None else "tcp-uvloop-ipv4")


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> World:
    """Each world in turn."""
    return make_world(request.param)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a coroutine function inside its world, or the default one."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}
    world: World = arguments.get("world") or default_world()
    world.run(pyfuncitem.obj(**arguments))
    return True
