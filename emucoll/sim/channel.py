"""One end of a connection over a modelled network.

What is sent leaves when the sender's CPU has had `send_s` for it and its network the bytes, arrives
a latency later, and is the reader's when his CPU has had `recv_s` for the read. What is sent on one
connection arrives in order.
"""

import math
import types
from collections import deque
from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING

from emucoll.errors import ConnectionClosed
from emucoll.net.base import (
    READY,
    Buffer,
    Pollable,
    begin_read_wait,
    wait_writable,
)
from emucoll.sim.path import Piece, What

if TYPE_CHECKING:
    from emucoll.sim.network import VirtualNetwork

SEND_BOUND_BYTES = 256 * 1024
"""`send` suspends its caller while more than this is queued beyond the connection's window."""


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
        "causes",
        "latency_s",
        "network",
        "peer",
        "unread",
    )

    def __init__(self, network: "VirtualNetwork", latency_s: float) -> None:
        """Of a process; `peer` is set by who makes both ends."""
        super().__init__()
        self.network = network
        self.latency_s = latency_s
        self.peer: VirtualChannel = self
        self.bound = SEND_BOUND_BYTES
        self.causes: deque[Piece | None] | None = None
        """Of what is on its way here, where that is recorded."""
        self.unread = 0
        """Bytes sent to this end and not read."""
        self._here: bytes | bytearray = b""
        """What has arrived and is not read: one message is not copied, of several one is made."""
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
        world = network.world
        before = None
        if world.path is not None:
            before = world.path.close(network.number, now, network.cpu.done_s(now))
        send_s = costs.send_s + costs.contention_s if self.both_ways else costs.send_s
        if send_s:
            leaves = network.cpu.spend(now, send_s)
        written = leaves
        if costs.byte_s:
            leaves = network.wire.spend(leaves, costs.byte_s * len(data))
        arrives = leaves + self.latency_s
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
            if world.path is not None:
                ends: tuple[tuple[float, What], ...] = (
                    (written, "cpu"),
                    (leaves, "bytes"),
                    (arrives, "latency"),
                )
                self.peer.comes(world.path.goes_on(before, network.number, ends))
            loop.at(arrives, self.peer._arrive, data)

    def comes(self, cause: Piece | None) -> None:
        """Something is on its way here."""
        if self.causes is None:
            self.causes = deque()
        self.causes.append(cause)

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
        cause = self.causes.popleft() if self.causes else None
        if self._closed:
            self._answer_with_reset()
            return
        here = self._here
        if not here:
            self._here = data
        elif isinstance(here, bytearray):
            here += data
        else:
            self._here = bytearray(here) + data
        if self.reader is not None and not self._reading and len(self._here) >= self._wanted:
            if cause is not None and (path := self.network.world.path) is not None:
                self.network.woken(path, cause)
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
            self._here = bytes(parts) + self._here
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
        here = self._here
        data = bytes(here[:limit])
        if limit >= len(here):
            self._here = b""
        elif isinstance(here, bytearray):
            del here[:limit]
        else:
            self._here = here[limit:]
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
        self._here = b""
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
