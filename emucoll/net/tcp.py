"""The seam over real TCP, IPv4 and IPv6.

One epoll instance per process holds every socket, edge-triggered, registered once and only when
somebody first has to wait; the event loop (uvloop or asyncio) sees that one descriptor. An event is
dispatched with a dictionary look-up, so a block costs neither a loop handle nor an epoll_ctl.

A process binds its outgoing connections to its own source address without a port
(IP_BIND_ADDRESS_NO_PORT), so that the kernel picks the port at connect, by destination: one address
then carries far more connections than it has ports.

Must not know what the bytes mean.
"""

import asyncio
import errno
import fcntl
import os
import select
import socket
import sys
import termios
import time
import types
from collections.abc import Awaitable, Callable, Generator, Iterable

from emucoll.errors import ConnectFailed, ConnectionClosed, DeadlineExceeded, ListenFailed
from emucoll.net.base import (
    LISTEN_BACKLOG,
    READY,
    Address,
    Buffer,
    Channel,
    Pollable,
    begin_read_wait,
    never_inside_drive,
    wait_readable,
    wait_writable,
)
from emucoll.net.counters import Counters
from emucoll.net.dispatch import EVENTS_PER_POLL, InOrder, Watched

SMALL_BYTES = 4096
"""A message up to this size is put together from the pieces in which it comes; a larger one gets a
buffer of its size at its second piece.
"""
SEND_BOUND_BYTES = 256 * 1024
"""`send` suspends its caller while more than this is queued in user space."""
SCRATCH_BYTES = 256 * 1024
"""The most that `recv_some` returns. Reads of 64 KiB let kernel TCP memory pile up; see
docs/architecture.md.
"""
ACKNOWLEDGED_POLL_S, ACKNOWLEDGED_POLL_MAX_S = 0.01, 0.5
POLLS_A_TURN = 8
"""How often a turn asks for events that have come since it began: cheaper than a turn each."""

_IP_BIND_ADDRESS_NO_PORT = 24  # <linux/in.h>; the socket module names it only in later Pythons
_IN = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET
_INOUT = _IN | select.EPOLLOUT
GONE = select.EPOLLRDHUP | select.EPOLLHUP | select.EPOLLERR
_NOW = socket.MSG_DONTWAIT
_STREAM = socket.SOCK_STREAM | socket.SOCK_NONBLOCK
_BACKLOG_END = 28  # of struct tcp_info up to tcpi_unacked: of a listener, what waits to be accepted
_RESET = (errno.ECONNRESET, errno.EPIPE, errno.ETIMEDOUT, errno.ENOTCONN)


class TcpClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        """Seconds; the same origin for all processes of one machine."""
        return time.monotonic()

    async def sleep(self, s: float) -> None:
        """Suspend for `s` seconds; the loop's timers round to about 1 ms."""
        await asyncio.sleep(s)


class TcpChannel(Pollable):
    """One TCP connection (see `emucoll.net.base.Channel`). TCP_NODELAY is on."""

    __slots__ = (
        "_ahead",
        "_broken",
        "_fd",
        "_gone",
        "_network",
        "_queue",
        "_readable",
        "_registered",
        "_sock",
        "bound",
    )

    def __init__(
        self, network: "TcpNetwork", sock: socket.SocketType, fd: int, readable: bool
    ) -> None:
        """Take over a connected socket.

        `readable`: may something be there to read already? If so the first read finds out, else it
        waits at once.
        """
        super().__init__()
        self._network = network
        self._sock = sock
        self._fd = fd
        self._ahead = b""
        self._queue: bytearray | None = None
        self._readable = readable
        self._gone = self._broken = False
        self._registered = False
        self.bound = SEND_BOUND_BYTES
        network.channels[fd] = self

    # -- sending

    def send(self, data: Buffer, messages: int = 1) -> Awaitable[None]:
        """See Channel.send."""
        counters = self._network.counters
        counters.messages += messages
        counters.bytes_sent += len(data)
        if self._queue:
            self._queue += data
        else:
            counters.writes += 1
            try:
                sent = self._sock.send(data, _NOW)
            except BlockingIOError:
                sent = 0
            except OSError as error:
                raise self._closed(error) from None
            if sent == len(data):
                return READY
            self._queue = bytearray(memoryview(data)[sent:])
            self._await_writable()
        return READY if len(self._queue) <= self.bound else self._drained(self.bound)

    def flush(self) -> Awaitable[None]:
        """See Channel.flush."""
        return self._drained(0) if self._queue or self._broken else READY

    async def acknowledged(self) -> None:
        """See Channel.acknowledged. On loopback the answer is there at once, unless the peer's
        accept queue was full: then the kernel sends again and again, and this looks now and then.
        """
        await self.flush()
        pause_s = ACKNOWLEDGED_POLL_S
        while self._unacknowledged():
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, ACKNOWLEDGED_POLL_MAX_S)

    def _unacknowledged(self) -> bool:
        self._network.counters.other += 1
        waiting = fcntl.ioctl(self._fd, termios.TIOCOUTQ, bytes(4))  # SIOCOUTQ of a socket
        if waiting == bytes(4):
            return False
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise ConnectionClosed(f"the connection was lost: {os.strerror(code)}")
        return True

    @types.coroutine
    def _drained(self, limit: int) -> Generator[object, None, None]:
        while self._queue and len(self._queue) > limit:  # woken when the queue is empty
            yield from wait_writable(self)
        if self._broken:
            raise ConnectionClosed("the peer closed the connection while data was queued for it")

    def _await_writable(self) -> None:
        self._network.counters.other += 1
        if self._registered:
            self._network.epoll.modify(self._fd, _INOUT)
        else:
            self._network.epoll.register(self._fd, _INOUT)
            self._registered = True

    def _write_queue(self) -> None:
        """Write as much of the queue as the socket takes; what a lost peer left is dropped and told
        to the waiter.
        """
        queue = self._queue
        while queue:
            self._network.counters.writes += 1
            try:
                with memoryview(queue) as view:
                    sent = self._sock.send(view, _NOW)
            except BlockingIOError:
                return
            except OSError:
                self._broken = True
                break
            del queue[:sent]
        self._queue = None

    # -- receiving

    @types.coroutine
    def recv(self, n: int) -> Generator[object, None, bytes]:
        """See Channel.recv."""
        data = self._ahead
        try:
            while len(data) < n:
                if data and n > SMALL_BYTES:
                    break
                if not self._readable:
                    if not self._registered:
                        self._not_readable()
                    waits_for = begin_read_wait(self)
                    try:
                        yield waits_for
                    finally:
                        self.reader = None
                # One more than is wanted: a short answer tells that the socket is drained, which
                # saves an EAGAIN a wait. No more, so that each message costs its own read.
                want = n - len(data) + 1
                self._network.counters.reads += 1
                try:
                    more = self._sock.recv(want, _NOW)
                except BlockingIOError:
                    self._not_readable()
                    continue
                except OSError as error:
                    raise self._closed(error) from None
                if len(more) < want:
                    if not more:
                        raise self._short_of(n, len(data))
                    if not self._gone:
                        self._not_readable()
                data = data + more if data else more
        except BaseException:
            self._ahead = data
            raise
        if len(data) < n:
            return (yield from self._recv_large(data, n))
        if len(data) == n:
            self._ahead = b""
            return data
        self._ahead = data[n:]
        return data[:n]

    def _recv_large(self, head: bytes, n: int) -> Generator[object, None, bytes]:
        """A message of which `head` has come, into one buffer of its size."""
        buffer = bytearray(n)
        have = len(head)
        buffer[:have] = head
        try:
            with memoryview(buffer) as view:
                while have < n:
                    if not self._readable:
                        if not self._registered:
                            self._not_readable()
                        yield from wait_readable(self)
                    got = self._read_into(view[have:])
                    if got == 0:
                        raise self._short_of(n, have)
                    have += max(got, 0)
        except BaseException:
            self._ahead = bytes(buffer[:have])
            raise
        self._ahead = b""
        return bytes(buffer)

    def _short_of(self, n: int, have: int) -> ConnectionClosed:
        return ConnectionClosed(f"the peer closed the connection {n - have} bytes short of {n}")

    @types.coroutine
    def recv_some(self, limit: int) -> Generator[object, None, Buffer]:
        """See Channel.recv_some."""
        if self._ahead:
            data, self._ahead = self._ahead[:limit], self._ahead[limit:]
            return data
        view = self._network.scratch
        if limit < len(view):
            view = view[:limit]
        while True:
            if not self._readable:
                if not self._registered:
                    self._not_readable()
                waits_for = begin_read_wait(self)
                try:
                    yield waits_for
                finally:
                    self.reader = None
            got = self._read_into(view)
            if got >= 0:
                return view[:got]

    def _read_into(self, view: memoryview) -> int:
        """One read: bytes read, 0 at the end of the stream, -1 when nothing is there."""
        self._network.counters.reads += 1
        try:
            got = self._sock.recv_into(view, 0, _NOW)
        except BlockingIOError:
            self._not_readable()
            return -1
        except OSError as error:
            raise self._closed(error) from None
        if got < len(view) and got and not self._gone:
            self._not_readable()
        return got

    def _not_readable(self) -> None:
        self._readable = False
        if not self._registered:
            self._network.counters.other += 1
            self._network.epoll.register(self._fd, _IN)
            self._registered = True

    # -- events and the end

    def ready(self, event: int) -> None:
        """The kernel reported `event`: note it and resume whoever waits."""
        if event & GONE:
            self._gone = True
        if event & select.EPOLLOUT and self._queue:
            self._write_queue()
        if self.writer is not None and not self._queue:
            self.writer(None)
        if event & ~select.EPOLLOUT:
            self._readable = True
            if self.reader is not None:
                self.reader(None)

    def _closed(self, error: OSError) -> Exception:
        if error.errno in _RESET or self._fd < 0:
            return ConnectionClosed(f"the connection was lost: {error.strerror or error}")
        return ConnectFailed(f"the socket failed: {error.strerror or error}")

    def close(self) -> None:
        """See Channel.close."""
        if self._fd < 0:
            return
        if self._queue:
            self._write_queue()
        self._network.channels.pop(self._fd, None)
        self._fd = -1
        self._broken = self._broken or self._queue is not None
        self._queue = None
        self._sock.close()
        self._readable = True  # whoever waits here reads on, and meets the closed socket
        for wake in (self.writer, self.reader):
            if wake is not None:
                wake(None)

    def abort(self) -> None:
        """Close with a reset, leaving no TIME_WAIT behind. For the end of a run."""
        if self._fd >= 0:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
            self.close()


class TcpListener(Pollable):
    """A bound, listening socket (see `emucoll.net.base.Listener`)."""

    __slots__ = ("_fd", "_network", "_registered", "_sock", "address")

    def __init__(self, network: "TcpNetwork", sock: socket.SocketType, address: Address) -> None:
        """Take over a listening, non-blocking socket."""
        super().__init__()
        self._network = network
        self._sock = sock
        self._fd = sock.fileno()
        self._registered = False
        self.address = address
        network.channels[self._fd] = self

    async def accept(self) -> TcpChannel:
        """See Listener.accept. A peer that went away before it was accepted is passed over."""
        never_inside_drive("Listener.accept")
        while (channel := self._take()) is None:
            self._watch()
            await wait_readable(self)
        return channel

    def waiting(self) -> int:
        """Connections that nobody has accepted yet; 0 where the kernel does not say."""
        if self._fd < 0:
            return 0
        info = self._sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BACKLOG_END)
        return int.from_bytes(info[_BACKLOG_END - 4 :], sys.byteorder) if info else 0

    def _watch(self) -> None:
        if not self._registered:
            self._network.counters.other += 1
            self._network.epoll.register(self._fd, select.EPOLLIN | select.EPOLLET)
            self._registered = True

    def _take(self) -> TcpChannel | None:
        """The next connection, None when there is none yet; errors as of `accept`."""
        while True:
            self._network.counters.accepts += 1
            try:
                fd, _ = self._sock._accept()  # type: ignore[attr-defined]  # half of what accept() costs
            except BlockingIOError:
                return None
            except (ConnectionAbortedError, InterruptedError):
                continue
            except OSError as error:
                if self._fd < 0:
                    raise ConnectionClosed("the listener was closed") from None
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    raise ListenFailed(
                        f"no descriptor left to accept with ({error.strerror})"
                    ) from None
                raise ListenFailed(f"accept failed: {error.strerror}") from None
            return self._network.adopt(fd)

    def ready(self, _event: int) -> None:
        """A peer is there to accept. When nobody waits for one, the next `accept` finds it."""
        if self.reader is not None:
            self.reader(None)

    def close(self) -> None:
        """See Listener.close."""
        if self._fd < 0:
            return
        self._network.channels.pop(self._fd, None)
        self._fd = -1
        self._sock.close()
        if self.reader is not None:
            self.reader(None)

    abort = close


class _Connecting(Pollable):
    """A connect that the kernel has not finished."""

    __slots__ = ("_sock",)

    def __init__(self, sock: socket.SocketType) -> None:
        super().__init__()
        self._sock = sock

    def ready(self, _event: int) -> None:
        if self.writer is not None:
            self.writer(None)

    def abort(self) -> None:
        """Give up: whoever waits for it meets the closed socket."""
        self._sock.close()
        self.ready(0)


class TcpNetwork:
    """Every socket of this process (see `emucoll.net.base.Network`)."""

    def __init__(self, source: str, after_dispatch: Callable[[], None] | None = None) -> None:
        """Live on address `source`, IPv4 or IPv6, inside the running event loop."""
        self.source = source
        self.counters = Counters()
        self.epoll = select.epoll()
        self.channels: dict[int, Watched] = {}
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.peak_descriptors = 0
        self._ordered: InOrder | None = None
        self._family = socket.AF_INET6 if ":" in source else socket.AF_INET
        self._after_dispatch = after_dispatch
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self.epoll.fileno(), self._dispatch)

    def _dispatch(self) -> None:
        channels, poll = self.channels, self.epoll.poll
        for _ in range(POLLS_A_TURN):
            self.counters.other += 1
            events = poll(0, EVENTS_PER_POLL)
            for fd, event in events:
                channel = channels.get(fd)
                if channel is not None:  # else closed by an earlier event of this very batch
                    channel.ready(event)
            if not events:
                break
        if self._after_dispatch is not None:
            self._after_dispatch()

    def dispatch_in_order(self, channels: Iterable[tuple[Channel, float]]) -> None:
        """From now on, of all channels with something to do, the one of lowest order goes first.

        For a pipelined ring: what travels through the ranks of one process then moves as one piece.
        Served first come, first served, it breaks into as many pieces as there are ranks, each with
        a read and a write of its own, and pieces that move at one speed never meet again.
        """
        for channel, order in channels:
            assert isinstance(channel, TcpChannel)
            channel.order = order
        if self._ordered is None:
            self._ordered = InOrder(
                self._loop, self.epoll, self.channels, self.counters, self._dispatch_ordered
            )
            self._loop.add_reader(self.epoll.fileno(), self._dispatch_ordered)

    def _dispatch_ordered(self) -> None:
        assert self._ordered is not None
        self._ordered.dispatch()
        if self._after_dispatch is not None:
            self._after_dispatch()

    def listen(self, backlog: int = LISTEN_BACKLOG) -> TcpListener:
        """See Network.listen."""
        self.counters.other += 3
        try:
            sock, _ = self._socket()
        except OSError as error:
            raise ListenFailed(f"no socket for a listener: {error.strerror}") from None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # whoever is accepted has it
            sock.bind((self.source, 0))
            sock.listen(backlog)
            name = sock.getsockname()
        except OSError as error:
            sock.close()
            why = (
                "all ephemeral ports of this address are taken"
                if error.errno == errno.EADDRINUSE
                else error.strerror
            )
            raise ListenFailed(f"no listener on {self.source}: {why}") from None
        return self._listener(sock, Address(*name))

    def _socket(self) -> tuple[socket.SocketType, int]:
        sock = socket.SocketType(self._family, _STREAM)
        fd = sock.fileno()
        if fd > self.peak_descriptors:
            self.peak_descriptors = fd
        return sock, fd

    def _listener(self, sock: socket.SocketType, address: Address) -> TcpListener:
        return TcpListener(self, sock, address)

    def _channel(self, sock: socket.SocketType, fd: int, readable: bool) -> TcpChannel:
        return TcpChannel(self, sock, fd, readable)

    def adopt(self, fd: int) -> TcpChannel:
        """Make a Channel of an accepted connection."""
        if fd > self.peak_descriptors:
            self.peak_descriptors = fd
        sock = socket.SocketType(self._family, _STREAM, 0, fd)
        return self._channel(sock, fd, readable=True)

    async def connect(self, address: Address, deadline_s: float) -> TcpChannel:
        """See Network.connect."""
        never_inside_drive("Network.connect")
        self.counters.connects += 1
        try:
            sock, fd = self._socket()
        except OSError as error:
            raise ConnectFailed(
                f"no socket to connect to {address}: {error.strerror}", error.errno or 0
            ) from None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._family == socket.AF_INET:
                sock.setsockopt(socket.IPPROTO_IP, _IP_BIND_ADDRESS_NO_PORT, 1)
                sock.bind((self.source, 0))
            target = address if self._family == socket.AF_INET6 else address[:2]
            code = sock.connect_ex(target)
            if code == errno.EINPROGRESS:
                # On loopback the answer is there already, but was set aside while connect held the
                # socket: ask again.
                code = sock.connect_ex(target)
            if code == errno.EALREADY:
                code = await self._finish_connect(sock, address, deadline_s)
            if code:
                raise ConnectFailed(f"cannot connect to {address}: {os.strerror(code)}", code)
        except OSError as error:
            sock.close()
            raise ConnectFailed(
                f"cannot connect to {address}: {error.strerror}", error.errno or 0
            ) from None
        except BaseException:
            sock.close()
            raise
        return self._channel(sock, fd, readable=False)

    async def _finish_connect(
        self, sock: socket.SocketType, address: Address, deadline_s: float
    ) -> int:
        fd = sock.fileno()
        connecting = _Connecting(sock)
        self.channels[fd] = connecting
        self.epoll.register(fd, select.EPOLLOUT | select.EPOLLET)
        self.counters.other += 2
        try:
            async with asyncio.timeout(deadline_s):
                await wait_writable(connecting)
        except TimeoutError:
            raise DeadlineExceeded(f"{address} did not answer within {deadline_s:g} s") from None
        finally:
            if sock.fileno() >= 0:
                del self.channels[fd]
                self.epoll.unregister(fd)
        return sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    @property
    def held_descriptors(self) -> int:
        """Sockets that are open."""
        return len(self.channels)

    def close(self) -> None:
        """Reset every connection, close every listener and the epoll instance."""
        for channel in list(self.channels.values()):
            channel.abort()
        self.channels.clear()
        if self._ordered is not None:
            self._ordered.close()
        if not self.epoll.closed:
            self._loop.remove_reader(self.epoll.fileno())
            self.epoll.close()
