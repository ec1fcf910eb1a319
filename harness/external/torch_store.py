"""A real TCPStore: PyTorch's own server, in this process.

For a process of its own: its threads live as long as the object. It is handed a socket that listens
already. Left to itself it listens on every address of both families and looks up the name of each
peer that connects, on its only thread: 1,000 connections took 96 s so. Names of a run's own
addresses no server knows, so this process looks into /etc/hosts alone.
"""

import ctypes
import importlib.util
import socket
from typing import Any

from emucoll.errors import HarnessError, UsageError
from emucoll.wire.address import Address

BACKLOG = 65_535
"""The kernel clamps it to somaxconn."""


def refuse_missing_torch() -> None:
    """Raise UsageError where there is no PyTorch to serve."""
    if importlib.util.find_spec("torch") is None:
        raise UsageError(
            "--store torch needs PyTorch, and this environment has none. Get the CPU build with "
            "`pip install torch --index-url https://download.pytorch.org/whl/cpu`"
        )


def _look_up_in_files_alone() -> None:
    """No question to a name server in this process, whatever nsswitch.conf says (glibc)."""
    configure = getattr(ctypes.CDLL(None), "__nss_configure_lookup", None)
    if configure is not None:
        configure(b"hosts", b"files")


class TorchStore:
    """The libuv server of the installed PyTorch, on a port of `source`."""

    def __init__(self, source: str) -> None:
        """Raises UsageError without torch, HarnessError when the server does not start."""
        refuse_missing_torch()
        _look_up_in_files_alone()
        import torch
        from torch.distributed import TCPStore

        self.version = f"PyTorch {torch.__version__}"
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listening.bind((source, 0))
            listening.listen(BACKLOG)
            host, port = listening.getsockname()
            self.address = Address(host, port)
            self._store: Any = TCPStore(
                host,
                port,
                is_master=True,
                wait_for_workers=False,
                use_libuv=True,
                master_listen_fd=listening.fileno(),
            )
        except (OSError, RuntimeError) as error:
            listening.close()
            raise HarnessError(f"PyTorch's TCPStore does not start: {error}") from error
        listening.detach()  # it is the server's now

    def close(self) -> None:
        """End the server."""
        self._store = None
