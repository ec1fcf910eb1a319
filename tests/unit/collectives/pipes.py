"""A ring of in-memory channels whose reads are cut where the test wants, and whose bytes it may
flip.
"""

import asyncio
import itertools
import random
import types
from collections.abc import Awaitable, Generator, Iterable, Sequence
from typing import Any

from emucoll.collectives.driver import Collective, run
from emucoll.collectives.schedule import NEXT, PREV, Schedule
from emucoll.collectives.table import RecordTable, WrongBlocks
from emucoll.errors import ConnectionClosed
from emucoll.net.base import Buffer, Channel, Pollable, wait_readable
from emucoll.rank import Rank
from emucoll.trace import Trace


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


class Duplex:
    """A channel that sends into one pipe and receives from another."""

    def __init__(self, out: Channel, into: Channel) -> None:
        self.bound = out.bound
        self.send, self.flush = out.send, out.flush
        self.recv, self.recv_some = into.recv, into.recv_some
        self._both = out, into

    async def acknowledged(self) -> None:
        pass

    def close(self) -> None:
        for pipe in self._both:
            pipe.close()


class PipePeers:
    """A rank's connections beyond the ring: a pipe each, found by who sends and a tag."""

    def __init__(self, rank: int, n: int, made: dict[tuple[int, int, int], Pipe]) -> None:
        self._rank, self._n, self._made = rank, n, made

    async def connect(self, line: int, tag: int) -> Channel:
        return self._pipe(self._rank, (self._rank + line) % self._n, tag)

    async def accept(self, line: int, tag: int) -> Channel:
        return self._pipe((self._rank + line) % self._n, self._rank, tag)

    def _pipe(self, sender: int, receiver: int, tag: int) -> Pipe:
        key = sender, receiver, tag
        if key not in self._made:
            self._made[key] = Pipe()
        return self._made[key]


def make_ranks(n: int) -> list[Rank]:
    """Ranks that nothing but a driver looks at."""
    nothing: Any = None
    trace, jitter = Trace(n), random.Random(1)
    return [Rank(r, r, nothing, nothing, trace, jitter) for r in range(n)]


def full_table(n: int, record_bytes: int) -> RecordTable:
    return RecordTable.derived(n, record_bytes, 5, 0, range(n), (n, n))


async def gather(
    schedule: Schedule,
    pipes: Sequence[Channel],
    record_bytes: int,
    rounds: int | None = None,
    backward: Sequence[Channel] | None = None,
    made: dict[tuple[int, int, int], Pipe] | None = None,
) -> WrongBlocks:
    """An AllGather of len(pipes) ranks.

    Pipe r leads from rank r to rank r + 1, backward[r] from rank r to rank r - 1, and made[s, r, k]
    is the connection from rank s to rank r of tag k; what is not given is made.
    """
    n = len(pipes)
    rounds = schedule.rounds(n) if rounds is None else rounds
    backward = [Pipe() for _ in range(n)] if backward is None else backward
    collective = Collective(schedule, n, rounds, full_table(n, record_bytes))
    made = {} if made is None else made
    await asyncio.gather(
        *(
            run(
                rank,
                {
                    NEXT: Duplex(pipes[r], backward[(r + 1) % n]),
                    PREV: Duplex(backward[r], pipes[r - 1]),
                },
                collective,
                PipePeers(r, n, made),
            )
            for r, rank in enumerate(make_ranks(n))
        )
    )
    return collective.wrong
