"""What `emucoll ett` is asked for: what the command line gave, None where it gave nothing.

Knows no profile: what is left open, `harness.training.inputs` fills in.
"""

import math

import msgspec

from emucoll.errors import UsageError
from harness.spec import INT_MAX

MAX_SIZES = 1_000
MAX_FAILURES = 100_000_000
"""Of a Monte Carlo run: about ten seconds."""
MAX_RATE = 1e9
"""Failures per 1,000 node-days: one of each node every 86 ms."""
MAX_TIME_S = 1e12
"""30,000 years."""


class EttSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to calculate. Seconds and bytes, unless a name says otherwise."""

    n: tuple[int, ...] = ()
    """GPUs; empty: those of the profile."""
    profile: str | None = None
    """A name, or a file."""
    failures_per_1000_node_days: float | None = None
    gpus_per_node: int | None = None
    checkpoint_write_s: float | None = None
    checkpoint_size_bytes: int | None = None
    storage_bandwidth: int | None = None
    """Bytes per second, sustained."""
    checkpoint_interval_s: float | None = None
    """Work between two writes; None: the best, or the profile's."""
    best_interval: bool = False
    """`auto` was asked for."""
    detection_s: float | None = None
    restart_s: float | None = None
    init_s: float | None = None
    plan: tuple[str, ...] = ()
    cluster: str | None = None
    isolation: int | None = None
    """Replicas; None: a failure stops all."""
    stall_s: float | None = None
    confined_share: float | None = None
    job_length_s: float | None = None
    monte_carlo: int = 100_000
    """Failures to play; 0: none."""
    seed: int = 1
    out: str | None = None


def check(spec: EttSpec) -> None:
    """Raise UsageError for what no profile could make sense of."""
    if not spec.n and spec.profile is None:
        raise UsageError("-n is missing: expected numbers of GPUs, as in -n 16384,98304")
    if len(spec.n) > MAX_SIZES:
        raise UsageError(f"-n names {len(spec.n)} sizes: expected at most {MAX_SIZES}")
    counts: list[tuple[str, float | None, float, float]] = [
        *(("-n", n, 1, INT_MAX) for n in spec.n),
        ("--gpus-per-node", spec.gpus_per_node, 1, INT_MAX),
        ("--failures-per-1000-node-days", spec.failures_per_1000_node_days, 0, MAX_RATE),
        ("--isolation", spec.isolation, 2, INT_MAX),
        ("--confined-share", spec.confined_share, 0, 1),
        ("--monte-carlo", spec.monte_carlo, 0, MAX_FAILURES),
        ("--seed", spec.seed, 0, 2**63 - 1),
        ("--storage-bandwidth", spec.storage_bandwidth, 1, 2**63 - 1),
    ]
    for name, value, low, high in counts:
        _in_bounds(name, value, low, high)
    times = {
        "--checkpoint-write": spec.checkpoint_write_s,
        "--checkpoint-interval": spec.checkpoint_interval_s,
        "--detection": spec.detection_s,
        "--restart": spec.restart_s,
        "--init": spec.init_s,
        "--stall": spec.stall_s,
        "--job-length": spec.job_length_s,
    }
    for name, value in times.items():
        if value is not None and value > MAX_TIME_S:
            raise UsageError(f"{name} is {value:g} s: expected at most {MAX_TIME_S:g} s")
    if spec.job_length_s == 0:
        raise UsageError("--job-length is 0: expected how long the job runs, as in 1296h")
    if spec.out == "":
        raise UsageError("--out is empty: expected a directory ('.' for this one)")
    if spec.out is not None and "\0" in spec.out:
        raise UsageError(f"--out {spec.out!r}: expected a path")
    _check_together(spec)


def _check_together(spec: EttSpec) -> None:
    by_size = spec.checkpoint_size_bytes is not None or spec.storage_bandwidth is not None
    if by_size and spec.checkpoint_write_s is not None:
        raise UsageError(
            "--checkpoint-write and --checkpoint-size or --storage-bandwidth: the write time "
            "follows from those two; leave one of them out"
        )
    if bool(spec.plan) != (spec.cluster is not None):
        raise UsageError("--plan and --cluster belong together: give both, or leave both out")
    if spec.plan and spec.init_s is not None:
        raise UsageError(
            "--init and --plan: a plan says how long init takes; leave one of them out"
        )
    if spec.isolation is None:
        for flag, value in (("--stall", spec.stall_s), ("--confined-share", spec.confined_share)):
            if value is not None and spec.profile is None:
                raise UsageError(f"{flag}: it is of isolation; give --isolation REPLICAS too")


def _in_bounds(name: str, value: float | None, low: float, high: float) -> None:
    if value is None:
        return
    if math.isnan(value) or value < low:
        raise UsageError(f"{name} is {value:g}: expected at least {low:g}")
    if value > high:
        raise UsageError(f"{name} is {value:.10g}: expected at most {high:.10g}")
