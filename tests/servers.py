"""Our own store or root in a thread of the test's process, for programs that are not ours."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from emucoll.net.base import Address, Listener
from emucoll.net.tcp import TcpClock, TcpNetwork
from emucoll.servers.root import RootServer
from emucoll.servers.root_state import RootState
from emucoll.servers.store import StoreServer
from emucoll.wire.nccl import CHECK_IN_2_29

HOST = "127.0.0.1"
_PATIENCE_S = 60.0


@contextmanager
def serve_store() -> Iterator[tuple[Address, StoreServer]]:
    """A store: where it listens, and itself, to be looked at when nobody talks to it."""
    store = StoreServer(TcpClock())
    with _serving(lambda _, listener: store.serve(listener)) as address:
        yield address, store


@contextmanager
def serve_root(nranks: int, magic: int) -> Iterator[Address]:
    """A root of `nranks` ranks."""

    def serve(network: TcpNetwork, listener: Listener) -> Coroutine[Any, Any, None]:
        root = RootServer(network, TcpClock(), RootState(nranks, 0, 1), magic, CHECK_IN_2_29)
        return root.serve(listener, _PATIENCE_S)

    with _serving(serve) as address:
        yield address


@contextmanager
def _serving(
    serve: Callable[[TcpNetwork, Listener], Coroutine[Any, Any, None]],
) -> Iterator[Address]:
    started: list[Address] = []
    ready, stop = threading.Event(), threading.Event()

    async def main() -> None:
        network = TcpNetwork(HOST)
        listener = network.listen()
        server = asyncio.ensure_future(serve(network, listener))
        started.append(listener.address)
        ready.set()
        while not stop.is_set():
            await asyncio.sleep(0.01)
        server.cancel()
        network.close()

    thread = threading.Thread(target=asyncio.run, args=(main(),))
    thread.start()
    try:
        assert ready.wait(_PATIENCE_S)
        yield started[0]
    finally:
        stop.set()
        thread.join()
