"""What the kernel's sockets take: buffers (/proc/net/sockstat) and the TCP slabs (/proc/slabinfo,
root only).
"""

import os
from dataclasses import dataclass, field
from pathlib import Path

_SLABS = ("TCP", "TCPv6", "tw_sock_TCP", "tw_sock_TCPv6", "request_sock_TCP", "request_sock_TCPv6")


@dataclass(slots=True)
class KernelMemory:
    """Growth since it was made; call `sample` now and then."""

    root: Path = Path("/")
    peak_bytes: int | None = None
    _base: int | None = field(default=None)

    def __post_init__(self) -> None:
        """Take the base line."""
        self._base = self._read()

    def sample(self) -> None:
        """Look again, and keep the highest."""
        now = self._read()
        if now is not None and self._base is not None:
            self.peak_bytes = max(self.peak_bytes or 0, now - self._base)

    def _read(self) -> int | None:
        """Bytes in buffers and slabs; None where the kernel does not tell."""
        try:
            return _buffers((self.root / "proc/net/sockstat").read_text()) + _slabs(
                (self.root / "proc/slabinfo").read_text()
            )
        except (OSError, ValueError):
            return None


def _buffers(sockstat: str) -> int:
    for line in sockstat.splitlines():
        words = line.split()
        if words and words[0] == "TCP:":
            return int(words[words.index("mem") + 1]) * os.sysconf("SC_PAGE_SIZE")
    raise ValueError("no TCP line in sockstat")


def _slabs(slabinfo: str) -> int:
    total = 0
    for line in slabinfo.splitlines()[2:]:
        name, _active, objects, size, *_ = line.split()
        if name in _SLABS:
            total += int(objects) * int(size)
    return total
