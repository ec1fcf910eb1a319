"""Injected faults on the ranks' side: who never starts, raises, is slow, or flips a byte.

A byte is flipped on its way out, in the channel, at a position that the schedule gives: neither the
ranks nor the driver know of it.
"""

import os
import signal
from collections.abc import Awaitable

from emucoll.collectives.rings import HEADER_BYTES
from emucoll.collectives.schedule import Schedule
from emucoll.errors import UsageError
from emucoll.net.base import Buffer, Channel
from harness.spec import RankFault, Spec, WorkerKill


class InjectedFault(Exception):
    """What an injected rank raises: not of emucoll's tree, like a bug in a user's algorithm."""


class RankFaults:
    """The faults of one spec. Raises UsageError for one that could never happen."""

    def __init__(self, spec: Spec, schedule: Schedule) -> None:
        """Read the spec's injections."""
        self._faults = [fault for fault in spec.inject if isinstance(fault, RankFault)]
        self._flips: dict[int, set[int]] = {}
        for fault in self._faults:
            if fault.what == "corrupt" and fault.where is not None:
                position = flip_position(spec, schedule, fault.where)
                self._flips.setdefault(fault.rank, set()).add(position)
        for kill in spec.inject:
            if isinstance(kill, WorkerKill):
                _check_kill(kill, spec, schedule)

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

    def corrupting(self, rank: int, channel: Channel) -> Channel:
        """The channel on which this rank sends, with its flipped bytes if it has any."""
        for position in self._flips.get(rank, ()):
            channel = _Corrupting(channel, position)
        return channel

    def killing(self, channel: Channel) -> Channel:
        """A channel that ends this process with SIGKILL when the first bytes arrive."""
        return _Killing(channel)


def flip_position(spec: Spec, schedule: Schedule, where: str) -> int:
    """Which byte of what a rank sends in the AllGather to flip. Raises UsageError where there is
    none.
    """
    sized = schedule.frames == "sized"
    rounds = schedule.rounds(spec.nranks)
    rounds = rounds if spec.steps is None else min(spec.steps, rounds)
    if rounds == 0:
        raise UsageError(f"--inject corrupt={where}: {spec.nranks} rank sends no block")
    if where == "header":
        if not sized:
            raise UsageError(
                f"--inject corrupt=header: {schedule.name} sends its blocks bare, without a header"
            )
        return 0
    if spec.record_bytes == 0:
        raise UsageError(f"--inject corrupt={where}: records of 0 bytes have no byte to flip")
    if where == "forwarded" and rounds < 2:
        raise UsageError(f"--inject corrupt=forwarded: no block is forwarded in {rounds} step(s)")
    step = {"first": 0, "forwarded": 1, "last": rounds - 1}[where]
    framed = spec.record_bytes + (HEADER_BYTES if sized else 0)
    return step * framed + framed - 1


def _check_kill(kill: WorkerKill, spec: Spec, schedule: Schedule) -> None:
    """Raise UsageError where no first block arrives, for a run that is ok would be taken for one
    that survived its fault.
    """
    if schedule.rounds(spec.nranks) == 0 or (schedule.frames == "bare" and spec.record_bytes == 0):
        raise UsageError(
            f"--inject worker={kill.worker}:kill: no block arrives in {schedule.name} of "
            f"{spec.nranks} ranks and records of {spec.record_bytes} bytes"
        )


class _Passing:
    """A channel that passes everything on."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.bound = channel.bound

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


class _Corrupting(_Passing):
    """Flips all bits of one byte of the stream that is sent."""

    def __init__(self, channel: Channel, position: int) -> None:
        super().__init__(channel)
        self._left = position

    def send(self, data: Buffer, messages: int = 1) -> Awaitable[None]:
        if 0 <= self._left < len(data):
            flipped = bytearray(data)
            flipped[self._left] ^= 0xFF
            data = flipped
        self._left -= len(data)
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
