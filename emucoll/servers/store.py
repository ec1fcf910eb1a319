"""The TCPStore server as a coroutine against the seam: PyTorch's protocol, one state, a coroutine
per client.

A client costs one directly stepped coroutine, no Task: it only ever waits for its own channel. What
wakes a waiting client is written to that client's channel by whoever changed the key. A client's
replies leave in the order of its requests. It must not know which network it runs on.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from emucoll.errors import ConnectionClosed, EmucollError, ListenFailed, RemoteProtocolError
from emucoll.net.base import Buffer, Channel, Clock, Listener, begin_drive
from emucoll.servers.store_state import StoreState
from emucoll.trace import Strangers
from emucoll.wire.tcpstore_parser import RequestParser

_READ_BYTES = 256 * 1024


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
        self.dropped = Strangers()
        """Why peers were turned away, one text each."""
        self._clock = clock
        self._handshake_s = handshake_s
        self._on_connect = on_connect
        self._greeted: dict[Channel, float] = {}
        """Clients that have not said anything valid yet, oldest first, and when they came."""
        self._somebody = asyncio.Event()
        self._clients: dict[Channel, Coroutine[Any, Any, None]] = {}
        self._fault: BaseException | None = None
        self._handled: Channel | None = None
        """The client whose requests are being handled, and what it is to be sent for them."""
        self._replies: list[bytes] = []

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
                self._somebody.set()
                self._clients[channel] = client = self._client(channel)
                begin_drive(client, partial(self._client_failed, listener))
        except ConnectionClosed:
            if self._fault is not None:
                raise self._fault from None
            raise
        finally:
            sweeper.cancel()
            for client in list(self._clients.values()):
                client.close()

    def _client_failed(self, listener: Listener, error: BaseException) -> None:
        """What only a mistake of ours can raise ends the whole server."""
        self._fault = error
        listener.close()

    async def _client(self, channel: Channel) -> None:
        parser = RequestParser()
        try:
            while data := await channel.recv_some(_READ_BYTES):
                replies: list[bytes] = []
                try:
                    self._handle(channel, parser, data, replies)
                except RemoteProtocolError:
                    if replies:
                        await _send(channel, replies)
                    await channel.flush()
                    raise
                if replies:
                    await _send(channel, replies)
        except EmucollError as error:
            if channel in self._greeted or not isinstance(error, ConnectionClosed):
                self.dropped.append(str(error))
        finally:
            del self._clients[channel]
            self._greeted.pop(channel, None)
            self.state.disconnect(channel)
            channel.close()

    def _handle(
        self, channel: Channel, parser: RequestParser, data: Buffer, replies: list[bytes]
    ) -> None:
        """Do what the requests in `data` ask, in order, and collect the replies; when the client
        breaks the protocol in it, what came before counts all the same.
        """
        try:
            parser.feed(data)
        finally:
            if parser.completed and channel in self._greeted:
                self._greet(channel)
            self._handled, self._replies = channel, replies
            try:
                for request in parser.completed:
                    if reply := self.state.handle(channel, request):
                        replies.append(reply)
            finally:
                self._handled = None

    def _greet(self, channel: Channel) -> None:
        del self._greeted[channel]
        self.validated += 1
        if self._on_connect is not None:
            self._on_connect(self.validated)

    def _wake(self, client: object, reply: bytes) -> None:
        if client is self._handled:
            self._replies.append(reply)
            return
        channel: Channel = client  # type: ignore[assignment]
        try:
            channel.send(reply)
        except RemoteProtocolError:
            channel.close()

    async def _drop_silent(self) -> None:
        """Waits where there is nobody to drop: in virtual time a clock that ticks for nobody would
        tick for ever.
        """
        while True:
            if not self._greeted:
                self._somebody.clear()
                await self._somebody.wait()
                continue
            channel, came = next(iter(self._greeted.items()))
            left_s = came + self._handshake_s - self._clock.now()
            if left_s > 0:
                await self._clock.sleep(left_s)
                continue
            self.dropped.append(f"said nothing valid for {self._handshake_s:g} s")
            del self._greeted[channel]
            channel.close()


def _send(channel: Channel, replies: list[bytes]) -> Awaitable[None]:
    return channel.send(b"".join(replies), messages=len(replies))
