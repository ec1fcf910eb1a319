"""An asyncio event loop whose clock jumps from event to event.

Of all events the earliest goes first, of those at one time the one that was asked for first, and
whatever it wakes runs to its next wait before the next event. So a run depends on its inputs alone.

Deadline timers are weak: a world in which only they remain is deadlocked, and ends with an error at
once instead of hours of virtual time later. A real socket, thread, signal or process is a named
error.
"""

import asyncio
import contextvars
import heapq
from collections.abc import Callable
from itertools import count
from typing import Any, TypeAlias, TypeVarTuple, Unpack

from emucoll.errors import Deadlock, NotInVirtualTime

_Ts = TypeVarTuple("_Ts")
_Event: TypeAlias = tuple[Callable[..., object], Any]
"""What to call, and with what."""

_MOST_CANCELLED = 1000
"""Timers that were cancelled and are kept until their time; above, and where they are half of all,
they are thrown away.
"""
WEAK_S = 60.0
"""Timeouts of so many seconds and more are deadlines, there to end what hangs."""


class VirtualLoop(asyncio.BaseEventLoop):
    """See the module. Starts at 0 s."""

    def __init__(self, weak_s: float = WEAK_S) -> None:
        """`weak_s`: from how many seconds on a timeout is a deadline."""
        super().__init__()
        self._weak_s = weak_s
        self._now = 0.0
        self._numbers = count()
        self._times: list[float] = []
        """A heap: at which there is something to do."""
        self._due: dict[float, list[_Event]] = {}
        """What, in the order in which it was asked for: ranks alike do much at one time."""
        self._here: list[_Event] = []
        """What is left of the present time's, the next one last."""
        self._deadlines: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._cancelled = 0
        self.events = 0
        """How many there have been."""

    def time(self) -> float:
        """Virtual seconds."""
        return self._now

    def at(self, when: float, call: Callable[[Any], object], argument: Any = None) -> None:
        """Call `call(argument)` at `when`, for who needs no handle to cancel it by. What has passed
        is now.
        """
        if when < self._now:
            when = self._now
        due = self._due.get(when)
        if due is None:
            self._due[when] = [(call, argument)]
            heapq.heappush(self._times, when)
        else:
            due.append((call, argument))

    def call_at(
        self,
        when: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        if _is_timeout(callback) and when - self._now >= self._weak_s:
            heapq.heappush(self._deadlines, (when, next(self._numbers), timer))
        else:
            self.at(when, self._expire, timer)
        return timer

    def call_later(
        self,
        delay: float,
        callback: Callable[[Unpack[_Ts]], object],
        *args: *_Ts,
        context: contextvars.Context | None = None,
    ) -> asyncio.TimerHandle:
        """See asyncio."""
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _expire(self, timer: asyncio.TimerHandle) -> None:
        if not timer.cancelled():
            self._ready.append(timer)  # type: ignore[attr-defined]

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """It stays where it is, and does nothing when its time comes; unless most are such."""
        self._cancelled += 1
        if self._cancelled < _MOST_CANCELLED or 2 * self._cancelled < len(self._times):
            return
        self._cancelled = 0
        expire = self._expire
        for when, due in list(self._due.items()):
            due[:] = [event for event in due if event[0] != expire or not event[1].cancelled()]
            if not due:
                del self._due[when]
        self._times = list(self._due)
        heapq.heapify(self._times)
        self._deadlines = [event for event in self._deadlines if not event[2].cancelled()]
        heapq.heapify(self._deadlines)

    def _run_once(self) -> None:
        """What asyncio's loops do again and again: everything that can run now, or one event."""
        ready = self._ready  # type: ignore[attr-defined]
        if not ready:
            if not self._stopping:  # type: ignore[attr-defined]
                self._advance()
            return
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle._cancelled:
                handle._run()

    def _advance(self) -> None:
        here = self._here
        if not here:
            deadlines, times = self._deadlines, self._times
            while deadlines and (deadlines[0][2].cancelled()):
                heapq.heappop(deadlines)
            if not times:
                raise Deadlock(self._now)
            if deadlines and deadlines[0][0] < times[0]:
                self._now, _, timer = heapq.heappop(deadlines)
                self._ready.append(timer)  # type: ignore[attr-defined]
                return
            self._now = heapq.heappop(times)
            here = self._here = self._due.pop(self._now)
            here.reverse()
        self.events += 1
        call, argument = here.pop()
        call(argument)

    def _write_to_self(self) -> None:
        """Nobody waits in the kernel."""

    def _process_events(self, event_list: object) -> None:
        """There are none of the kernel's."""


def _is_timeout(callback: Callable[..., object]) -> bool:
    """Is it asyncio's, there to end a wait?"""
    owner = getattr(callback, "__self__", None)
    return isinstance(owner, asyncio.Timeout) or callback.__name__ == "_release_waiter"


_REAL = {
    "a descriptor": "add_reader add_writer remove_reader remove_writer connect_read_pipe "
    "connect_write_pipe",
    "a signal": "add_signal_handler",
    "a thread": "run_in_executor",
    "a name server": "getaddrinfo getnameinfo",
    "a socket": "create_connection create_server create_datagram_endpoint create_unix_connection "
    "create_unix_server sock_connect sock_accept sock_recv sock_recv_into sock_recvfrom "
    "sock_recvfrom_into sock_sendall sock_sendto sock_sendfile sendfile start_tls",
    "a process": "subprocess_exec subprocess_shell",
}


def _refusing(name: str, what: str) -> Callable[..., object]:
    def refuse(*_: object, **__: object) -> object:
        raise NotInVirtualTime(
            f"{name}: what waits for {what} waits in real time, which stands still here; use the "
            "rank's network and clock"
        )

    return refuse


for _what, _names in _REAL.items():
    for _name in _names.split():
        setattr(VirtualLoop, _name, _refusing(_name, _what))
