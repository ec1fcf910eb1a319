"""What a formation is, and what every formation does alike: connect with retries, and accept only
whom it knows.

A formation is how ranks find each other and form the ring. It is a coroutine that one rank runs,
written against the seam alone. It must not know which network it runs on.
"""

import errno
from collections.abc import Iterator
from typing import Protocol

from emucoll.errors import ConnectFailed, RemoteProtocolError
from emucoll.net.base import Address, Channel, Listener, within
from emucoll.rank import Job, Rank, Ring
from emucoll.wire.nccl import HELLO_BYTES, SocketType, check_hello, pack_hello


class Formation(Protocol):
    """How ranks find each other. An instance is stateless: it serves every rank. Whoever derives
    from it has the values below, and names a server.
    """

    name: str = ""
    text: str = ""
    """One line for `emucoll formations`."""
    server: str
    """Which server it needs: "root" or "store"."""
    unformed_descriptors: int = 4
    """Most descriptors a rank holds at once while it forms."""
    formed_descriptors: int = 3
    """Descriptors it holds once formed."""
    listeners: int = 1
    """Ports that it binds on its own address."""
    windowable: bool = False
    """May ranks be admitted a window at a time, in ascending order? Not where nobody is answered
    before everybody came.
    """

    async def form(self, rank: Rank, job: Job) -> Ring:
        """Bring one rank into the ring."""


_RETRIED = (errno.EINTR, errno.EAGAIN, errno.ETIMEDOUT, errno.EHOSTUNREACH, errno.ECONNREFUSED)


def nccl_backoff() -> Iterator[float]:
    """Seconds to wait before each further try: k x 100 ms before the k-th of 34, 59.5 s in all
    (NCCL 2.24).
    """
    return (0.1 * k for k in range(1, 35))


async def connect(rank: Rank, address: Address, job: Job, backoff: Iterator[float]) -> Channel:
    """Connect, retrying what NCCL retries (2.24: refused, unreachable, timed out, interrupted)
    after each `backoff`.
    """
    while True:
        try:
            return await rank.network.connect(address, job.deadline_s)
        except ConnectFailed as error:
            pause_s = next(backoff, None) if error.code in _RETRIED else None
            if pause_s is None:
                raise
        rank.trace.retries += 1
        await rank.clock.sleep(pause_s)


async def connect_bootstrap(rank: Rank, address: Address, job: Job) -> Channel:
    """Connect as NCCL's bootstrap does and send the 12-byte hello, which nobody answers."""
    channel = await connect(rank, address, job, nccl_backoff())
    await channel.send(pack_hello(job.magic, SocketType.BOOTSTRAP))
    return channel


async def accept_bootstrap(rank: Rank, listener: Listener, job: Job) -> Channel:
    """Accept the next peer that belongs here.

    NCCL drops a peer with a wrong hello or an early close and goes on accepting; a peer that stays
    silent would stop it for good, here it is dropped after `job.handshake_s`.
    """
    while True:
        channel = await listener.accept()
        reason = await handshake(channel, job.magic, job.handshake_s)
        if reason is None:
            return channel
        rank.trace.dropped.append(reason)
        channel.close()


async def handshake(channel: Channel, magic: int, handshake_s: float) -> str | None:
    """Read a peer's hello; None when it belongs here, else why not."""
    try:
        await within(handshake_s, _read_hello(channel, magic))
    except TimeoutError:
        return f"silent for {handshake_s:g} s in the middle of its hello"
    except RemoteProtocolError as error:
        return str(error)
    return None


async def _read_hello(channel: Channel, magic: int) -> None:
    check_hello(await channel.recv(HELLO_BYTES), magic, SocketType.BOOTSTRAP)
