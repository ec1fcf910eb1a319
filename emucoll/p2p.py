"""NCCL's bootstrap point to point: a new TCP connection for every message, told apart by who sends
and a tag.

Source: bootstrapSend and bootstrapRecv, NCCL 2.23 to 2.31: the 12-byte hello, a framed (sender
rank, tag) pair of i32, then the payload. A peer may be ahead and connect before it is waited for:
its connection is kept until then. It must not know which network it runs on.
"""

import struct
from collections.abc import Callable

from emucoll.errors import RemoteProtocolError
from emucoll.formation.base import accept_bootstrap, connect_bootstrap
from emucoll.net.base import Address, Channel, Listener, within
from emucoll.rank import Job, Rank
from emucoll.wire.nccl import LENGTH_BYTES, frame, unpack_length

_SENDER = struct.Struct("<ii")
OPENING_BYTES = LENGTH_BYTES + _SENDER.size
"""What follows the hello on every connection."""


class PointToPoint:
    """One rank's end of all its connections of this kind."""

    def __init__(self, rank: Rank, job: Job, listener: Listener) -> None:
        """Peers connect to `listener`."""
        self._rank = rank
        self._job = job
        self._listener = listener
        self._early: dict[tuple[int, int], Channel] = {}

    async def connect(self, address: Address, tag: int) -> Channel:
        """A new connection to the rank that listens at `address`."""
        channel = await connect_bootstrap(self._rank, address, self._job)
        await channel.send(frame(_SENDER.pack(self._rank.rank, tag)))
        return channel

    async def accept(self, sender: int, tag: int) -> Channel:
        """The connection that rank `sender` opened with this tag."""
        while (channel := self._early.pop((sender, tag), None)) is None:
            channel = await accept_bootstrap(self._rank, self._listener, self._job)
            try:
                key = await within(self._job.handshake_s, _read_sender(channel))
            except TimeoutError:
                reason = f"silent for {self._job.handshake_s:g} s before it said who sends"
            except RemoteProtocolError as error:
                reason = str(error)
            else:
                if key not in self._early:
                    self._early[key] = channel
                    continue
                reason = f"rank {key[0]} connected with tag {key[1]} a second time"
            self._rank.trace.dropped.append(reason)
            channel.close()
        return channel

    def close(self) -> None:
        """Close what came and was never waited for."""
        for channel in self._early.values():
            channel.close()
        self._early.clear()


async def _read_sender(channel: Channel) -> tuple[int, int]:
    length = unpack_length(await channel.recv(LENGTH_BYTES), _SENDER.size)
    if length != _SENDER.size:
        raise RemoteProtocolError(f"{length} bytes came instead of a sender's rank and tag")
    sender, tag = _SENDER.unpack(await channel.recv(length))
    return sender, tag


class RingPeers:
    """The peers of a schedule, by their offset from this rank, once their addresses are known (see
    `emucoll.collectives.driver.Peers`).
    """

    def __init__(
        self,
        rank: Rank,
        job: Job,
        listener: Listener,
        addresses: Callable[[int], Address],
        outgoing: Callable[[Channel], Channel] | None = None,
    ) -> None:
        """`addresses` tells where each rank listens; `outgoing` is put around every connection
        that is made, for whoever injects faults.
        """
        self._outgoing = outgoing
        self._rank = rank.rank
        self._n = job.nranks
        self._p2p = PointToPoint(rank, job, listener)
        self._addresses = addresses

    async def connect(self, line: int, tag: int) -> Channel:
        """A new connection to rank + line."""
        channel = await self._p2p.connect(self._addresses((self._rank + line) % self._n), tag)
        return channel if self._outgoing is None else self._outgoing(channel)

    async def accept(self, line: int, tag: int) -> Channel:
        """The connection that rank + line opened with this tag."""
        return await self._p2p.accept((self._rank + line) % self._n, tag)
