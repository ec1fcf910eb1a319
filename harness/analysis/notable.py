"""Which ranks of a run are worth a look, and what they are called.

Pure.
"""

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

LEADERS = 4
"""Hosts, from the first on, whose leaders are looked at."""


def name_ranks(
    ranks: Sequence[int],
    totals: npt.NDArray[np.float64],
    ranks_per_host: int,
    asked: Sequence[int] | None,
) -> dict[int, str]:
    """Ranks in ascending order, with names such as `rank 57 (slowest)`: those asked for, or else
    rank 0, the slowest, the median, the fastest and the leaders of the first hosts.

    `ranks` are all there are, ascending, `totals` their seconds. What is asked for is among them.
    """
    notes: dict[int, list[str]] = {}
    by_total = np.argsort(totals, kind="stable")
    for note, place in (("slowest", -1), ("median", (len(ranks) - 1) // 2), ("fastest", 0)):
        notes.setdefault(ranks[by_total[place]], []).append(note)
    if asked is None:
        leaders = range(0, LEADERS * ranks_per_host, ranks_per_host)
        asked = [*notes, *set(leaders).intersection(ranks)]
    names = {}
    for rank in sorted(set(asked)):
        said = notes.get(rank, [])
        if rank % ranks_per_host == 0 and ranks_per_host > 1:
            said = [*said, f"leader of host {rank // ranks_per_host}"]
        names[rank] = f"rank {rank} ({', '.join(said)})" if said else f"rank {rank}"
    return names


def natural(name: str) -> list[tuple[bool, int | str]]:
    """A key by which `worker 2` comes before `worker 10`, and servers before workers."""
    parts = re.split(r"(\d+)", name)
    return [(part.isdigit(), int(part) if part.isdigit() else part) for part in parts]
