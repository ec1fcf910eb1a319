"""The NCCL root as a coroutine against the seam: one connection at a time, replies sent eagerly
(2.23 and later) or after the last check-in (2.22 and before), as its state says.

It reads each check-in to its end before it accepts the next peer, as the real root's one thread
does. A real root waits for ever on a peer that stays silent; here that peer is dropped after
`handshake_s`. A peer with the right magic and a wrong socket type is dropped too, as by NCCL 2.30.7
and later; up to 2.30.4 the root quits. It must not know which network it runs on.
"""

from collections.abc import Callable

from emucoll.errors import ConnectFailed, RemoteProtocolError
from emucoll.net.base import Address, Channel, Clock, Listener, Network, within
from emucoll.net.retries import nccl_backoff, nccl_backoff_2_23, pause_s
from emucoll.servers.root_state import CollectingRootState, RootState
from emucoll.trace import Strangers
from emucoll.wire.nccl import (
    HELLO_BYTES,
    LENGTH_BYTES,
    CheckIn,
    CheckInLayout,
    SocketType,
    check_hello,
    frame,
    pack_hello,
    unpack_length,
)


class RootServer:
    """One root. `serve` ends when every rank has its successor's address."""

    def __init__(
        self,
        network: Network,
        clock: Clock,
        state: RootState | CollectingRootState,
        magic: int,
        layout: CheckInLayout,
        handshake_s: float = 10.0,
        on_check_in: Callable[[int], None] | None = None,
    ) -> None:
        """`on_check_in` hears how many ranks have checked in, after each."""
        self._network = network
        self._clock = clock
        self._state = state
        self._hello = pack_hello(magic, SocketType.BOOTSTRAP)
        self._magic = magic
        self._layout = layout
        self._handshake_s = handshake_s
        self._on_check_in = on_check_in
        self._backoff = nccl_backoff_2_23 if layout.collects else nccl_backoff
        self.connections = 0
        self.retries = 0
        self.dropped = Strangers()
        """Why peers were turned away, one text each."""

    async def serve(self, listener: Listener, deadline_s: float) -> None:
        """Take every check-in and answer it. Raises RemoteProtocolError when a rank's check-in
        contradicts the job.
        """
        while not self._state.complete:
            channel = await listener.accept()
            self.connections += 1
            check_in = await self._read(channel)
            channel.close()
            if check_in is None:
                continue
            await self._deliver(self._state.check_in(check_in), deadline_s)
            if self._on_check_in is not None:
                self._on_check_in(self._state.received)
        await self._deliver(self._state.finish(), deadline_s)

    async def _read(self, channel: Channel) -> CheckIn | None:
        try:
            return await within(self._handshake_s, self._read_check_in(channel))
        except TimeoutError:
            self.dropped.append(f"silent for {self._handshake_s:g} s in the middle of its check-in")
        except RemoteProtocolError as error:
            self.dropped.append(str(error))
        return None

    async def _read_check_in(self, channel: Channel) -> CheckIn:
        check_hello(await channel.recv(HELLO_BYTES), self._magic, SocketType.BOOTSTRAP)
        length = unpack_length(await channel.recv(LENGTH_BYTES), self._layout.size)
        return self._layout.unpack(await channel.recv(length))

    async def _deliver(self, replies: list[tuple[Address, Address]], deadline_s: float) -> None:
        for to, address in replies:
            channel = await self._connect(to, deadline_s)
            await channel.send(self._hello)
            await channel.send(frame(self._layout.pack_connect_info(address)))
            await channel.flush()
            channel.close()

    async def _connect(self, to: Address, deadline_s: float) -> Channel:
        backoff = self._backoff()
        while True:
            try:
                self.connections += 1
                return await self._network.connect(to, deadline_s)
            except ConnectFailed as error:
                wait_s = pause_s(backoff, error.code)
                if wait_s is None:
                    raise
            self.retries += 1
            await self._clock.sleep(wait_s)
