"""How a worker or server process runs its event loop: uvloop where it is installed, else asyncio;
limits raised.
"""

import asyncio
import gc
import os
import resource
import signal
from collections.abc import Callable, Coroutine
from types import ModuleType
from typing import Any

uvloop: ModuleType | None
try:
    import uvloop
except ImportError:
    uvloop = None

LOOP = "asyncio" if uvloop is None else "uvloop"
"""The event loop of this process's workers and servers, unless they live in another environment."""

SERVER_NICENESS = -10
"""The root or store goes before the workers, as if it had a core to itself, which in a cluster it
has. As one of 17 equals on two cores a root was served too rarely: its accept queue overflowed, and
check-ins were lost in half-open connections.
"""
WORKER_NICENESS = 5
"""Where the user may not raise a server's priority, workers lower theirs."""


def run_loop(main: Callable[[str], Coroutine[Any, Any, None]], is_server: bool) -> None:
    """Run `main(loop name)` to its end. Ctrl-C is the controller's business: it tells us.

    The cyclic garbage collector is off: with thousands of ranks alive it walks millions of objects
    again and again (42 % of a store's CPU at 24,576 ranks) and finds nothing, since ranks and
    clients are freed by reference count.
    """
    gc.disable()
    _set_priority(is_server)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    raise_descriptor_limit()
    with asyncio.Runner(loop_factory=None if uvloop is None else uvloop.new_event_loop) as runner:
        runner.run(main(LOOP))


def _set_priority(is_server: bool) -> None:
    """A server goes before the workers, but does not interrupt them (SCHED_BATCH): woken at once by
    every message, it would find one at a time, and its CPU per rank would be half as much again.
    """
    if is_server:
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    try:
        os.setpriority(os.PRIO_PROCESS, 0, SERVER_NICENESS)
    except PermissionError:
        os.setpriority(os.PRIO_PROCESS, 0, 0 if is_server else WORKER_NICENESS)
    else:
        os.setpriority(os.PRIO_PROCESS, 0, SERVER_NICENESS if is_server else 0)


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open files to the hard one; what it is then."""
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
