"""Injected faults on the ranks' side: who never starts, raises, is slow, or flips a byte.

A byte is flipped on its way out, in the channel, at a position that the schedule gives: neither the
ranks nor the driver know of it.
"""

import os
import signal
from collections.abc import Awaitable, Callable, Iterator

from emucoll.collectives.rings import HEADER_BYTES
from emucoll.collectives.schedule import NEXT, Part, Schedule
from emucoll.errors import UsageError
from emucoll.net.base import Buffer, Channel
from emucoll.plans.steps import Gather, Plan
from harness.spec import RankFault, Spec, WorkerKill


class InjectedFault(Exception):
    """What an injected rank raises: not of emucoll's tree, like a bug in a user's algorithm."""


class RankFaults:
    """The faults of one spec. Raises UsageError for one that could never happen."""

    def __init__(self, spec: Spec, plan: Plan) -> None:
        """Read the spec's injections. Bytes are flipped in the plan's last AllGather."""
        self._faults = [fault for fault in spec.inject if isinstance(fault, RankFault)]
        self._flips: dict[int, set[int]] = {}
        for fault in self._faults:
            if fault.what == "corrupt" and fault.where is not None:
                if not plan.gathers:
                    raise UsageError(
                        f"--inject corrupt={fault.where}: plan {plan.name} has no AllGather"
                    )
                position = flip_position(spec, plan.gathers[-1], fault.where)
                self._flips.setdefault(fault.rank, set()).add(position)
        for kill in spec.inject:
            if isinstance(kill, WorkerKill):
                _check_kill(kill, spec, plan)

    def _has(self, rank: int, what: str) -> bool:
        return any(fault.rank == rank and fault.what == what for fault in self._faults)

    def never_starts(self, rank: int) -> bool:
        """Does this rank never start?"""
        return self._has(rank, "never-start")

    def raises(self, rank: int) -> bool:
        """Does this rank raise when it starts?"""
        return self._has(rank, "raise")

    def slow(self, rank: int) -> float:
        """How many times as long this rank's own work takes."""
        return next(
            (
                fault.factor or 1.0
                for fault in self._faults
                if fault.rank == rank and fault.what == "slow"
            ),
            1.0,
        )

    def flips(self, rank: int) -> Callable[[Channel], Channel] | None:
        """What to put around the connections on which this rank sends its blocks, one after the
        other, so that its bytes are flipped; None if it has none to flip.
        """
        positions = self._flips.get(rank)
        if not positions:
            return None
        sent = _Sent()

        def around(channel: Channel) -> Channel:
            return _Corrupting(channel, positions, sent)

        return around

    def killing(self, channel: Channel) -> Channel:
        """A channel that ends this process with SIGKILL when the first bytes arrive."""
        return _Killing(channel)


def flip_position(spec: Spec, gather: Gather, where: str) -> int:
    """Which byte of what a rank sends in the AllGather to flip. Raises UsageError where there is
    none.
    """
    schedule = gather.schedule
    sized = schedule.frames == "sized"
    rounds = gather.rounds(spec.nranks, spec.steps)
    if rounds == 0:
        raise UsageError(f"--inject corrupt={where}: {spec.nranks} rank sends no block")
    if where == "header":
        if not sized:
            raise UsageError(
                f"--inject corrupt=header: {schedule.name} sends its blocks bare, without a header"
            )
        return 0
    if gather.record_bytes == 0:
        raise UsageError(f"--inject corrupt={where}: records of 0 bytes have no byte to flip")
    ends = list(_ends_of_blocks(schedule, spec.nranks, rounds, gather.record_bytes))
    if where == "forwarded":
        ends = [(block, end) for block, end in ends if block]
        if not ends:
            raise UsageError(
                f"--inject corrupt=forwarded: no block is forwarded in {rounds} step(s)"
            )
    return ends[-1 if where == "last" else 0][1] - 1


def _ends_of_blocks(
    schedule: Schedule, n: int, rounds: int, record_bytes: int
) -> Iterator[tuple[int, int]]:
    """Every block that a rank sends to rank + 1, or to its peers where it has others: whose it is,
    as an offset from the sender (0: its own), and where it ends among the bytes sent.
    """
    at = 0
    peers = schedule.peers(n)
    for step in range(rounds):
        for exchange in schedule.exchanges(n, step):
            for transfer in exchange:
                if transfer.to != NEXT and not peers:
                    continue
                if transfer.part is Part.HEADER:
                    at += HEADER_BYTES
                    continue
                for block in reversed(range(transfer.blocks)):  # the driver sends the highest first
                    at += record_bytes
                    yield (transfer.sends + block) % n, at


def _check_kill(kill: WorkerKill, spec: Spec, plan: Plan) -> None:
    """Raise UsageError where no first block arrives, for a run that is ok would be taken for one
    that survived its fault.
    """
    if any(
        gather.schedule.rounds(spec.nranks)
        and (gather.schedule.frames == "sized" or gather.record_bytes)
        for gather in plan.gathers
    ):
        return
    what = plan.name or f"{spec.allgather} with records of {spec.record_bytes} bytes"
    raise UsageError(
        f"--inject worker={kill.worker}:kill: no block arrives in {what} of {spec.nranks} ranks"
    )


class _Passing:
    """A channel that passes everything on."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @property
    def bound(self) -> int:
        return self._channel.bound

    @bound.setter
    def bound(self, bound: int) -> None:
        self._channel.bound = bound

    @property
    def both_ways(self) -> bool:
        return self._channel.both_ways

    @both_ways.setter
    def both_ways(self, both_ways: bool) -> None:
        self._channel.both_ways = both_ways

    def send(self, data: Buffer, messages: int = 1) -> Awaitable[None]:
        return self._channel.send(data, messages)

    def flush(self) -> Awaitable[None]:
        return self._channel.flush()

    async def acknowledged(self) -> None:
        await self._channel.acknowledged()

    def recv(self, n: int) -> Awaitable[bytes]:
        return self._channel.recv(n)

    def recv_some(self, limit: int) -> Awaitable[Buffer]:
        return self._channel.recv_some(limit)

    def close(self) -> None:
        self._channel.close()


class _Sent:
    """How many bytes a rank has sent over all its corrupted channels."""

    bytes = 0


class _Corrupting(_Passing):
    """Flips all bits of some bytes of the stream that is sent."""

    def __init__(self, channel: Channel, positions: set[int], sent: _Sent) -> None:
        super().__init__(channel)
        self._positions = positions
        self._sent = sent

    def send(self, data: Buffer, messages: int = 1) -> Awaitable[None]:
        start = self._sent.bytes
        self._sent.bytes += len(data)
        here = [each - start for each in self._positions if start <= each < self._sent.bytes]
        if here:
            flipped = bytearray(data)
            for at in here:
                flipped[at] ^= 0xFF
            data = flipped
        return self._channel.send(data, messages)


class _Killing(_Passing):
    """Ends the process when something has arrived."""

    async def recv(self, n: int) -> bytes:
        await self._channel.recv(n)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")

    async def recv_some(self, limit: int) -> Buffer:
        await self._channel.recv_some(limit)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("unreachable")
