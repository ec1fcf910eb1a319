"""What a formation is, and what every formation does alike: connect with retries, and accept only
whom it knows.

A formation is how ranks find each other and form the ring. It is a coroutine that one rank runs,
written against the seam alone. It must not know which network it runs on.
"""

from typing import Protocol

from emucoll.errors import ConnectFailed, RemoteProtocolError
from emucoll.net.base import Address, Channel, Listener, within
from emucoll.net.retries import Backoff, nccl_backoff, pause_s
from emucoll.rank import Job, Rank, Ring
from emucoll.wire.nccl import (
    CHECK_IN_2_29,
    HELLO_BYTES,
    CheckInLayout,
    SocketType,
    check_hello,
    pack_hello,
)


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
    ranks_per_root: int = 0
    """How many ranks get a root of their own, unless `--roots` says otherwise; 0 where one server
    serves all.
    """
    check_in: CheckInLayout = CHECK_IN_2_29
    """What its ranks tell our own root; without a root it means nothing."""

    def stagger_s(self, local_id: int, owned: int, threshold: int, rate: float) -> float:
        """Seconds that a rank waits on purpose before it checks in with its root, of whose `owned`
        ranks it is the `local_id`-th. `threshold` and `rate` are the options of that name.
        """
        return 0.0

    async def form(self, rank: Rank, job: Job) -> Ring:
        """Bring one rank into the ring."""


def count_roots(formation: Formation, nranks: int, asked: int | None) -> int:
    """How many roots a run has, of which `asked` (None: the formation's choice) were asked for."""
    if formation.server != "root":
        return 0
    if not formation.ranks_per_root:
        return 1
    return asked or -(-nranks // formation.ranks_per_root)


async def connect(rank: Rank, address: Address, job: Job, backoff: Backoff) -> Channel:
    """Connect, trying again as `backoff` says."""
    while True:
        try:
            return await rank.network.connect(address, job.deadline_s)
        except ConnectFailed as error:
            wait_s = pause_s(backoff, error.code)
            if wait_s is None:
                raise
        rank.trace.retries += 1
        await rank.clock.sleep(wait_s)


async def connect_bootstrap(
    rank: Rank,
    address: Address,
    job: Job,
    backoff: Backoff | None = None,
    magic: int | None = None,
) -> Channel:
    """Connect as NCCL's bootstrap does (2.24 and later, unless told otherwise) and send the 12-byte
    hello, which nobody answers: with the magic of the job, unless told otherwise.
    """
    channel = await connect(rank, address, job, nccl_backoff() if backoff is None else backoff)
    await channel.send(pack_hello(job.magic if magic is None else magic, SocketType.BOOTSTRAP))
    return channel


async def accept_bootstrap(
    rank: Rank, listener: Listener, job: Job, magic: int | None = None
) -> Channel:
    """Accept the next peer that belongs here: who knows the magic of the job, unless told
    otherwise.

    NCCL drops a peer with a wrong hello or an early close and goes on accepting; a peer that stays
    silent would stop it for good, here it is dropped after `job.handshake_s`.
    """
    while True:
        channel = await listener.accept()
        expected = job.magic if magic is None else magic
        reason = await handshake(channel, expected, job.handshake_s)
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
