"""The TCPStore server as a coroutine against the seam: PyTorch's protocol, one task per client, one
state.

A client costs one directly stepped coroutine, no Task: it only ever waits for its own channel. What
wakes a waiting client is written to that client's channel by whoever changed the key. It must not
know which network it runs on.
"""

import asyncio
from collections.abc import Callable

from emucoll.errors import EmucollError, ListenFailed, RemoteProtocolError
from emucoll.net.base import Channel, Clock, Listener, drive
from emucoll.servers.store_state import StoreState
from emucoll.wire.tcpstore_parser import RequestParser

_READ_BYTES = 64 * 1024


class StoreServer:
    """One store, whatever the number of its clients."""

    def __init__(
        self,
        clock: Clock,
        handshake_s: float = 10.0,
        on_connect: Callable[[int], None] | None = None,
    ) -> None:
        """`on_connect` hears how many clients have said something valid so far, after each."""
        self.state = StoreState(wake=self._wake)
        self.connections = 0
        self.validated = 0
        self.full = 0
        """How often no descriptor was left to accept with."""
        self.dropped: list[str] = []
        """Why peers were turned away, one text each."""
        self._clock = clock
        self._handshake_s = handshake_s
        self._on_connect = on_connect
        self._greeted: dict[Channel, float] = {}
        """Clients that have not said anything valid yet, oldest first, and when they came."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self, listener: Listener) -> None:
        """Accept clients until cancelled."""
        sweeper = asyncio.create_task(self._drop_silent())
        try:
            while True:
                try:
                    channel = await listener.accept()
                except ListenFailed:
                    # Out of descriptors: the kernel keeps newcomers waiting until a client leaves.
                    self.full += 1
                    await self._clock.sleep(0.001)
                    continue
                self.connections += 1
                self._greeted[channel] = self._clock.now()
                task = asyncio.create_task(drive(self._client(channel)))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
        finally:
            sweeper.cancel()
            for task in self._tasks:
                task.cancel()

    async def _client(self, channel: Channel) -> None:
        parser = RequestParser()
        handle = self.state.handle
        try:
            while data := await channel.recv_some(_READ_BYTES):
                requests = parser.feed(data)
                if not requests:
                    continue
                if channel in self._greeted:
                    self._greet(channel)
                replies = [reply for request in requests if (reply := handle(channel, request))]
                if replies:
                    await channel.send(b"".join(replies), messages=len(replies))
        except RemoteProtocolError as error:
            if channel in self._greeted:
                self.dropped.append(str(error))
        except EmucollError as error:
            self.dropped.append(str(error))
        finally:
            self._greeted.pop(channel, None)
            self.state.disconnect(channel)
            channel.close()

    def _greet(self, channel: Channel) -> None:
        del self._greeted[channel]
        self.validated += 1
        if self._on_connect is not None:
            self._on_connect(self.validated)

    def _wake(self, client: object, reply: bytes) -> None:
        channel: Channel = client  # type: ignore[assignment]
        try:
            channel.send(reply)
        except RemoteProtocolError:
            channel.close()

    async def _drop_silent(self) -> None:
        while True:
            await self._clock.sleep(min(1.0, self._handshake_s))
            limit = self._clock.now() - self._handshake_s
            for channel, came in list(self._greeted.items()):
                if came > limit:
                    break
                self.dropped.append(f"said nothing valid for {self._handshake_s:g} s")
                del self._greeted[channel]
                channel.close()
