"""The process of the roots or the store: `python -m harness.control.server CONTROLLER ROLE`.

It brings up what the controller asks for (our own root or store on the seam, or the root thread of
a real libnccl; of roots as many as there are to be), says where it listens, and reports what it did
when it is stopped. Never imports the command line or the reports.
"""

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from emucoll.errors import EmucollError, UsageError
from emucoll.net.delay import make_network
from emucoll.net.tcp import TcpClock, TcpListener, TcpNetwork
from emucoll.servers.root import RootServer
from emucoll.servers.root_state import CollectingRootState, RootState
from emucoll.servers.store import StoreServer
from emucoll.trace import Strangers
from emucoll.wire.address import pack_address
from emucoll.wire.nccl import CheckInLayout, UniqueId, layout_for, layout_of_size, version_text
from harness.control.link import Link
from harness.control.loops import run_loop
from harness.control.messages import (
    Broken,
    Dump,
    ServerReady,
    ServerReport,
    ServerSetup,
    Stop,
    StuckKeys,
)
from harness.control.series import EVERY_S, Series
from harness.usage import cpu_s, peak_rss_bytes
from harness.work import Work

if TYPE_CHECKING:
    from harness.external.torch_store import TorchStore


STUCK_KEYS = 8


class Server:
    """One server, from its setup to its report."""

    def __init__(self, link: Link, setup: ServerSetup) -> None:
        """Nothing listens yet."""
        self._link = link
        self._setup = setup
        self._network: TcpNetwork | None = None
        self._roots: list[RootServer] = []
        self._store: StoreServer | None = None
        self._torch: TorchStore | None = None
        self._listener: TcpListener | None = None
        """The store's."""
        self._tasks: list[asyncio.Task[None]] = []
        self._checked_in = 0
        self._cpu_s = 0.0
        self._listeners: list[TcpListener] = []
        self._series = Series(self._counts)

    def start(self) -> ServerReady:
        """Listen; where."""
        ready = self._ready()
        self._cpu_s = cpu_s()
        if self._setup.record:
            self._tasks.append(asyncio.create_task(self._sample()))
        return ready

    def renew(self, setup: ServerSetup) -> ServerReady:
        """The same for ranks that start anew: a store keeps what it has, roots are new ones."""
        self._setup = setup
        return self._ready()

    def _ready(self) -> ServerReady:
        return {
            "store": self._start_store,
            "root": self._start_roots,
            "libnccl": self._start_libnccl,
            "torch": self._start_torch,
        }[self._setup.kind]()

    def _start_store(self) -> ServerReady:
        setup = self._setup
        if self._listener is None:
            self._network = make_network(setup.source, setup.hop_delay_s)
            self._store = StoreServer(TcpClock(), setup.handshake_s, self._seen)
            self._listener = self._network.listen()
            self._listeners.append(self._listener)
            self._tasks.append(asyncio.create_task(self._guard(self._store.serve(self._listener))))
        return ServerReady(address=pack_address(self._listener.address))

    def _start_torch(self) -> ServerReady:
        from harness.external.torch_store import TorchStore

        if self._torch is None:
            self._torch = TorchStore(self._setup.source)
        return ServerReady(address=pack_address(self._torch.address), version=self._torch.version)

    def _start_roots(self) -> ServerReady:
        """Each on a listener of its own, all in this one process."""
        layout = layout_of_size(self._setup.check_in_bytes)
        if self._network is None:
            self._network = make_network(self._setup.source, self._setup.hop_delay_s)
        network = self._network
        nranks, nroots = self._setup.nranks, self._setup.nroots
        ids = [self._start_root(network, layout, nranks, iroot, nroots) for iroot in range(nroots)]
        ids += [self._start_root(network, layout, size, 0, 1) for size in self._setup.group_roots]
        return ServerReady(address=b"".join(ids), check_in_bytes=layout.size)

    def _start_root(
        self, network: TcpNetwork, layout: CheckInLayout, nranks: int, iroot: int, nroots: int
    ) -> bytes:
        """One of `nroots` roots of a communicator of `nranks`: its unique id."""
        setup = self._setup
        state: RootState | CollectingRootState = RootState(nranks, iroot, nroots)
        if layout.collects:
            state = CollectingRootState(nranks)
        magic = secrets.randbits(64)
        root = RootServer(
            network,
            TcpClock(),
            state,
            magic,
            layout,
            setup.handshake_s,
            self._seen_by_a_root,
        )
        self._roots.append(root)
        listener = network.listen()
        self._listeners.append(listener)
        serving = self._guard(root.serve(listener, setup.deadline_s))
        self._tasks.append(asyncio.create_task(serving))
        return UniqueId(magic, listener.address).pack()

    def _start_libnccl(self) -> ServerReady:
        from harness.external.libnccl import LibncclRoot, find_library

        nccl = LibncclRoot(find_library(self._setup.library))
        version = version_text(nccl.version())
        layout = layout_for(nccl.version())
        self._refuse_release(version, layout)
        return ServerReady(
            address=b"".join(
                nccl.unique_id().pack()
                for _ in range(self._setup.nroots + len(self._setup.group_roots))
            ),
            check_in_bytes=layout.size,
            version=f"NCCL {version}",
        )

    def _refuse_release(self, version: str, layout: CheckInLayout) -> None:
        """Raise UsageError where the roots of this release can't do what is asked for."""
        setup = self._setup
        if setup.several_roots and not layout.has_roots:
            raise UsageError(
                f"NCCL {version} knows one root alone, and formation {setup.formation} asks for "
                "several: use NCCL 2.23 or later, or a formation or plan of one root"
            )
        if layout.collects and setup.windowed:
            raise UsageError(
                f"the root of NCCL {version} answers nobody before all {setup.nranks} ranks have "
                "come, and with a start window they don't come all at once. Leave --start-window "
                "out"
            )

    async def _guard(self, serving: Coroutine[Any, Any, None]) -> None:
        try:
            await serving
        except EmucollError as error:
            self._link.send(Broken(kind="harness", what=str(error)))
        except Exception as error:
            what = f"the {self._setup.kind} crashed: {type(error).__name__}: {error}"
            self._link.send(Broken(kind="harness", what=what))

    def _seen_by_a_root(self, _its_own: int) -> None:
        self._checked_in += 1
        self._seen(self._checked_in)

    def _seen(self, check_ins: int) -> None:
        if check_ins == self._setup.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    async def _sample(self) -> None:
        while True:
            self._series.sample()
            await asyncio.sleep(EVERY_S)

    def _counts(self) -> dict[str, float | None]:
        """What it tells of itself over time."""
        served = self._served()
        return {
            "connections": float(sum(each.connections for each in served)) if served else None,
            "requests": None if self._store is None else float(self._store.state.requests),
            "accept_queue": float(sum(each.waiting() for each in self._listeners))
            if self._listeners
            else None,
        }

    def _served(self) -> list[RootServer | StoreServer]:
        return [*self._roots, *([] if self._store is None else [self._store])]

    def stuck_keys(self) -> list[tuple[bytes, int]]:
        """What clients of our own store wait for, the most waited for first; some."""
        return [] if self._store is None else self._store.state.stuck_waits()[:STUCK_KEYS]

    def report(self) -> ServerReport:
        """What it did since it was ready."""
        counters = None if self._network is None else self._network.counters
        served = self._served()
        if self._setup.record:
            self._series.sample()
        dropped = [reason for each in served for reason in each.dropped]
        return ServerReport(
            work=Work(
                messages=None if counters is None else counters.messages,
                bytes=None if counters is None else counters.bytes_sent,
                connections=sum(each.connections for each in served) if served else None,
                retries=sum(root.retries for root in self._roots) if self._roots else None,
                requests=None if self._store is None else self._store.state.requests,
                syscalls=None if counters is None else counters.syscalls,
                cpu_s=cpu_s() - self._cpu_s,
                peak_rss_bytes=peak_rss_bytes(),
            ),
            dropped=dropped[: Strangers.KEPT],
            dropped_count=sum(each.dropped.in_all for each in served),
            series=self._series.columns,
        )

    def close(self) -> None:
        """Close every connection and listener."""
        for task in self._tasks:
            task.cancel()
        if self._network is not None:
            self._network.close()
        if self._torch is not None:
            self._torch.close()


async def serve(controller: str, process: str, loop_name: str) -> None:
    """Serve until told to stop."""
    link = Link(controller, process, loop_name)
    setup = await link.receive()
    if isinstance(setup, ServerSetup):
        await _serve(link, setup)
    else:  # interrupted before it began
        assert isinstance(setup, Stop)
    await link.close()


async def _serve(link: Link, setup: ServerSetup) -> None:
    server = Server(link, setup)
    try:
        link.send(server.start())
    except EmucollError as error:
        link.send(
            Broken(kind="usage" if isinstance(error, UsageError) else "harness", what=str(error))
        )
    while not isinstance(message := await link.receive(), Stop):
        if isinstance(message, ServerSetup):
            link.send(server.renew(message))
        elif isinstance(message, Dump):
            link.send(StuckKeys(keys=server.stuck_keys()))
    link.send(server.report())
    server.close()


if __name__ == "__main__":
    run_loop(lambda loop_name: serve(sys.argv[1], sys.argv[2], loop_name), is_server=True)
