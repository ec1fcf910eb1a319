"""NCCL's bootstrap point to point: a new TCP connection for every message, told apart by who sends
and a tag. On it, the barrier of a host's ranks.

Source: bootstrapSend, bootstrapRecv and bootstrapIntraNodeBarrier, NCCL 2.23 to 2.31: the 12-byte
hello, a framed (sender rank, tag) pair of i32, then the payload. 2.22 and before frame rank and tag
each for itself. A peer may be ahead and connect before it is waited for:
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
_NUMBER = struct.Struct("<i")
ALLGATHER_TAG = 1 << 30
"""BOOTSTRAP_TAG_ALLGATHER: so that no barrier's message is taken for one of these."""
_TAGS_A_CALL = 64
OPENING_BYTES = LENGTH_BYTES + _SENDER.size
"""What follows the hello on every connection."""


class PointToPoint:
    """One rank's end of all its connections of this kind."""

    def __init__(
        self, rank: Rank, job: Job, listener: Listener, tagged_apart: bool = False
    ) -> None:
        """Peers connect to `listener`. `tagged_apart`: sender and tag are two messages."""
        self._tagged_apart = tagged_apart
        self._rank = rank
        self._number = rank.rank  # here: it may have another in a group meanwhile
        self._job = job
        self._listener = listener
        self._early: dict[tuple[int, int], Channel] = {}

    async def connect(self, address: Address, tag: int) -> Channel:
        """A new connection to the rank that listens at `address`."""
        channel = await connect_bootstrap(self._rank, address, self._job)
        if self._tagged_apart:
            for number in (self._number, tag):
                await channel.send(frame(_NUMBER.pack(number)))
        else:
            await channel.send(frame(_SENDER.pack(self._number, tag)))
        return channel

    async def accept(self, sender: int, tag: int) -> Channel:
        """The connection that rank `sender` opened with this tag."""
        while (channel := self._early.pop((sender, tag), None)) is None:
            channel = await accept_bootstrap(self._rank, self._listener, self._job)
            try:
                key = await within(self._job.handshake_s, self._read_sender(channel))
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

    async def _read_sender(self, channel: Channel) -> tuple[int, int]:
        if self._tagged_apart:
            (sender,) = await _framed(channel, _NUMBER, "a sender's rank")
            (tag,) = await _framed(channel, _NUMBER, "a tag")
            return sender, tag
        sender, tag = await _framed(channel, _SENDER, "a sender's rank and tag")
        return sender, tag


async def _framed(channel: Channel, layout: struct.Struct, what: str) -> tuple[int, ...]:
    length = unpack_length(await channel.recv(LENGTH_BYTES), layout.size)
    if length != layout.size:
        raise RemoteProtocolError(f"{length} bytes came instead of {what}")
    return layout.unpack(await channel.recv(length))


async def barrier(
    rank: Rank, p2p: PointToPoint, members: range, addresses: Callable[[int], Address]
) -> None:
    """The ranks `members` wait for each other by dissemination: in round k each sends 4 bytes to
    the member 2^k places on and receives them from the one 2^k places back, ceil(log2 members)
    rounds. `addresses` tells where each takes connections.
    """
    me, count, tag = rank.rank - members.start, len(members), members.start
    distance = 1
    while distance < count:
        to, source = members[(me + distance) % count], members[(me - distance) % count]
        rank.peer = to
        channel = await p2p.connect(addresses(to), tag)
        await channel.send(frame(bytes(4)))
        await channel.flush()
        channel.close()
        rank.peer = source
        channel = await p2p.accept(source, tag)
        length = unpack_length(await channel.recv(LENGTH_BYTES), 4)
        await channel.recv(length)
        channel.close()
        distance *= 2


class RingPeers:
    """The peers of a schedule, by their offset from this rank, once their addresses are known (see
    `emucoll.collectives.driver.Peers`).
    """

    def __init__(
        self,
        rank: int,
        nranks: int,
        p2p: PointToPoint,
        addresses: Callable[[int], Address],
        call: int = 0,
        outgoing: Callable[[Channel], Channel] | None = None,
    ) -> None:
        """`p2p` is the rank's, on the listeners whose `addresses` are known; `call` tells several
        collectives apart; `outgoing` is put around every connection that is made, for whoever
        injects faults.
        """
        self._outgoing = outgoing
        self._rank = rank
        self._n = nranks
        self._p2p = p2p
        self._addresses = addresses
        self._tag = ALLGATHER_TAG + call * _TAGS_A_CALL

    async def connect(self, line: int, tag: int) -> Channel:
        """A new connection to rank + line."""
        address = self._addresses((self._rank + line) % self._n)
        channel = await self._p2p.connect(address, self._tag + tag)
        return channel if self._outgoing is None else self._outgoing(channel)

    async def accept(self, line: int, tag: int) -> Channel:
        """The connection that rank + line opened with this tag."""
        return await self._p2p.accept((self._rank + line) % self._n, self._tag + tag)
