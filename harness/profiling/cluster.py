"""Where the time of a run goes on a cluster: in virtual time, along the critical path."""

from collections.abc import Sequence, Set
from dataclasses import dataclass
from itertools import groupby
from typing import NamedTuple

from emucoll.errors import HarnessError
from emucoll.sim.path import Path, Piece, What
from harness.clusters import Cluster, in_order
from harness.engine.virtual import VirtualRun
from harness.profiling.spec import ProfileSpec
from harness.projection.engine import setting_of

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


def blame(spec: ProfileSpec, n: int, cluster: Cluster) -> Blame:
    """Run it there. Raises HarnessError where it fails."""
    path = Path()
    setting = setting_of(cluster, in_order(n, cluster.gpus_per_host))
    run = VirtualRun(spec.virtual_of(n), setting, path)
    trouble = run.run().trouble
    if trouble is not None or run.last_done is None:
        raise HarnessError(f"{n} ranks in virtual time: {trouble}")
    local = {each.phase for each in run.plan.locals}
    pieces = path.to(run.last_done)
    parts: dict[Part, float] = {}
    before = 0.0
    for piece in pieces:
        entity = run.name_of(piece.process).partition(" ")[0]
        part = Part(entity, piece.phase or SERVING, _what(piece, local))
        parts[part] = parts.get(part, 0.0) + piece.until - before
        before = piece.until
    return Blame(before, parts, _stretches(run, pieces, local))


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
