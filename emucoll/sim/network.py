"""The seam in virtual time: connections over a modelled network, real bytes in them.

A process's CPU does one thing at a time, in the order in which it is asked; what its coroutines
compute takes no time beyond that. What is sent, and when it is there: `emucoll.sim.channel`.

A connection is there for the asker a round trip after it asked; it waits to be accepted from then
on. Where a listener's backlog is full, what asks is not answered and asks again at the kernel's
times.
"""

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable

from emucoll.errors import ConnectFailed, ConnectionClosed, DeadlineExceeded, ListenFailed
from emucoll.net.base import (
    LISTEN_BACKLOG,
    Address,
    Pollable,
    never_inside_drive,
    wait_readable,
)
from emucoll.net.counters import Counters
from emucoll.sim.channel import VirtualChannel
from emucoll.sim.cost import Costs
from emucoll.sim.faults import Links
from emucoll.sim.loop import VirtualLoop
from emucoll.sim.path import Path, Piece, What

FIRST_PORT, LAST_PORT = 1024, 65_535


class VirtualClock:
    """See `emucoll.net.base.Clock`."""

    def __init__(self, loop: VirtualLoop) -> None:
        """The time of `loop`."""
        self._loop = loop
        self.now = loop.time

    async def sleep(self, s: float) -> None:
        """Suspend for `s` virtual seconds."""
        future = self._loop.create_future()
        self._loop.at(self._loop.time() + max(0.0, s), _finish, future)
        await future


def _finish(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class Serial:
    """What does one thing at a time: a CPU, a network interface."""

    __slots__ = ("busy_s", "free_at", "slow")

    def __init__(self, slow: float = 1.0) -> None:
        """Free from the beginning. `slow`: everything takes so many times as long."""
        self.free_at = self.busy_s = 0.0
        self.slow = slow

    def spend(self, now: float, s: float) -> float:
        """Be busy for `s` seconds as soon as it is free; until when."""
        s *= self.slow
        start = self.free_at
        if start < now:
            start = now
        self.free_at = start + s
        self.busy_s += s
        return self.free_at

    def done_s(self, now: float) -> float:
        """For how long it has been busy until `now`."""
        return self.busy_s - max(0.0, self.free_at - now)


class VirtualWorld:
    """All networks of one run, and the wires between."""

    def __init__(
        self,
        loop: VirtualLoop,
        costs: Costs | None = None,
        jitter: Callable[[], float] | None = None,
        links: Links | None = None,
        path: Path | None = None,
    ) -> None:
        """`costs`: of everything; nothing costs anything without. `jitter` draws what a message
        takes beyond its latency. `links`: what goes wrong between hosts. `path` records what
        everybody waits for.
        """
        self.loop = loop
        self.links = links
        self.path = path
        self.jitter = jitter
        self.costs = costs or Costs()
        self.clock = VirtualClock(loop)
        self.listeners: dict[Address, VirtualListener] = {}
        self.networks: list[VirtualNetwork] = []

    def network(self, host: int = 0, cpu: Serial | None = None) -> "VirtualNetwork":
        """What one more process on `host` sees; `cpu` is shared with others, or its own."""
        network = VirtualNetwork(self, len(self.networks), host, cpu or Serial())
        self.networks.append(network)
        if self.path is not None:
            self.path.add("")
        return network


class VirtualNetwork:
    """One process's view (see `emucoll.net.base.Network`)."""

    def __init__(self, world: VirtualWorld, number: int, host: int, cpu: Serial) -> None:
        """Of process `number` of its world."""
        self.world = world
        self.number = number
        self.loop = world.loop
        self.costs = world.costs
        self.host = host
        self.cpu = cpu
        self.wire = Serial()
        self.counters = Counters()
        self.source = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        self._ports = FIRST_PORT
        self.open: dict[VirtualChannel | VirtualListener, None] = {}
        """In the order in which they were opened, which their end must not leave to chance."""
        self.peak_descriptors = 0

    @property
    def held_descriptors(self) -> int:
        """Connections and listeners that are open."""
        return len(self.open)

    def hold(self, what: "VirtualChannel | VirtualListener") -> None:
        """One more descriptor."""
        self.open[what] = None
        if len(self.open) > self.peak_descriptors:
            self.peak_descriptors = len(self.open)

    def listen(self, backlog: int = LISTEN_BACKLOG) -> "VirtualListener":
        """See Network.listen."""
        if self._ports > LAST_PORT:
            raise ListenFailed(f"no listener on {self.source}: all ports of this address are taken")
        address = Address(self.source, self._ports)
        self._ports += 1
        self.cpu.spend(self.loop.time(), self.costs.listen_s)
        listener = VirtualListener(self, address, min(backlog, self.costs.somaxconn))
        self.world.listeners[address] = listener
        self.hold(listener)
        return listener

    async def connect(self, address: Address, deadline_s: float) -> "VirtualChannel":
        """See Network.connect."""
        never_inside_drive("Network.connect")
        self.counters.connects += 1
        now = self.loop.time()
        path = self.world.path
        before = None if path is None else path.close(self.number, now, self.cpu.done_s(now))
        asked = _Asking(self, address, self.cpu.spend(now, self.costs.connect_s))
        asked.before = before
        if deadline_s < self.costs.syn_give_up_s:  # else the kernel gives up before
            self.loop.at(now + deadline_s, asked.give_up, deadline_s)
        try:
            channel = await asked.future
        finally:
            asked.over = True
        if path is not None:
            now = self.loop.time()
            path.woken(self.number, asked.path_until(now), self.cpu.done_s(now))
        return channel

    def woken(self, path: Path, cause: Piece | None) -> None:
        """A wait ended by `cause`, unless the CPU is still at something else: then by that."""
        now = self.loop.time()
        if self.cpu.free_at <= now:
            path.woken(self.number, cause, self.cpu.done_s(now))

    def close(self) -> None:
        """End the process: its connections are reset, its listeners closed. Idempotent."""
        for each in list(self.open):
            each.abort()
        self.open.clear()


class _Asking:
    """A connection that is asked for."""

    __slots__ = (
        "address",
        "before",
        "began",
        "future",
        "message_latency_s",
        "network",
        "over",
        "tries",
    )

    def __init__(self, network: VirtualNetwork, address: Address, began: float) -> None:
        self.network = network
        self.address = address
        self.began = began
        self.future: asyncio.Future[VirtualChannel] = network.loop.create_future()
        self.over = False
        self.tries = 0
        self.before: Piece | None = None
        """What led to it, where that is recorded."""
        self._ask(began)

    def path_until(self, now: float) -> Piece | None:
        """What led to a connection that is there now."""
        path, costs = self.network.world.path, self.network.costs
        assert path is not None
        asked = self.began + (costs.syn_retries_s[self.tries - 1] if self.tries else 0.0)
        ends: tuple[tuple[float, What], ...] = (
            (self.began, "cpu"),
            (asked, "syn-retry"),
            (now, "latency"),
        )
        return path.goes_on(self.before, self.network.number, ends)

    def _ask(self, when: float) -> None:
        world = self.network.world
        listener = world.listeners.get(self.address)
        here = self.network.host
        there = here if listener is None else listener.network.host
        latency_s = world.costs.latency_between(here, there)
        self.message_latency_s = latency_s
        if world.costs.handshake_latency_s is not None:
            latency_s = world.costs.handshake_latency_s
        if world.links is not None:
            if not world.links.passes(here, there, when):
                self._ask_again()
                return
            latency_s += world.links.delay_s(here, there)
        world.loop.at(when + latency_s, self._asked, latency_s)

    def _ask_again(self) -> None:
        """Nobody answered: at the kernel's times, until it gives up."""
        costs, loop = self.network.costs, self.network.loop
        if self.tries < len(costs.syn_retries_s):
            again = self.began + costs.syn_retries_s[self.tries]
            self.tries += 1
            if self.network.world.links is None:
                self._ask(again)
            else:
                loop.at(again, self._ask_now)
        else:
            loop.at(self.began + costs.syn_give_up_s, self._fail, errno.ETIMEDOUT)

    def _ask_now(self, _: None) -> None:
        if not self.over:
            self._ask(self.network.loop.time())

    def _asked(self, latency_s: float) -> None:
        """At the other side."""
        if self.over:
            return
        network, loop = self.network, self.network.loop
        listener = network.world.listeners.get(self.address)
        if listener is None:
            loop.at(loop.time() + latency_s, self._fail, errno.ECONNREFUSED)
        elif listener.is_full():
            self._ask_again()
        else:
            late_s = self.message_latency_s
            if network.world.links is not None:
                late_s += network.world.links.delay_s(network.host, listener.network.host)
            near = VirtualChannel(network, late_s)
            far = VirtualChannel(listener.network, late_s)
            near.peer, far.peer = far, near
            listener.coming += 1
            loop.at(loop.time() + latency_s, self._established, (near, listener, latency_s))

    def _established(self, made: "tuple[VirtualChannel, VirtualListener, float]") -> None:
        near, listener, latency_s = made
        loop = self.network.loop
        if self.network.world.path is not None:
            near.peer.causes = deque([self.path_until(loop.time() + latency_s)])
        loop.at(loop.time() + latency_s, listener.established, near.peer)
        if self.over or self.future.done():
            near.abort()
            return
        self.network.hold(near)
        self.future.set_result(near)

    def _fail(self, code: int) -> None:
        if not self.future.done():
            text = f"cannot connect to {self.address}: {os.strerror(code)}"
            self.future.set_exception(ConnectFailed(text, code))

    def give_up(self, deadline_s: float) -> None:
        """The deadline has come."""
        if not self.over and not self.future.done():
            text = f"{self.address} did not answer within {deadline_s:g} s"
            self.future.set_exception(DeadlineExceeded(text))


class VirtualListener(Pollable):
    """See `emucoll.net.base.Listener`."""

    __slots__ = ("_closed", "address", "backlog", "coming", "network", "waiting")

    def __init__(self, network: VirtualNetwork, address: Address, backlog: int) -> None:
        """Bound, on a process's own address."""
        super().__init__()
        self.network = network
        self.address = address
        self.backlog = backlog
        self.coming = 0
        """Connections on their way into `waiting`."""
        self.waiting: deque[VirtualChannel] | None = None
        """Connections that nobody has accepted; made with the first: an empty one has 600 bytes."""
        self._closed = False

    def is_full(self) -> bool:
        """Is one that asks now not answered? The kernel lets in one more than the backlog."""
        return self.coming + len(self.waiting or ()) > self.backlog

    def established(self, channel: "VirtualChannel") -> None:
        """A connection has come about."""
        self.coming -= 1
        if self._closed:
            channel.abort()
            return
        if self.waiting is None:
            self.waiting = deque()
        self.waiting.append(channel)
        path = self.network.world.path
        if path is not None and channel.causes:
            cause = channel.causes.popleft()
            if self.reader is not None:
                self.network.woken(path, cause)
        if self.reader is not None:
            self.reader(None)

    async def accept(self) -> "VirtualChannel":
        """See Listener.accept."""
        never_inside_drive("Listener.accept")
        network = self.network
        while not self.waiting:
            if self._closed:
                raise ConnectionClosed("the listener was closed")
            await wait_readable(self)
        channel = self.waiting.popleft()
        if not self.waiting:
            self.waiting = None
        network.counters.accepts += 1
        network.hold(channel)
        costs = network.costs
        if costs.accept_s:
            now = network.loop.time()
            await network.world.clock.sleep(network.cpu.spend(now, costs.accept_s) - now)
        return channel

    def close(self) -> None:
        """See Listener.close."""
        if self._closed:
            return
        self._closed = True
        self.network.open.pop(self, None)
        del self.network.world.listeners[self.address]
        for channel in self.waiting or ():
            channel.abort()
        self.waiting = None
        if self.reader is not None:
            self.reader(None)

    abort = close
