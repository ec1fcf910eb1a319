"""What PyTorch does before NCCL's own initialization: reach the store, be counted, and learn the
unique ids of the roots.

Source: PyTorch 2.13, TCPStore.cpp and ProcessGroupNCCL.cpp (broadcastUniqueNCCLID up to 128 ranks,
allgatherUniqueNCCLIDs above), as under torchrun: the agent owns the store, every rank is a client
and none polls for the others; each attempt has keys of its own. The process group's first
communicator.
"""

from dataclasses import replace
from functools import lru_cache

from emucoll.errors import RemoteProtocolError
from emucoll.formation.store_client import StoreClient, pytorch_pauses
from emucoll.plans.nccl import NCCL_PLANS, with_several_roots
from emucoll.rank import Job, Rank
from emucoll.wire.nccl import UNIQUE_ID_BYTES, root_of, root_ranks
from emucoll.wire.tcpstore import user_key

COUNT_KEY = b"init/"
"""Each client counts itself here, once."""


_OTHERS_IDS = (
    "the store holds unique ids of another run: PyTorch's keys are the same in every run, so a "
    "store serves one, and has to be new"
)


def id_key(attempt: int, iroot: int | None = None) -> bytes:
    """Under which the owner of root `iroot` stores its unique id; None: of the only root."""
    which = "0" if iroot is None else f"UniqueNCCLID:{iroot}"
    return user_key(f"/worker/attempt_{attempt}/default_pg/0//cuda//{which}")


@lru_cache(maxsize=8)
def _id_keys(attempt: int, nroots: int) -> tuple[bytes, ...]:
    return tuple(id_key(attempt, each) for each in range(nroots))


class PyTorchStart:
    """See `emucoll.plans.steps.Front`."""

    name = "pytorch"
    text = "store connect, init/, unique ids through the store"
    server = "store"

    def leaders(self, nranks: int, nroots: int) -> list[int]:
        """Those that own a root: all others wait for what they store."""
        return [root_ranks(nranks, nroots, iroot).start for iroot in range(nroots)]

    async def start(self, rank: Rank, job: Job) -> None:
        """One rank's part; it keeps its connection to the store."""
        with rank.span("pytorch.store", peer="store"):
            client = await StoreClient.open(rank, job, pytorch_pauses)
            rank.kept = (*rank.kept, client)
        with rank.span("pytorch.init", peer="store"):
            await client.add(COUNT_KEY, 1)
        r, n, nroots = rank.rank, job.nranks, len(job.roots)
        iroot = root_of(r, n, nroots)
        owner = root_ranks(n, nroots, iroot).start
        with rank.span("pytorch.unique_ids", peer=owner if r != owner else "store"):
            if nroots == 1:
                await self._broadcast(client, r, job)
                return
            if r == owner:
                await client.set(id_key(job.attempt, iroot), job.roots[iroot].pack())
            ids = await client.multi_get(_id_keys(job.attempt, nroots), UNIQUE_ID_BYTES)
        if ids != job.packed_ids:
            raise RemoteProtocolError(_OTHERS_IDS)

    async def _broadcast(self, client: StoreClient, r: int, job: Job) -> None:
        key = id_key(job.attempt)
        if r == 0:
            await client.set(key, job.packed_ids)
            return
        its = await client.get(key, UNIQUE_ID_BYTES)
        if its != job.packed_ids:
            raise RemoteProtocolError(_OTHERS_IDS)


_NCCL_2_28_9 = next(plan for plan in NCCL_PLANS if plan.name == "nccl-2.28.9")
PYTORCH = replace(
    with_several_roots(_NCCL_2_28_9),
    name="pytorch",
    text="PyTorch 2.13 under torchrun, then NCCL 2.28.9 with a root per 128 ranks",
    front=PyTorchStart(),
)
