"""Local work: every rank's own where the machine can run it all, else one rank's, charged to all.

On an emulated host all ranks share the cores; on a cluster each has its own. Loops of n ranks over
n² pairs would take n times as long here as there, so above a budget a few ranks' loops are timed
alone before the start, and each rank then lets that time pass.
"""

import subprocess
import sys

import msgspec

from emucoll.errors import HarnessError, UsageError
from harness.planned import iterations_of
from harness.spec import Spec

EXECUTED_ITERATIONS = 4_000_000_000
"""Of all ranks' loops together: about 4 s of CPU. What has more is charged."""


ITERATION_S = 0.7e-9
"""Of the innermost loops, about: 0.36 to 1 ns on the machines seen."""


def estimate_s(spec: Spec, cores: float) -> float:
    """About how long all ranks' local work takes: one rank's twice, to time it and to let it pass,
    where it is charged, else all ranks' on so many cores.
    """
    return ITERATION_S * iterations_of(spec) * (2 if is_charged(spec) else spec.nranks / cores)


def is_charged(spec: Spec) -> bool:
    """Is its local work too much to be run by every rank?"""
    return spec.nranks * iterations_of(spec) > EXECUTED_ITERATIONS


def charges(spec: Spec) -> dict[str, float]:
    """By phase the seconds that each rank is charged; empty where ranks run their own loops.

    Raises UsageError where the loops cannot be run, HarnessError when they take too long.
    """
    if not is_charged(spec):
        return {}
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "harness.control.sample"],
            input=msgspec.json.encode(spec),
            capture_output=True,
            timeout=spec.deadline_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise HarnessError(
            f"one rank's local work takes longer than the deadline of {spec.deadline_s:g} s"
        ) from None
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        raise UsageError(f"local work cannot be timed: {said[-1] if said else 'no word why'}")
    return msgspec.json.decode(done.stdout, type=dict[str, float])
