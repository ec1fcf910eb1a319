"""Servers that scale badly. Python imports this by itself where its folder is on PYTHONPATH, in
each process of a run: a root or store has no name on the command line. PLANTED says which.
"""

import os


def _slow_root() -> None:
    """It takes 300 us over each check-in, one at a time."""
    from emucoll.servers.root import RootServer

    read = RootServer._read

    async def slowly(self, channel):  # type: ignore[no-untyped-def]
        check_in = await read(self, channel)
        await self._clock.sleep(3e-4)
        return check_in

    RootServer._read = slowly  # type: ignore[method-assign]


def _scanning_store() -> None:
    """It looks at every key before it answers a request."""
    from emucoll.servers.store_state import StoreState

    handle = StoreState.handle

    def scan(self, client, request):  # type: ignore[no-untyped-def]
        assert not [key for key in self._values if key.endswith(b"never") or not key]
        return handle(self, client, request)

    StoreState.handle = scan  # type: ignore[method-assign]


_PLANTS = {"slow-root": _slow_root, "scanning-store": _scanning_store}
if "PLANTED" in os.environ:
    _PLANTS[os.environ["PLANTED"]]()
