"""The process of one root or store: `python -m harness.control.server CONTROLLER ROLE`.

It brings up what the controller asks for (the built-in root or store on the seam, or the root
thread of a real libnccl), says where it listens, and reports what it did when it is stopped. Never
imports the command line or the reports.
"""

import asyncio
import os
import resource
import signal
import sys
from collections.abc import Coroutine
from typing import Any

from emucoll.errors import EmucollError, UsageError
from emucoll.net.delay import make_network
from emucoll.net.tcp import TcpClock, TcpNetwork
from emucoll.servers.root import RootServer
from emucoll.servers.root_state import RootState
from emucoll.servers.store import StoreServer
from emucoll.wire.address import pack_address
from emucoll.wire.nccl import CHECK_IN_2_29, UniqueId, layout_for, version_text
from harness.control.link import Link
from harness.control.loops import run_loop
from harness.control.messages import Broken, ServerReady, ServerReport, ServerSetup, Stop
from harness.work import Work


class Server:
    """One server, from its setup to its report."""

    def __init__(self, link: Link, setup: ServerSetup) -> None:
        """Nothing listens yet."""
        self._link = link
        self._setup = setup
        self._network: TcpNetwork | None = None
        self._root: RootServer | None = None
        self._store: StoreServer | None = None
        self._task: asyncio.Task[None] | None = None
        self._cpu_s = 0.0

    def start(self) -> ServerReady:
        """Listen; where."""
        ready = {
            "store": self._start_store,
            "root": self._start_root,
            "libnccl": self._start_libnccl,
        }[self._setup.kind]()
        self._cpu_s = _cpu_s()
        return ready

    def _start_store(self) -> ServerReady:
        setup = self._setup
        self._network = make_network(setup.source, setup.hop_delay_s)
        self._store = StoreServer(TcpClock(), setup.handshake_s, self._seen)
        listener = self._network.listen()
        self._task = asyncio.create_task(self._guard(self._store.serve(listener)))
        return ServerReady(address=pack_address(listener.address))

    def _start_root(self) -> ServerReady:
        setup = self._setup
        self._network = make_network(setup.source, setup.hop_delay_s)
        layout = CHECK_IN_2_29
        self._root = RootServer(
            self._network,
            TcpClock(),
            RootState(setup.nranks),
            setup.magic,
            layout,
            setup.handshake_s,
            self._seen,
        )
        listener = self._network.listen()
        self._task = asyncio.create_task(self._guard(self._root.serve(listener, setup.deadline_s)))
        unique_id = UniqueId(setup.magic, listener.address, 0)
        return ServerReady(address=unique_id.pack(), check_in_bytes=layout.size)

    def _start_libnccl(self) -> ServerReady:
        from harness.external.libnccl import LibncclRoot, find_library

        root = LibncclRoot(find_library(self._setup.library))
        version = root.version()
        layout = layout_for(version)
        return ServerReady(
            address=root.unique_id().pack(),
            check_in_bytes=layout.size,
            version=f"NCCL {version_text(version)}",
        )

    async def _guard(self, serving: Coroutine[Any, Any, None]) -> None:
        try:
            await serving
        except EmucollError as error:
            self._link.send(Broken(kind="harness", what=str(error)))
        except Exception as error:
            what = f"the {self._setup.kind} crashed: {type(error).__name__}: {error}"
            self._link.send(Broken(kind="harness", what=what))

    def _seen(self, check_ins: int) -> None:
        if check_ins == self._setup.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    def report(self) -> ServerReport:
        """What it did since it was ready."""
        counters = None if self._network is None else self._network.counters
        served = self._root or self._store
        return ServerReport(
            work=Work(
                messages=None if counters is None else counters.messages,
                bytes=None if counters is None else counters.bytes_sent,
                connections=None if served is None else served.connections,
                retries=None if self._root is None else self._root.retries,
                requests=None if self._store is None else self._store.state.requests,
                syscalls=None if counters is None else counters.syscalls,
                cpu_s=_cpu_s() - self._cpu_s,
                peak_rss_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            ),
            dropped=[] if served is None else list(served.dropped),
            dropped_count=0 if served is None else served.dropped.in_all,
        )

    def close(self) -> None:
        """Close every connection and listener."""
        if self._task is not None:
            self._task.cancel()
        if self._network is not None:
            self._network.close()


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


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
    while not isinstance(await link.receive(), Stop):
        pass
    link.send(server.report())
    server.close()


if __name__ == "__main__":
    run_loop(lambda loop_name: serve(sys.argv[1], sys.argv[2], loop_name), is_server=True)
