"""NCCL's split: a ring of some ranks of a communicator, by the connections that they have already.

Source: bootstrapSplit and commGetSplitInfo, NCCL 2.27. Every rank knows who is with it from an
AllGather of (color, key), 8 bytes, over the parent. Each then tells the rank before it, point to
point over the parent, where its new ring listener is, and connects to the one after it.
"""

from collections.abc import Callable, Sequence

from emucoll.formation.base import accept_bootstrap, connect_bootstrap
from emucoll.net.base import Address
from emucoll.p2p import PointToPoint
from emucoll.rank import Job, Rank, Ring
from emucoll.wire.address import ADDRESS_BYTES, pack_address, unpack_address
from emucoll.wire.nccl import CONNECT_INFO_BYTES, LENGTH_BYTES, frame, unpack_length

SPLIT_TAG = 1 << 29
"""BOOTSTRAP_TAG_COMMSPLIT."""
SPLIT_INFO_BYTES = 8
"""Color and key of a rank, i32 each."""


def split_magic(parent: int, child: int) -> int:
    """The magic of the `child`-th communicator split from one of magic `parent`: no other's."""
    return (parent * 0x9E3779B97F4A7C15 + child + 1) % 2**64


async def form_split(
    rank: Rank,
    job: Job,
    members: Sequence[int],
    parent: PointToPoint,
    addresses: Callable[[int], Address],
) -> Ring:
    """`rank`'s place in the ring of `members`, the parent's ranks in the order that they have here.
    `parent` and `addresses` are its point to point there; `job` is the new communicator's.
    """
    r, n = rank.rank, job.nranks
    before, after = (r - 1) % n, (r + 1) % n
    with rank.span("bootstrap.create"):
        listener = rank.network.listen()
    with rank.span("bootstrap.send", peer=before):
        channel = await parent.connect(addresses(members[before]), SPLIT_TAG)
        info = pack_address(listener.address).ljust(CONNECT_INFO_BYTES, b"\0")
        await channel.send(frame(info))
        await channel.flush()
        channel.close()
    with rank.span("bootstrap.recv", peer=after):
        channel = await parent.accept(members[after], SPLIT_TAG)
        length = unpack_length(await channel.recv(LENGTH_BYTES), CONNECT_INFO_BYTES)
        successor = unpack_address((await channel.recv(length))[:ADDRESS_BYTES])
        channel.close()
    with rank.span("bootstrap.connect", peer=after):
        next_channel = await connect_bootstrap(rank, successor, job)
    with rank.span("bootstrap.accept", peer=before):
        prev_channel = await accept_bootstrap(rank, listener, job)
    return Ring(next_channel, prev_channel, listener)
