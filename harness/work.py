"""The work of a role: what it did, as counts that sum over processes. Measures nothing."""

from collections.abc import Iterable

import msgspec


class Work(msgspec.Struct, frozen=True, kw_only=True):
    """What one role did, summed over its processes. None: not counted."""

    messages: int | None = None
    bytes: int | None = None
    connections: int | None = None
    retries: int | None = None
    requests: int | None = None
    syscalls: int | None = None
    cpu_s: float | None = None
    peak_rss_bytes: int | None = None


def total(works: Iterable[Work]) -> Work:
    """Each count summed over those who counted it."""
    kept = list(works)
    sums = {}
    for name in Work.__struct_fields__:
        counts = [count for work in kept if (count := getattr(work, name)) is not None]
        sums[name] = sum(counts) if counts else None
    return Work(**sums)
