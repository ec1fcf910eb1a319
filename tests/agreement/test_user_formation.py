"""A formation of a user's own, with asyncio's means, run by a real worker in this process."""

import asyncio
import os
import time
from typing import cast

import pytest

from emucoll.formation import FORMATIONS
from emucoll.formation.base import accept_bootstrap, connect_bootstrap
from emucoll.formation.store_client import StoreClient
from emucoll.formation.tcpstore import TcpStoreRing, address_key
from emucoll.net.base import Address, Channel, Listener, drive
from emucoll.rank import Job, Rank, Ring
from emucoll.servers.store import StoreServer
from emucoll.wire.address import ADDRESS_BYTES, pack_address, unpack_address
from harness.control.link import Link
from harness.control.messages import (
    AnyMessage,
    Begin,
    Finished,
    Formed,
    Prepared,
    Progress,
    RankFailed,
    Records,
    Setup,
    Start,
)
from harness.control.worker import Worker
from harness.spec import Spec
from tests.worlds import World, default_world

NRANKS = 5
THINK_S = 0.004


@pytest.fixture
def world() -> World:
    return default_world()


class Sociable(TcpStoreRing):
    """Does at once what can be done at once, gives every wait a time, and thinks in two Tasks."""

    name = "sociable"

    async def form(self, rank: Rank, job: Job) -> Ring:
        after, before = (rank.rank + 1) % job.nranks, (rank.rank - 1) % job.nranks
        listener = rank.network.listen()
        with rank.span("bootstrap.nobody"):
            try:
                async with asyncio.timeout(0.01):
                    await listener.accept()  # nobody knows the address yet
            except TimeoutError:
                rank.trace.dropped.append("nobody came")
        with rank.span("bootstrap.keys", peer="store"):
            store = await StoreClient.open(rank, job)
            await store.set(address_key(job.comm, rank.rank), pack_address(listener.address))
            key = address_key(job.comm, after)
            successor = await asyncio.wait_for(store.get(key, ADDRESS_BYTES), 10.0)
            store.close()
        with rank.span("bootstrap.both"):
            async with asyncio.timeout(10.0), asyncio.TaskGroup() as group:
                address = unpack_address(successor)
                to = group.create_task(self._connect(rank, address, job, after))
                source = group.create_task(self._accept(rank, listener, job, before))
        with rank.span("bootstrap.think"):
            await asyncio.gather(think(), think())
        return Ring(to.result(), source.result(), listener)

    async def _connect(self, rank: Rank, address: Address, job: Job, peer: int) -> Channel:
        with rank.span("bootstrap.connect", peer=peer):
            return await connect_bootstrap(rank, address, job)

    async def _accept(self, rank: Rank, listener: Listener, job: Job, peer: int) -> Channel:
        with rank.span("bootstrap.accept", peer=peer):
            return await accept_bootstrap(rank, listener, job)


async def think() -> None:
    """CPU of a child Task, in two resumptions."""
    for _ in range(2):
        until = time.thread_time() + THINK_S / 2
        while time.thread_time() < until:
            pass
        await asyncio.sleep(0)


class Careless(TcpStoreRing):
    """Waits for something else than a Channel in a driven coroutine."""

    name = "careless"

    async def form(self, rank: Rank, job: Job) -> Ring:
        await drive(self._nap(rank))
        raise AssertionError("unreachable")

    async def _nap(self, rank: Rank) -> None:
        await rank.clock.sleep(0.01)


class Controller:
    """Stands in for the link to a controller: what the worker says comes out here."""

    def __init__(self) -> None:
        self._said: asyncio.Queue[AnyMessage] = asyncio.Queue()

    def send(self, message: AnyMessage) -> None:
        self._said.put_nowait(message)

    async def hear(self) -> AnyMessage:
        while isinstance(message := await self._said.get(), Progress):
            pass
        return message


async def start(world: World, formation: str) -> tuple[Worker, Controller]:
    """A worker with all ranks of a run, started, and a store for it."""
    store, controller = StoreServer(world.clock), Controller()
    servers = world.network()
    listener = servers.listen()
    serving = asyncio.create_task(store.serve(listener))
    setup = Setup(
        spec=Spec(nranks=NRANKS, formation=formation, allgather="ring"),
        first=0,
        count=NRANKS,
        source="127.91.1.1",
        window=None,
        magic=7,
        comm="users",
        report_check_ins=False,
        kill_at_first_block=False,
        folder=os.getcwd(),
        keep_store=True,
        attempt=0,
        charges={},
    )
    worker = Worker(cast(Link, controller), setup)
    worker._tasks.add(serving)  # ends with the worker
    worker.handle(
        Start(
            store=pack_address(listener.address), unique_ids=b"", group_ids=b"", check_in_bytes=None
        )
    )
    return worker, controller


async def finish(worker: Worker, controller: Controller) -> Finished:
    """From the start to the report."""
    formed = await controller.hear()
    assert isinstance(formed, Formed), formed
    worker.handle(Records(addresses=formed.addresses))
    assert isinstance(await controller.hear(), Prepared)
    worker.handle(Begin())
    finished = await controller.hear()
    assert isinstance(finished, Finished), finished
    return finished


async def test_timeout_gather_and_task_group(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATIONS, Sociable.name, Sociable())
    worker, controller = await start(world, Sociable.name)
    try:
        finished = await finish(worker, controller)
    finally:
        worker.close()
    (gathered,) = finished.gathers
    assert gathered.wrong == 0
    assert gathered.blocks == NRANKS * (NRANKS - 1)
    assert finished.dropped == ["nobody came"] * NRANKS
    assert finished.held_descriptors == 3 * NRANKS
    thought = NRANKS * 2 * THINK_S
    assert thought <= finished.cpu_s["bootstrap.think"] <= 2 * thought
    assert {"bootstrap.connect", "bootstrap.accept", "bootstrap.ring"} <= set(finished.phases)


async def test_a_nap_inside_drive_is_named(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FORMATIONS, Careless.name, Careless())
    worker, controller = await start(world, Careless.name)
    try:
        failed = await controller.hear()
    finally:
        worker.close()
    assert isinstance(failed, RankFailed)
    assert (failed.rank, failed.kind, failed.phase) == (0, "raised", "bootstrap")
    assert "Careless._nap awaited Future in sleep() inside drive()" in failed.what
