"""What a process does over time: one sample after another, for its recording."""

import time
from collections.abc import Callable, Mapping

import psutil

from harness.usage import cpu_s

EVERY_S = 0.1
"""Between the samples of a server."""


class Series:
    """The samples of this process. `t` is the time of the day: hosts share no other clock."""

    def __init__(self, counts: Callable[[], Mapping[str, float | None]]) -> None:
        """`counts` are its own columns; what is None cannot be told."""
        self._counts = counts
        self._process = psutil.Process()
        self.columns: dict[str, list[float]] = {}

    def sample(self) -> None:
        """One more."""
        told = {
            "t": time.time(),
            "cpu_s": cpu_s(),
            "rss_bytes": float(self._process.memory_info().rss),
            **self._counts(),
        }
        for name, value in told.items():
            if value is not None:
                self.columns.setdefault(name, []).append(value)
