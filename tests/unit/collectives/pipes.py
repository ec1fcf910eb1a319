"""A ring of in-memory channels whose reads are cut where the test wants, and whose bytes it may
flip.
"""

import asyncio
import itertools
import types
from collections.abc import Awaitable, Generator, Iterable, Sequence

from emucoll.collectives.driver import Collective, run
from emucoll.collectives.schedule import Line, Schedule
from emucoll.collectives.table import RecordTable, WrongBlocks
from emucoll.errors import ConnectionClosed
from emucoll.net.base import Buffer, Channel, Pollable, drive, wait_readable


class Pipe(Pollable):
    """Both ends of one direction of a connection."""

    def __init__(self, cuts: Iterable[int] = (1 << 20,), flip: int | None = None) -> None:
        """`cuts`: what each read may bring at most, over and over. `flip`: a byte's position."""
        super().__init__()
        self.bound = 1 << 30
        self.sent = self.messages = 0
        self._cuts = itertools.cycle(cuts)
        self._flip = flip
        self._bytes = bytearray()
        self._closed = False

    def send(self, data: Buffer, messages: int = 1) -> Awaitable[None]:
        came = bytearray(data)
        if self._flip is not None and self.sent <= self._flip < self.sent + len(came):
            came[self._flip - self.sent] ^= 0x55
        self.sent += len(came)
        self.messages += messages
        self._bytes += came
        asyncio.get_running_loop().call_soon(self._wake)
        return _done()

    def flush(self) -> Awaitable[None]:
        return _done()

    @types.coroutine
    def recv(self, n: int) -> Generator[object, None, bytes]:
        while len(self._bytes) < n:
            if self._closed:
                raise ConnectionClosed("closed in the middle")
            yield from wait_readable(self)
        return self._take(n)

    @types.coroutine
    def recv_some(self, limit: int) -> Generator[object, None, Buffer]:
        while not self._bytes and not self._closed:
            yield from wait_readable(self)
        return memoryview(self._take(min(limit, next(self._cuts))))

    def close(self) -> None:
        self._closed = True
        self._wake()

    def _take(self, n: int) -> bytes:
        data = bytes(self._bytes[:n])
        del self._bytes[:n]
        return data

    def _wake(self) -> None:
        if self.reader is not None:
            self.reader(None)


@types.coroutine
def _done() -> Generator[object, None, None]:
    yield from ()


def full_table(n: int, record_bytes: int, rounds: int) -> RecordTable:
    return RecordTable.derived(n, record_bytes, 5, 0, range(n), rounds)


async def gather(
    schedule: Schedule,
    pipes: Sequence[Channel],
    record_bytes: int,
    rounds: int | None = None,
) -> WrongBlocks:
    """An AllGather of len(pipes) ranks; pipe r leads from rank r to rank r + 1."""
    n = len(pipes)
    rounds = schedule.rounds(n) if rounds is None else rounds
    wrong = WrongBlocks()
    collective = Collective(schedule, n, rounds, full_table(n, record_bytes, rounds), wrong)
    await asyncio.gather(
        *(
            drive(run(r, {Line.NEXT: pipes[r], Line.PREV: pipes[r - 1]}, collective))
            for r in range(n)
        )
    )
    return wrong
