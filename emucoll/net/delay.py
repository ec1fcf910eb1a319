"""Real TCP whose messages arrive late: each is held back on the receiving side for a hop's latency.

With it a run of few ranks is bound by latency, as a cluster is, not by this machine's cores. What a
read brings is due `delay_s` after it came, however much came before it: messages under way at the
same time are late by the same, not one after the other. When it came is the kernel's to say
(SO_TIMESTAMPNS): a process that is busy with other ranks reads it later, and that wait is part of
the delay, not on top of it. A connection's end is late as well; its establishment is not. Event
loops round their timers to a millisecond, so one timerfd for each network keeps the time, to some
microseconds.

A late channel reads as soon as anything comes, wanted or not, so that the kernel's buffers never
hold a sender up.
"""

import ctypes
import errno
import os
import select
import socket
import struct
import time
import types
from collections import deque
from collections.abc import Callable, Generator
from heapq import heappop, heappush
from itertools import count

from emucoll.errors import ConnectionClosed, NetworkError
from emucoll.net.base import (
    Address,
    Buffer,
    Pollable,
    begin_read_wait,
    never_inside_drive,
    wait_readable,
)
from emucoll.net.tcp import GONE, TcpChannel, TcpListener, TcpNetwork

_CLOCK_MONOTONIC, _NONBLOCK, _CLOEXEC, _ABSOLUTE = 1, 0o4000, 0o2000000, 1  # <sys/timerfd.h>
_READ_BYTES = 64 * 1024
TAKEN_CONNECTIONS = 4096
"""While a listener holds as many that nobody has accepted, the rest stays in the kernel."""
HELD_BYTES = 4 << 20
"""While a channel holds more than this, the rest stays in the kernel."""
_NANO = 1_000_000_000
_SO_TIMESTAMPNS = 35  # <asm-generic/socket.h>; of its control message too
_TIMESPEC = struct.Struct("@qq")
_NOTE_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)


class _Timerfd:
    """One absolute timer of the kernel's monotonic clock."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK | _CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create")

    def set(self, at_s: float) -> None:
        """Expire once at `at_s`; at once, if that has passed."""
        nanoseconds = max(1, round(at_s * _NANO))
        # struct itimerspec: no interval, then the first expiry.
        spec = (ctypes.c_long * 4)(0, 0, *divmod(nanoseconds, _NANO))
        if self._libc.timerfd_settime(self.fd, _ABSOLUTE, spec, None):
            raise OSError(ctypes.get_errno(), "timerfd_settime")

    def close(self) -> None:
        os.close(self.fd)


class Alarms(Pollable):
    """Calls at given times, of one network: its epoll sees one timerfd."""

    def __init__(self, network: TcpNetwork) -> None:
        super().__init__()
        self._timer = _Timerfd()
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._number = count()
        self._set_for = float("inf")
        self._network = network
        network.channels[self._timer.fd] = self
        network.epoll.register(self._timer.fd, select.EPOLLIN | select.EPOLLET)

    def at(self, due_s: float, call: Callable[[], None]) -> None:
        """Call at `due_s` on the monotonic clock."""
        heappush(self._heap, (due_s, next(self._number), call))
        self._set()

    def _set(self) -> None:
        if self._heap and self._heap[0][0] < self._set_for:
            self._set_for = self._heap[0][0]
            self._timer.set(self._set_for)
            self._network.counters.other += 1

    def ready(self, _event: int) -> None:
        """The timer expired: make the calls that are due."""
        self._set_for = float("inf")
        while self._heap and self._heap[0][0] <= time.monotonic():
            heappop(self._heap)[2]()
        self._set()

    def abort(self) -> None:
        """Close the timer."""
        self._heap.clear()
        self._timer.close()


class LateChannel(TcpChannel):
    """A TcpChannel that receives `delay_s` late; sending is as ever."""

    __slots__ = ("_alarms", "_coming", "_error", "_full", "_here", "_held", "_over", "delay_s")

    def __init__(
        self,
        network: "LateNetwork",
        sock: socket.SocketType,
        fd: int,
        readable: bool,
    ) -> None:
        """See TcpChannel; what has come already is late from now on."""
        super().__init__(network, sock, fd, readable)
        self.delay_s = network.delay_s
        self._alarms = network.alarms
        self._coming: deque[tuple[float, bytes]] = deque()
        self._here = bytearray()
        self._held = 0
        self._over = self._full = False
        self._error: Exception | None = None
        sock.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
        self._not_readable()
        if readable:
            self._take()

    def ready(self, event: int) -> None:
        """See TcpChannel.ready; what can be read is taken, to be due later."""
        super().ready(event & select.EPOLLOUT)
        self._gone = self._gone or bool(event & GONE)
        if event & ~select.EPOLLOUT and self._fd >= 0:
            self._take()

    def _take(self) -> None:
        while not self._full:
            self._network.counters.reads += 1
            age_s = 0.0
            try:
                data, notes, _, _ = self._sock.recvmsg(
                    _READ_BYTES, _NOTE_BYTES, socket.MSG_DONTWAIT
                )
                if notes:
                    age_s = _age_s(notes[0][2])
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno == errno.EINTR:
                    continue
                self._error = self._closed(error)
                data = b""
            self._held += len(data)
            self._full = self._held > HELD_BYTES
            due = time.monotonic() + max(0.0, self.delay_s - age_s)
            self._coming.append((due, data))
            self._alarms.at(due, self._arrive)
            if not data or (len(data) < _READ_BYTES and not self._gone):
                return

    def _arrive(self) -> None:
        """What is due now is here."""
        now = time.monotonic()
        while self._coming and self._coming[0][0] <= now:
            data = self._coming.popleft()[1]
            self._over = self._over or not data
            self._here += data
        if self.reader is not None:
            self.reader(None)

    @types.coroutine
    def recv(self, n: int) -> Generator[object, None, bytes]:
        """See Channel.recv."""
        parts = bytearray()  # so that more can come than a channel holds
        try:
            while len(parts) + len(self._here) < n:
                parts += self._give(n)
                if not self._here and (self._over or self._fd < 0):
                    raise self._error or self._short_of(n, len(parts))
                yield from self._wait()
        except BaseException:
            self._here[:0] = parts
            self._held += len(parts)
            raise
        return bytes(parts + self._give(n - len(parts))) if parts else self._give(n)

    @types.coroutine
    def recv_some(self, limit: int) -> Generator[object, None, Buffer]:
        """See Channel.recv_some."""
        while not self._here:
            if self._error is not None:
                raise self._error
            if self._over:
                return b""
            if self._fd < 0:
                raise ConnectionClosed("the channel was closed")
            yield from self._wait()
        return self._give(limit)

    def _give(self, limit: int) -> bytes:
        data = bytes(self._here[:limit])
        del self._here[:limit]
        self._held -= len(data)
        if self._full and self._held <= HELD_BYTES:
            self._full = False
            self._take()
        return data

    def _wait(self) -> Generator[object, None, None]:
        waits_for = begin_read_wait(self)
        try:
            yield waits_for
        finally:
            self.reader = None


def _age_s(stamp: bytes) -> float:
    """How long ago the kernel got what it has stamped so; 0 for a clock that was set back."""
    seconds, nanoseconds = _TIMESPEC.unpack(stamp)
    age_s: float = time.time() - (seconds + nanoseconds / _NANO)
    return max(0.0, age_s)


class LateListener(TcpListener):
    """A TcpListener that takes connections when they come, wanted or not, so that what they bring
    is late from then on, and not from when somebody accepts them.
    """

    __slots__ = ("_error", "_taken")

    def __init__(self, network: "LateNetwork", sock: socket.SocketType, address: Address) -> None:
        """See TcpListener."""
        super().__init__(network, sock, address)
        self._taken: deque[TcpChannel] = deque()
        self._error: NetworkError | None = None
        self._watch()

    def ready(self, _event: int) -> None:
        """Peers are there: take them all."""
        self._take_all()
        super().ready(_event)

    def _take_all(self) -> None:
        try:
            while len(self._taken) < TAKEN_CONNECTIONS and (channel := self._take()) is not None:
                self._taken.append(channel)
        except NetworkError as error:
            self._error = error

    def waiting(self) -> int:
        """See TcpListener."""
        return super().waiting() + len(self._taken)

    async def accept(self) -> TcpChannel:
        """See Listener.accept."""
        never_inside_drive("Listener.accept")
        while not self._taken:
            error, self._error = self._error, None
            if error is not None:
                raise error
            self._take_all()  # after an error, or where too many had come
            if not self._taken and self._error is None:
                if self._fd < 0:
                    raise ConnectionClosed("the listener was closed")
                await wait_readable(self)
        return self._taken.popleft()

    def close(self) -> None:
        """See Listener.close."""
        for channel in self._taken:
            channel.abort()
        self._taken.clear()
        super().close()

    abort = close


def make_network(
    source: str, delay_s: float, after_dispatch: Callable[[], None] | None = None
) -> TcpNetwork:
    """A network whose messages are `delay_s` late; an ordinary one for 0."""
    if delay_s:
        return LateNetwork(source, delay_s, after_dispatch)
    return TcpNetwork(source, after_dispatch)


class LateNetwork(TcpNetwork):
    """A TcpNetwork whose channels receive `delay_s` late, or as late as each one's own says."""

    def __init__(
        self, source: str, delay_s: float, after_dispatch: Callable[[], None] | None = None
    ) -> None:
        """See TcpNetwork."""
        super().__init__(source, after_dispatch)
        self.delay_s = delay_s
        self.alarms = Alarms(self)

    @property
    def held_descriptors(self) -> int:
        """Sockets that are open, the timer left out."""
        return super().held_descriptors - 1

    def _listener(self, sock: socket.SocketType, address: Address) -> TcpListener:
        return LateListener(self, sock, address)

    def _channel(self, sock: socket.SocketType, fd: int, readable: bool) -> TcpChannel:
        return LateChannel(self, sock, fd, readable)
