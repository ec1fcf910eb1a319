"""The client side of PyTorch's TCPStore protocol, as far as a rank needs it.

Requests are counted in the rank's trace. Source: TCPStore.cpp of PyTorch 2.13. It must not know
which network it runs on.
"""

import random
from collections.abc import Callable, Iterator
from functools import lru_cache

import numpy as np

from emucoll.errors import RemoteProtocolError
from emucoll.formation.base import connect
from emucoll.net.base import Channel
from emucoll.net.retries import alike
from emucoll.rank import Job, Rank
from emucoll.wire.tcpstore import (
    LENGTH_BYTES,
    NUMBER_BYTES,
    STOP_WAITING,
    add_request,
    decode_number,
    get_request,
    multi_get_request,
    ping,
    set_request,
    validate,
    value_length,
    wait_request,
)

Pauses = Callable[[random.Random], Iterator[float]]
_READ_BYTES = 64 * 1024


def ncclx_pauses(jitter: random.Random) -> Iterator[float]:
    """NCCLX's pauses between tries to reach the store: 500 ms x 1.5, at most 3 s, +-10 %, without
    end.
    """
    return _growing(jitter, 3.0, 0.1)


def pytorch_pauses(jitter: random.Random) -> Iterator[float]:
    """PyTorch's: 500 ms x 1.5, at most 60 s, +-50 %."""
    return _growing(jitter, 60.0, 0.5)


def _growing(jitter: random.Random, most_s: float, spread: float) -> Iterator[float]:
    pause_s = 0.5
    while True:
        yield pause_s * jitter.uniform(1 - spread, 1 + spread)
        pause_s = min(most_s, 1.5 * pause_s)


@lru_cache(maxsize=8)
def _requests_of_many(keys: tuple[bytes, ...]) -> tuple[bytes, bytes]:
    """WAIT for them and MULTI_GET: all ranks ask for the same."""
    return wait_request(keys), multi_get_request(keys)


@lru_cache(maxsize=4)
def _values(answer: bytes, keys: tuple[bytes, ...], value_bytes: int) -> bytes:
    """What MULTI_GET brought, without the lengths: all ranks get the same."""
    rows = np.frombuffer(answer, dtype=np.uint8).reshape(len(keys), LENGTH_BYTES + value_bytes)
    length = np.frombuffer(value_bytes.to_bytes(LENGTH_BYTES, "little"), dtype=np.uint8)
    wrong = np.flatnonzero((rows[:, :LENGTH_BYTES] != length).any(axis=1))
    if len(wrong):
        its = value_length(rows[wrong[0], :LENGTH_BYTES].tobytes())
        raise RemoteProtocolError(
            f"the store answered MULTI_GET with {its} bytes of {keys[wrong[0]]!r}, not "
            f"{value_bytes}"
        )
    return rows[:, LENGTH_BYTES:].tobytes()


class StoreClient:
    """One client connection to a TCPStore."""

    def __init__(self, channel: Channel, rank: Rank) -> None:
        """Speak over an established connection."""
        self._channel = channel
        self._trace = rank.trace

    @classmethod
    async def open(cls, rank: Rank, job: Job, pauses: Pauses = ncclx_pauses) -> "StoreClient":
        """Connect, VALIDATE, PING and wait for the echo; all of it is tried again when the network
        fails, after the next of `pauses`.
        """
        assert job.store is not None, "this needs a store"
        nonce = rank.rank & 0xFFFFFFFF
        greeting = validate() + ping(nonce)
        pause_s = pauses(rank.random)
        backoff = alike(pause_s)
        while True:
            channel = await connect(rank, job.store, job, backoff)
            try:
                await channel.send(greeting, messages=2)
                echo = await channel.recv(4)
            except (
                RemoteProtocolError
            ):  # accepted by the kernel, then reset by a store that could not keep up
                channel.close()
                rank.trace.retries += 1
                await rank.clock.sleep(next(pause_s))
                continue
            if int.from_bytes(echo, "little") != nonce:
                raise RemoteProtocolError(f"the store answered PING {nonce} with {echo.hex(' ')}")
            rank.trace.requests += 2
            return cls(channel, rank)

    async def set(self, key: bytes, value: bytes) -> None:
        """SET; nothing is answered."""
        self._trace.requests += 1
        await self._channel.send(set_request(key, value))

    async def add(self, key: bytes, delta: int) -> int:
        """ADD: the new total."""
        self._trace.requests += 1
        await self._channel.send(add_request(key, delta))
        return decode_number(await self._channel.recv(NUMBER_BYTES))

    async def get(self, key: bytes, limit: int) -> bytes:
        """WAIT for the key, then GET it: two round trips. Above `limit` bytes is an error."""
        await self._wait((key,))
        self._trace.requests += 1
        await self._channel.send(get_request(key))
        length = value_length(await self._channel.recv(LENGTH_BYTES))
        if not 0 <= length <= limit:
            raise RemoteProtocolError(
                f"the store answered GET {key!r} with {length} bytes; at most {limit} were expected"
            )
        return await self._channel.recv(length)

    async def multi_get(self, keys: tuple[bytes, ...], value_bytes: int) -> bytes:
        """WAIT for all keys, then get them at once; their values, each of `value_bytes` bytes, one
        after another.
        """
        wait, get = _requests_of_many(keys)
        await self._wait(keys, wait)
        self._trace.requests += 1
        await self._channel.send(get)
        stride, came = LENGTH_BYTES + value_bytes, bytearray()
        while (missing := len(keys) * stride - len(came)) > 0:
            piece = await self._channel.recv_some(min(missing, _READ_BYTES))
            if not len(piece):
                raise RemoteProtocolError(f"the store left after {len(came)} bytes of MULTI_GET")
            came += piece
        return _values(bytes(came), keys, value_bytes)

    async def _wait(self, keys: tuple[bytes, ...], request: bytes | None = None) -> None:
        self._trace.requests += 1
        await self._channel.send(wait_request(keys) if request is None else request)
        answer = await self._channel.recv(1)
        if answer[0] != STOP_WAITING:
            raise RemoteProtocolError(f"the store answered WAIT with {answer[0]}")

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()
