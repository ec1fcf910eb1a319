"""A run as its directory keeps it, with every span: what looks at a run afterwards begins here.

What is not there, or does not fit together, is a UsageError that says what to do. Calculates
nothing.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from emucoll.errors import UsageError
from harness.results.recording import Recording, load_recording
from harness.results.schema import RunResult
from harness.results.storage import load
from harness.spec import Spec

_WANTED = "expected the directory that emucoll run --out wrote"


@dataclass(frozen=True)
class Recorded:
    """A run with all its spans."""

    result: RunResult
    spec: Spec
    recording: Recording
    ranks: list[int]
    """That ran here, ascending: all but external ones."""
    totals: npt.NDArray[np.float64]
    """Their seconds."""


def load_recorded(directory: str) -> Recorded:
    """What `emucoll run --out DIR` wrote. Raises UsageError."""
    if not Path(directory).is_dir():
        raise UsageError(f"--from {directory}: there is no such directory; {_WANTED}")
    try:
        result, times = load(directory)
    except UsageError as error:
        raise UsageError(f"--from {directory}: {error}; {_WANTED}") from error
    recording = load_recording(directory)
    if recording is None:
        raise UsageError(f"--from {directory}: the run has no recording: {_why_none(result)}")
    spec = result.spec
    external = () if spec is None else spec.external_ranks
    nranks = 0 if spec is None else spec.nranks
    ranks = np.delete(np.arange(nranks), list(external)).tolist()
    totals = times.get("total", np.empty(0))
    if spec is None or len(totals) != len(ranks) or not ranks:
        raise UsageError(
            f"--from {directory}: its files do not belong together; run again with --out"
        )
    return Recorded(result, spec, recording, ranks, totals)


def refuse_ranks(run: Recorded, asked: Sequence[int]) -> None:
    """Raise UsageError for a rank that is none, or that ran elsewhere."""
    for rank in asked:
        if rank >= run.spec.nranks:
            raise UsageError(
                f"--ranks: there is no rank {rank}, expected 0 to {run.spec.nranks - 1}"
            )
        if rank in run.spec.external_ranks:
            raise UsageError(
                f"--ranks: rank {rank} was another program, which tells nobody what it did; leave "
                "it out"
            )


def _why_none(result: RunResult) -> str:
    if result.spec is not None and not result.spec.record:
        return "it was made with --no-record; run again without"
    if result.error is not None:
        return "it failed, and one that fails before its end keeps none"
    return "a version wrote it that kept none; run again with --out"
