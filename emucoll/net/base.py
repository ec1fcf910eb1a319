"""The seam: what a formation, a collective, a root or a store knows of the network, and nothing
else.

Two worlds implement it, real TCP (`emucoll.net.tcp`) and virtual time. Algorithms import this
module alone, so the same text runs in both. It holds the interfaces and the one wait primitive
under every Channel; it must not know of sockets, processes or trace files.

A Channel wait works in two ways. In an asyncio Task it costs a Future, as usual. Inside `drive` the
coroutine is stepped directly by the reader callback, with no Task and no Future per block; there,
only Channel waits are allowed.
"""

import asyncio
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import Any, Protocol, TypeVar

from emucoll.errors import DriveError
from emucoll.wire.address import Address, Buffer

__all__ = [
    "LISTEN_BACKLOG",
    "READY",
    "Address",
    "Buffer",
    "Channel",
    "Clock",
    "Listener",
    "Network",
    "Pollable",
    "begin_drive",
    "drive",
    "drive_all",
    "never_inside_drive",
    "within",
]


T = TypeVar("T")

LISTEN_BACKLOG = 16_384
"""Connections a listener may hold unaccepted (NCCL and PyTorch ask for as many); the kernel clamps
it to somaxconn.
"""


class Channel(Protocol):
    """One established connection: a byte stream in both directions."""

    bound: int
    """`send` suspends its caller while more bytes than this are queued."""
    both_ways: bool
    """Does the collective that runs on it use both its directions? Set by the driver."""

    def send(self, data: Buffer, messages: int = 1) -> Awaitable[None]:
        """Queue all of `data` at once, as `messages` messages of its protocol.

        The awaitable is back-pressure only: it suspends while more than the channel's bound is
        queued, and need not be awaited by a sender that reads before it sends again. Raises
        ConnectionClosed when the peer has gone.
        """

    def flush(self) -> Awaitable[None]:
        """Wait until everything that was sent is in the network's hands; ConnectionClosed when that
        can no longer be.
        """

    async def acknowledged(self) -> None:
        """Wait until the peer's machine has everything that was sent; ConnectionClosed when that
        can no longer be. Not for use inside `drive`.
        """

    def recv(self, n: int) -> Awaitable[bytes]:
        """Exactly `n` bytes; ConnectionClosed when the peer closes before. Bytes that had come when
        it failed or was cancelled are there for the next one.
        """

    def recv_some(self, limit: int) -> Awaitable[Buffer]:
        """1 to `limit` bytes, valid until the next await; empty at the end of the stream."""

    def close(self) -> None:
        """Give the connection back. Idempotent."""


class Listener(Protocol):
    """A bound address at which peers connect."""

    @property
    def address(self) -> Address:
        """Where peers reach this listener."""

    async def accept(self) -> Channel:
        """The next connection, in the order in which the network completed them. DriveError inside
        `drive`.
        """

    def close(self) -> None:
        """Stop listening; connections not yet accepted are reset. Idempotent."""


class Network(Protocol):
    """What one process sees of the network."""

    def listen(self, backlog: int = LISTEN_BACKLOG) -> Listener:
        """Bind an ephemeral port on this process's own address. Raises ListenFailed."""

    async def connect(self, address: Address, deadline_s: float) -> Channel:
        """One attempt. Raises ConnectFailed, or DeadlineExceeded after `deadline_s` seconds;
        DriveError inside `drive`.
        """


class Clock(Protocol):
    """Time as the ranks see it."""

    def now(self) -> float:
        """Seconds on a clock that never goes back; its origin means nothing."""

    async def sleep(self, s: float) -> None:
        """Suspend for `s` seconds."""


class _Ready:
    """An awaitable that never suspends."""

    def __await__(self) -> Generator[object, None, None]:
        return iter(())  # type: ignore[return-value]


READY = _Ready()
"""What a send that need not wait returns."""


class Pollable:
    """What the wait primitive needs of a channel: a place for whoever waits to read, and for
    whoever waits to write.
    """

    __slots__ = ("both_ways", "order", "reader", "writer")

    def __init__(self) -> None:
        """Nobody waits."""
        self.order = 0.0
        self.both_ways = False
        """Does the collective that runs on it use both its directions?"""
        self.reader: Callable[[None], object] | None = None
        self.writer: Callable[[None], object] | None = None


_CHANNEL_WAIT = object()
_step: Callable[[None], object] | None = None
"""The step function of the drive whose coroutine is running now; None while an ordinary Task runs.
"""


@types.coroutine
def wait_readable(channel: Pollable) -> Generator[object, None, None]:
    """Suspend until the network calls `channel.reader(None)`. One waiter per direction."""
    waits_for = begin_read_wait(channel)
    try:
        yield waits_for
    finally:
        channel.reader = None


@types.coroutine
def wait_writable(channel: Pollable) -> Generator[object, None, None]:
    """Suspend until the network calls `channel.writer(None)`. One waiter per direction."""
    waits_for = begin_write_wait(channel)
    try:
        yield waits_for
    finally:
        channel.writer = None


def begin_read_wait(channel: Pollable) -> object:
    """`wait_readable` for a caller that yields what is returned here, and then sets
    `channel.reader` to None, itself: a generator less on the way of every block.
    """
    assert channel.reader is None, "two readers wait on one channel"
    waits_for, channel.reader = _begin_wait()
    return waits_for


def begin_write_wait(channel: Pollable) -> object:
    """As `begin_read_wait`, for `wait_writable`."""
    assert channel.writer is None, "two writers wait on one channel"
    waits_for, channel.writer = _begin_wait()
    return waits_for


def _begin_wait() -> tuple[object, Callable[[None], object]]:
    """What the running coroutine is to yield, and what to call when it may go on."""
    if _step is not None:
        return _CHANNEL_WAIT, _step
    future = asyncio.get_running_loop().create_future()
    future._asyncio_future_blocking = True  # as its own __await__ says to the Task

    def wake(_: None) -> None:
        if not future.done():
            future.set_result(None)

    return future, wake


class _Tells(Protocol):
    """Who hears what becomes of a driven coroutine: one object a drive, not two bound methods."""

    def returned(self, result: Any, /) -> None: ...
    def failed(self, error: BaseException, /) -> None: ...


class _Drive:
    """One coroutine stepped from reader and writer callbacks."""

    __slots__ = ("coroutine", "resume", "send", "step", "teller")

    def __init__(
        self,
        coroutine: Coroutine[Any, Any, Any],
        teller: "_Tells",
        resume: Callable[[], object] | None = None,
    ) -> None:
        """`teller` hears what becomes of it."""
        self.coroutine = coroutine
        self.send = coroutine.send
        self.teller = teller
        self.resume = resume
        self.step = self._step if resume is None else self._metered_step

    def _metered_step(self, _: None) -> None:
        assert self.resume is not None
        self.resume()
        self._step(None)

    def _step(self, _: None) -> None:
        global _step
        outer, _step = _step, self.step
        try:
            waits_for = self.send(None)
        except StopIteration as stop:
            self.teller.returned(stop.value)
        except BaseException as error:
            self.teller.failed(error)
            if not isinstance(error, Exception):
                raise
        else:
            if waits_for is not _CHANNEL_WAIT:
                self._refuse(waits_for)
        finally:
            _step = outer

    def _refuse(self, waits_for: object) -> None:
        error = _refusal(
            getattr(self.coroutine, "__qualname__", "a coroutine"),
            _describe_wait(self.coroutine, waits_for),
        )
        self.coroutine.close()
        self.teller.failed(error)


def _describe_wait(coroutine: object, waits_for: object) -> str:
    """What a coroutine awaits: the kind of object, and the innermost named coroutine that does."""
    kind = "a bare yield (asyncio.sleep(0))" if waits_for is None else type(waits_for).__name__
    name, inner = None, getattr(coroutine, "cr_await", None)
    while inner is not None and hasattr(inner, "__qualname__"):
        name = inner.__qualname__
        inner = getattr(inner, "cr_await", None) or getattr(inner, "gi_yieldfrom", None)
    return kind if name is None else f"{kind} in {name}()"


def _refusal(who: str, what: str) -> DriveError:
    return DriveError(
        f"{who} awaited {what} inside drive(); only a Channel's send, flush, recv and recv_some "
        "may be awaited there: await everything else outside, in the rank's own Task"
    )


def never_inside_drive(what: str) -> None:
    """Raise DriveError inside `drive`: for what may suspend and is no Channel's, so that it fails
    always and not only when it has to wait.
    """
    if _step is not None:
        raise _refusal("a coroutine", what)


async def drive(coroutine: Coroutine[Any, Any, T], resume: Callable[[], object] | None = None) -> T:
    """Run a coroutine that awaits Channels only, stepped straight from their callbacks: one Future
    in all.

    `resume` is called before every step, for whoever meters CPU. Raises what the coroutine raises,
    and DriveError when it awaits anything but a Channel. When the Task that awaits it is cancelled,
    the coroutine is closed: so `asyncio.timeout` goes around `drive`, not inside.
    """
    future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    _Drive(coroutine, _Teller(future), resume).step(None)
    try:
        return await future
    finally:
        coroutine.close()


class _Teller:
    """Tells a Future, unless who waits for it was cancelled meanwhile."""

    __slots__ = ("_future",)

    def __init__(self, future: "asyncio.Future[Any]") -> None:
        self._future = future

    def returned(self, result: object) -> None:
        if not self._future.done():
            self._future.set_result(result)

    def failed(self, error: BaseException) -> None:
        if not self._future.done():
            self._future.set_exception(error)


async def drive_all(
    coroutines: Sequence[Coroutine[Any, Any, T]], resume: Callable[[], object] | None = None
) -> list[T]:
    """As `drive`, for several side by side, still one Future in all: what they return. The first
    error ends the others.
    """
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    left = [len(coroutines)]
    tellers = [_OneOf(future, left) for _ in coroutines]
    try:
        for coroutine, teller in zip(coroutines, tellers, strict=True):
            _Drive(coroutine, teller, resume).step(None)
        await future
    finally:
        for coroutine in coroutines:
            coroutine.close()
    return [teller.result for teller in tellers]


class _OneOf(_Teller):
    """Tells a Future when the last of several has returned."""

    __slots__ = ("_left", "result")

    def __init__(self, future: "asyncio.Future[None]", left: list[int]) -> None:
        """`left`: how many of them have not returned, shared by all."""
        super().__init__(future)
        self._left = left
        self.result: Any = None

    def returned(self, result: object) -> None:
        self.result = result
        self._left[0] -= 1
        if not self._left[0]:
            super().returned(None)


def begin_drive(
    coroutine: Coroutine[Any, Any, None], failed: Callable[[BaseException], None]
) -> None:
    """As `drive`, for whoever does not wait for it: the coroutine runs to its first wait now, and
    what it raises goes to `failed`. To end it, close it. No Task and no Future.
    """
    _Drive(coroutine, _Unawaited(failed)).step(None)


class _Unawaited:
    """Nobody waits for what the coroutine returns."""

    __slots__ = ("failed",)

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self.failed = failed

    def returned(self, result: object) -> None:
        """Nobody to tell."""


async def within(limit_s: float, coroutine: Coroutine[Any, Any, T]) -> T:
    """Await with a deadline; what need not wait costs no timer. Raises TimeoutError."""
    try:
        waits_for = coroutine.send(None)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]
    async with asyncio.timeout(limit_s):
        return await _rest(coroutine, waits_for)


@types.coroutine
def _rest(coroutine: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """Go on with a coroutine that has begun and `waits_for` something."""
    while True:
        try:
            try:
                value = yield waits_for
            except BaseException as error:
                waits_for = coroutine.throw(error)
            else:
                waits_for = coroutine.send(value)
        except StopIteration as stop:
            return stop.value  # type: ignore[no-any-return]
