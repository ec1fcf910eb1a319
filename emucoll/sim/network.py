"""The seam in virtual time: connections over a modelled network, real bytes in them.

What is sent leaves when the sender's CPU has had `send_s` for it and its network the bytes, arrives
a latency later, and is the reader's when his CPU has had `recv_s` for the read. What is sent on one
connection arrives in order. A process's CPU does one thing at a time, in the order in which it is
asked; what its coroutines compute takes no time beyond that.

A connection is there for the asker a round trip after it asked; it waits to be accepted from then
on. Where a listener's backlog is full, what asks is not answered and asks again at the kernel's
times.
"""

import asyncio
import errno
import math
import os
import types
from collections import deque
from collections.abc import Awaitable, Callable, Generator

from emucoll.errors import ConnectFailed, ConnectionClosed, DeadlineExceeded, ListenFailed
from emucoll.net.base import (
    LISTEN_BACKLOG,
    READY,
    Address,
    Buffer,
    Pollable,
    begin_read_wait,
    never_inside_drive,
    wait_readable,
    wait_writable,
)
from emucoll.net.counters import Counters
from emucoll.sim.cost import Costs
from emucoll.sim.faults import Links
from emucoll.sim.loop import VirtualLoop

SEND_BOUND_BYTES = 256 * 1024
"""`send` suspends its caller while more than this is queued beyond the connection's window."""
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


class VirtualWorld:
    """All networks of one run, and the wires between."""

    def __init__(
        self,
        loop: VirtualLoop,
        costs: Costs | None = None,
        jitter: Callable[[], float] | None = None,
        links: Links | None = None,
    ) -> None:
        """`costs`: of everything; nothing costs anything without. `jitter` draws what a message
        takes beyond its latency. `links`: what goes wrong between hosts.
        """
        self.loop = loop
        self.links = links
        self.jitter = jitter
        self.costs = costs or Costs()
        self.clock = VirtualClock(loop)
        self.listeners: dict[Address, VirtualListener] = {}
        self.networks: list[VirtualNetwork] = []

    def network(self, host: int = 0, cpu: Serial | None = None) -> "VirtualNetwork":
        """What one more process on `host` sees; `cpu` is shared with others, or its own."""
        network = VirtualNetwork(self, len(self.networks), host, cpu or Serial())
        self.networks.append(network)
        return network


class VirtualNetwork:
    """One process's view (see `emucoll.net.base.Network`)."""

    def __init__(self, world: VirtualWorld, number: int, host: int, cpu: Serial) -> None:
        """Of process `number` of its world."""
        self.world = world
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
        asked = _Asking(self, address, self.cpu.spend(now, self.costs.connect_s))
        if deadline_s < self.costs.syn_give_up_s:  # else the kernel gives up before
            self.loop.at(now + deadline_s, asked.give_up, deadline_s)
        try:
            return await asked.future
        finally:
            asked.over = True

    def close(self) -> None:
        """End the process: its connections are reset, its listeners closed. Idempotent."""
        for each in list(self.open):
            each.abort()
        self.open.clear()


class _Asking:
    """A connection that is asked for."""

    __slots__ = ("address", "began", "future", "message_latency_s", "network", "over", "tries")

    def __init__(self, network: VirtualNetwork, address: Address, began: float) -> None:
        self.network = network
        self.address = address
        self.began = began
        self.future: asyncio.Future[VirtualChannel] = network.loop.create_future()
        self.over = False
        self.tries = 0
        self._ask(began)

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


class VirtualChannel(Pollable):
    """One end of a connection (see `emucoll.net.base.Channel`)."""

    __slots__ = (
        "_broken",
        "_closed",
        "_error",
        "_here",
        "_last",
        "_over",
        "_queue",
        "_queued",
        "_reading",
        "_wanted",
        "bound",
        "latency_s",
        "network",
        "peer",
        "unread",
    )

    def __init__(self, network: VirtualNetwork, latency_s: float) -> None:
        """Of a process; `peer` is set by who makes both ends."""
        super().__init__()
        self.network = network
        self.latency_s = latency_s
        self.peer: VirtualChannel = self
        self.bound = SEND_BOUND_BYTES
        self.unread = 0
        """Bytes sent to this end and not read."""
        self._here = bytearray()
        self._queue: deque[bytes] | None = None
        self._queued = 0
        self._last = 0.0
        """When the last that was sent from here arrives there."""
        self._wanted = 0
        """So many bytes the reader waits for."""
        self._reading = False
        """Is the CPU at it?"""
        self._over = self._closed = self._broken = False
        self._error: ConnectionClosed | None = None

    # -- sending

    def send(self, data: Buffer, messages: int = 1) -> Awaitable[None]:
        """See Channel.send."""
        if self._closed or self._broken:
            raise ConnectionClosed("the connection was lost: it is closed")
        counters = self.network.counters
        counters.messages += messages
        counters.bytes_sent += len(data)
        counters.writes += 1
        if self._queue is None:
            if self._room() >= len(data):
                self._transmit(bytes(data))
                return READY
            self._queue = deque()
        self._queue.append(bytes(data))
        self._queued += len(data)
        self._transmit_queue()
        return READY if self._queued <= self.bound else self._drained(self.bound)

    def _room(self) -> int:
        return self.network.costs.window_bytes - self.peer.unread

    def _transmit(self, data: bytes) -> None:
        network, costs, loop = self.network, self.network.costs, self.network.loop
        now = loop.time()
        leaves = now
        send_s = costs.send_s + costs.contention_s if self.both_ways else costs.send_s
        if send_s:
            leaves = network.cpu.spend(now, send_s)
        if costs.byte_s:
            leaves = network.wire.spend(leaves, costs.byte_s * len(data))
        arrives = leaves + self.latency_s
        world = network.world
        if world.jitter is not None:
            arrives += world.jitter()
        if world.links is not None:
            late_s = world.links.late_s(network.host, self.peer.network.host, leaves)
            arrives = math.inf if late_s is None else arrives + late_s
        if arrives < self._last:
            arrives = self._last
        self._last = arrives
        self.peer.unread += len(data)
        if arrives < math.inf:
            loop.at(arrives, self.peer._arrive, data)

    def _transmit_queue(self) -> None:
        """As much of the queue as there is room for."""
        queue = self._queue
        while queue and (room := self._room()) > 0:
            data = queue[0]
            if len(data) <= room:
                queue.popleft()
                self._queued -= len(data)
                self._transmit(data)
            else:
                queue[0] = data[room:]
                self._queued -= room
                self._transmit(data[:room])
        if not queue:
            self._queue = None
            if self.writer is not None:
                self.writer(None)

    def _room_made(self, _: None) -> None:
        """The peer has read, and word of it has come here."""
        if self._queue is not None:
            self._transmit_queue()

    def flush(self) -> Awaitable[None]:
        """See Channel.flush."""
        return self._drained(0) if self._queue or self._broken else READY

    async def acknowledged(self) -> None:
        """See Channel.acknowledged."""
        await self.flush()
        loop = self.network.loop
        if self._last == math.inf:
            await loop.create_future()  # nobody will say
        await self.network.world.clock.sleep(self._last + self.latency_s - loop.time())
        if self._broken or self._closed:
            raise ConnectionClosed("the connection was lost")

    @types.coroutine
    def _drained(self, limit: int) -> Generator[object, None, None]:
        while self._queue and self._queued > limit:
            yield from wait_writable(self)
        if self._broken:
            raise ConnectionClosed("the peer closed the connection while data was queued for it")

    # -- receiving

    def _arrive(self, data: bytes) -> None:
        """At this machine; whoever waits for it reads it as soon as his CPU is free."""
        if self._closed:
            self._answer_with_reset()
            return
        self._here += data
        if self.reader is not None and not self._reading and len(self._here) >= self._wanted:
            self._read()

    def _read(self) -> None:
        """What is wanted is here: reading it takes the CPU."""
        network = self.network
        recv_s = self._recv_s()
        if recv_s:
            self._reading = True
            network.loop.at(network.cpu.spend(network.loop.time(), recv_s), self._have_read)
        else:
            self._have_read(None)

    def _recv_s(self) -> float:
        costs = self.network.costs
        return costs.recv_s + costs.contention_s if self.both_ways else costs.recv_s

    def _have_read(self, _: None) -> None:
        self._reading = False
        if self.reader is not None:
            self.reader(None)

    def _wait_to_read(self, wanted: int) -> Generator[object, None, None]:
        """Until `wanted` bytes are here and read, or none will come any more."""
        self._wanted = wanted
        waits_for = begin_read_wait(self)
        if len(self._here) >= wanted:
            self._read()
        try:
            yield waits_for
        finally:
            self.reader = None

    @types.coroutine
    def recv(self, n: int) -> Generator[object, None, bytes]:
        """See Channel.recv. A window's worth at a time, so that more can come than it holds."""
        if not n or (len(self._here) >= n and not self._recv_s()):
            return self._give(n)
        most, parts = max(1, self.network.costs.window_bytes // 2), bytearray()
        try:
            while len(parts) < n:
                wanted = min(n - len(parts), most)
                if len(self._here) < wanted and (self._over or self._closed):
                    parts += self._give(wanted)
                    raise self._error or ConnectionClosed(
                        f"the peer closed the connection {n - len(parts)} bytes short of {n}"
                    )
                yield from self._wait_to_read(wanted)
                if len(self._here) >= wanted:
                    parts += self._give(n - len(parts))
        except BaseException:
            self._here[:0] = parts
            self.unread += len(parts)
            raise
        return bytes(parts)

    @types.coroutine
    def recv_some(self, limit: int) -> Generator[object, None, Buffer]:
        """See Channel.recv_some."""
        while True:
            if not self._here:
                if self._error is not None:
                    raise self._error
                if self._over:
                    return b""
                if self._closed:
                    raise ConnectionClosed("the channel was closed")
            yield from self._wait_to_read(1)
            if self._here:
                return self._give(limit)

    def _give(self, limit: int) -> bytes:
        data = bytes(self._here[:limit])
        del self._here[:limit]
        self.unread -= len(data)
        self.network.counters.reads += 1
        if data and self.peer._queue is not None:
            loop = self.network.loop
            loop.at(loop.time() + self.latency_s, self.peer._room_made)
        return data

    # -- the end

    def close(self) -> None:
        """See Channel.close. Unread bytes, or queued ones, make it a reset, as the kernel's do."""
        self._close(reset=bool(self._here))

    def abort(self) -> None:
        """Close with a reset."""
        self._close(reset=True)

    def _close(self, reset: bool) -> None:
        if self._closed:
            return
        self._closed = True
        self.network.open.pop(self, None)
        self._broken = self._broken or self._queue is not None
        self._queue, self._queued = None, 0
        self._here.clear()
        loop = self.network.loop
        when = max(self._last, loop.time() + self.latency_s + self._late_s())
        self._last = when
        if when < math.inf:
            loop.at(when, self.peer._reset if reset else self.peer._end)
        for wake in (self.writer, self.reader):
            if wake is not None:
                wake(None)

    def _late_s(self) -> float:
        """How late word of the end is."""
        links = self.network.world.links
        if links is None:
            return 0.0
        hosts = self.network.host, self.peer.network.host
        late_s = links.late_s(*hosts, self.network.loop.time())
        return math.inf if late_s is None else late_s

    def _end(self, _: None) -> None:
        """The peer has closed: after what was sent before."""
        self._over = True
        if self.reader is not None and not self._reading:
            self.reader(None)

    def _reset(self, _: None) -> None:
        """The peer's machine will take nothing more."""
        if self._closed:
            return
        self._broken = self._over = True
        if self._error is None:
            self._error = ConnectionClosed("the connection was lost: reset by the peer")
        self._queue, self._queued = None, 0
        for wake in (self.writer, self.reader):
            if wake is not None:
                wake(None)

    def _answer_with_reset(self) -> None:
        loop = self.network.loop
        loop.at(loop.time() + self.latency_s, self.peer._reset)
