"""Where the time of a run goes on a cluster: in virtual time, along the critical path."""

import sys
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from itertools import groupby
from typing import NamedTuple

import numpy as np

from emucoll.errors import HarnessError
from emucoll.sim.path import Path, Piece, What
from emucoll.trace import Timed
from harness.clusters import Cluster, in_order
from harness.engine.virtual import VirtualRun
from harness.profiling.places import of_span
from harness.profiling.spec import ProfileSpec
from harness.projection.engine import setting_of

_NEARLY_ALL, _SLOWER = 0.9, 3.0
"""Shares of a part's time, and how many times as long as the median rank's, from which on a rank is
named.
"""
SERVING = "serve"
"""The phase of a server."""


class Part(NamedTuple):
    """Of the time until the last rank is done: whose, in which phase, at what."""

    entity: str
    """`rank`, `root` or `store`."""
    phase: str
    what: What


class Stretch(NamedTuple):
    """Of the critical path, in its order."""

    who: str
    """`rank 7`, `root 0` or `store`."""
    phase: str
    what: What
    from_s: float
    until_s: float


@dataclass(frozen=True)
class Blame:
    """One run."""

    total_s: float
    parts: dict[Part, float]
    """Seconds; their sum is the total."""
    chain: list[Stretch]
    alone: dict[tuple[str, str], str] = field(default_factory=dict)
    """Of which entity and phase all the path's time is one rank's, which took longer over it than
    others: which rank's.
    """


def blame(
    spec: ProfileSpec, n: int, cluster: Cluster, places: dict[str, str] | None = None
) -> Blame:
    """Run it there. `places` is told where in the code each phase begins. Raises HarnessError where
    it fails.
    """
    path = Path()
    setting = setting_of(cluster, in_order(n, cluster.gpus_per_host))
    run = VirtualRun(spec.virtual_of(n), setting, path)
    if places is not None:
        run.trace.moved = partial(_notes_place, places, run.trace.moved)
    trouble = run.run().trouble
    if trouble is not None or run.last_done is None:
        raise HarnessError(f"{n} ranks in virtual time: {trouble}")
    local = {each.phase for each in run.plan.locals}
    pieces = path.to(run.last_done)
    parts: dict[Part, float] = {}
    owners: dict[tuple[str, str], dict[int, float]] = {}
    before = 0.0
    for piece in pieces:
        entity = run.name_of(piece.process).partition(" ")[0]
        part = Part(entity, piece.phase or SERVING, _what(piece, local))
        took_s = piece.until - before
        parts[part] = parts.get(part, 0.0) + took_s
        owned = owners.setdefault(part[:2], {})
        owned[piece.process] = owned.get(piece.process, 0.0) + took_s
        before = piece.until
    alone = {key: owner for key, each in owners.items() if (owner := _alone(run, key, each))}
    return Blame(before, parts, _stretches(run, pieces, local), alone)


def _alone(run: VirtualRun, key: tuple[str, str], owners: dict[int, float]) -> str | None:
    """The rank that nearly all of it belongs to, if it was slower there than ranks are."""
    owner = max(owners, key=lambda process: owners[process])
    nearly_all = owners[owner] >= _NEARLY_ALL * sum(owners.values())
    entity, phase = key
    if entity != "rank" or not nearly_all or phase not in run.trace.names:
        return None
    walls = np.frombuffer(run.trace.wall[run.trace.phase(phase)])
    return f"rank {owner}" if walls[owner] > _SLOWER * float(np.median(walls)) else None


def _notes_place(
    places: dict[str, str], moved: Callable[[Timed], None] | None, rank: Timed
) -> None:
    phase = rank.trace.names[rank.phase]
    if phase not in places:
        place = of_span(sys._getframe(1))
        if place is not None:
            places[phase] = place
    if moved is not None:
        moved(rank)


def _stretches(run: VirtualRun, pieces: Sequence[Piece], local: Set[str]) -> list[Stretch]:
    """Pieces in a row that are one process's, in one phase, together: at what they are most."""
    found: list[Stretch] = []
    before = 0.0
    for (process, phase), row in groupby(pieces, key=lambda each: (each.process, each.phase)):
        from_s, whats = before, dict[What, float]()
        for piece in row:
            what = _what(piece, local)
            whats[what] = whats.get(what, 0.0) + piece.until - before
            before = piece.until
        most = max(whats, key=lambda what: whats[what])
        found.append(Stretch(run.name_of(process), phase or SERVING, most, from_s, before))
    return found


def _what(piece: Piece, local: Set[str]) -> What:
    """Loops that are charged are let pass."""
    return "cpu" if piece.phase in local else piece.what
