"""The order in which a network serves the descriptors that have something to do: by a number of
theirs, instead of as they come.
"""

import asyncio
import select
from collections.abc import Callable, Mapping
from heapq import heappop, heappush
from typing import Protocol

from emucoll.net.counters import Counters

EVENTS_PER_POLL = 1024
ORDERED_BATCH = 512
"""Events that are served in order before the event loop gets its turn."""


class Watched(Protocol):
    """What a network dispatches the events of a descriptor to."""

    order: float

    def ready(self, event: int, /) -> None:
        """The kernel reported `event`."""

    def abort(self) -> None:
        """Close, leaving nothing behind."""


class InOrder:
    """Serves, of all that wait, the descriptor of lowest order; asks for news before each."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        epoll: select.epoll,
        channels: Mapping[int, Watched],
        counters: Counters,
        again: Callable[[], None],
    ) -> None:
        """Serve the `channels` of an `epoll` instance, by descriptor. `again` is to call `dispatch`
        in a later turn of the loop.
        """
        self._loop = loop
        self._dispatch_again = again
        self._epoll = epoll
        self._channels = channels
        self._counters = counters
        self._pending: dict[int, int] = {}
        self._heap: list[tuple[float, int]] = []
        self._again: asyncio.Handle | None = None

    def dispatch(self) -> None:
        """Serve a batch; what is left follows in the loop's next turn."""
        channels, pending, heap = self._channels, self._pending, self._heap
        for _ in range(ORDERED_BATCH):
            self._counters.other += 1
            for fd, event in self._epoll.poll(0, EVENTS_PER_POLL):
                if fd in pending:
                    pending[fd] |= event
                elif fd in channels:
                    pending[fd] = event
                    heappush(heap, (channels[fd].order, fd))
            if not heap:
                break
            _, fd = heappop(heap)
            event = pending.pop(fd)
            if fd in channels:
                channels[fd].ready(event)
        if heap and self._again is None:
            self._again = self._loop.call_soon(self._dispatch_rest)

    def _dispatch_rest(self) -> None:
        self._again = None
        self._dispatch_again()

    def close(self) -> None:
        """Serve nobody any more."""
        if self._again is not None:
            self._again.cancel()
