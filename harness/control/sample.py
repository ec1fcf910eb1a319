"""A process that times the local work of a plan: `python -m harness.control.sample < SPEC`.

It prints the seconds that one rank's calls of each loop take, by phase. It runs before the ranks
start, alone, so that nothing disturbs what is charged to all of them afterwards.
"""

import os
import sys
import time

import msgspec

from emucoll.errors import EmucollError
from emucoll.loading import look_in
from emucoll.plans.local import Extent, LocalWork
from harness.planned import extent_of, locals_of
from harness.spec import Spec

TRIES, MOST_TRIES = 5, 60
ENOUGH_S = 0.2
"""So long a short loop is tried again and again: a disturbance may last for milliseconds."""
LONG_S = 0.5
"""What takes longer is timed once."""


def one_rank_s(work: LocalWork, extent: Extent) -> float:
    """Seconds that one rank's calls take: the least of several ranks' that try it one after the
    other, for whatever disturbs them makes them slower.
    """
    data = work.data(extent)
    work.run(work.data(Extent(2, 1, 1)), 0, Extent(2, 1, 1))  # compiled before the clock runs
    once = extent._replace(channels=1)
    least, spent_s = float("inf"), 0.0
    for index in range(MOST_TRIES):
        begin = time.thread_time()
        work.run(data, index % TRIES * extent.nranks // TRIES, once)
        took_s = time.thread_time() - begin
        least, spent_s = min(least, took_s), spent_s + took_s
        if least > LONG_S or (index + 1 >= TRIES and spent_s > ENOUGH_S):
            break
    return least * work.calls(extent)


def sample(spec: Spec) -> dict[str, float]:
    """By phase what one rank's calls take, in seconds."""
    extent = extent_of(spec)
    return {local.phase: one_rank_s(local.work, extent) for local in locals_of(spec)}


def main() -> None:
    """Read the spec, print the seconds; what goes wrong goes to stderr, with exit code 2."""
    look_in(os.getcwd())
    spec = msgspec.json.decode(sys.stdin.buffer.read(), type=Spec)
    try:
        seconds = sample(spec)
    except (EmucollError, ValueError) as error:
        sys.stderr.write(f"{error}\n")
        raise SystemExit(2) from None
    sys.stdout.buffer.write(msgspec.json.encode(seconds))


if __name__ == "__main__":
    main()
