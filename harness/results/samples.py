"""samples.json of a profile's directory: what the code of each role was seen to do, at each size.

A sample is a stack of functions that was on a CPU. Calculates nothing.
"""

from pathlib import Path
from typing import ClassVar

import msgspec

from emucoll.errors import UsageError
from harness.results.storage import SAMPLES_FILE, save_file


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """One role at one size."""

    role: str
    """`rank` (all workers together), `root`, `store` or `controller`."""
    n: int
    bring_ups: int
    """How often the ranks were brought up while it was sampled."""
    every_s: float
    """Between two samples of one process: what a sample stands for."""
    stacks: list[list[str]]
    """Each from the outermost function to the innermost, as `function (file:line)`."""
    counts: list[int]
    """How often each of `stacks` was seen."""


class Samples(msgspec.Struct, kw_only=True, tag_field="schema", tag="emucoll.samples/1"):
    """All that was sampled."""

    schema: ClassVar[str] = "emucoll.samples/1"

    sampled: list[Sampled]


def save_samples(samples: Samples, directory: str) -> None:
    """Write it. Raises UsageError."""
    save_file(msgspec.json.encode(samples), str(Path(directory) / SAMPLES_FILE))


def load_samples(directory: str) -> Samples | None:
    """What `save_samples` wrote there; None where there is none. Raises UsageError for what is
    damaged.
    """
    path = Path(directory) / SAMPLES_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=Samples)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
