"""Where the time of a run goes on a cluster: in virtual time, along the critical path."""

from collections.abc import Sequence
from dataclasses import dataclass
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
        # Loops that are charged are let pass.
        what: What = "cpu" if piece.phase in local else piece.what
        entity = run.name_of(piece.process).partition(" ")[0]
        part = Part(entity, piece.phase or SERVING, what)
        parts[part] = parts.get(part, 0.0) + piece.until - before
        before = piece.until
    return Blame(before, parts, _stretches(run, pieces))


def _stretches(run: VirtualRun, pieces: Sequence[Piece]) -> list[Stretch]:
    """Pieces in a row that are one process's, in one phase, at one thing, together."""
    found: list[Stretch] = []
    before = 0.0
    for piece in pieces:
        who, phase = run.name_of(piece.process), piece.phase or SERVING
        last = found[-1] if found else None
        if last is not None and (last.who, last.phase, last.what) == (who, phase, piece.what):
            found[-1] = last._replace(until_s=piece.until)
        else:
            found.append(Stretch(who, phase, piece.what, before, piece.until))
        before = piece.until
    return found
