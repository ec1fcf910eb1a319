"""From what was asked and a profile to the numbers that the model takes, and where each is from.

A flag goes before the profile, the profile before the default: 0 for what costs time, 8 GPUs a
node, every failure confined where there is isolation. Raises UsageError for what cannot be
together.
"""

from dataclasses import dataclass, field
from typing import Literal

from emucoll.errors import UsageError
from emucoll.training.rates import DAY_S, nodes_of, per_1000_node_days, per_1000_node_days_of
from emucoll.training.storage import shortest_period_s, write_s
from harness.results.training import Input
from harness.training.profile import TrainingProfile
from harness.training.spec import MAX_RATE, EttSpec

GPUS_PER_NODE = 8
JOB_LENGTH_S = 30 * DAY_S
REPLICAS = 12
"""What isolation is worth is told for so many where neither flag nor profile says how many: the
published number at 98,304 GPUs."""

Origin = Literal["flag", "profile", "default", "calculated"]


@dataclass(kw_only=True)
class Inputs:
    """Numbers for the model; `listed` is what a report shows of them."""

    sizes: tuple[int, ...]
    gpus_per_node: int
    per_1000_node_days: float
    counted: int | None
    """Failures that the rate was counted from; None: it is taken as it is."""
    write_s: float
    shortest_write_s: float
    """At the storage's peak."""
    shortest_period_s: float
    """Of checkpoints that the storage keeps up with."""
    interval_s: float | None
    """None: the best."""
    detection_s: float
    restart_s: float
    init_s: float
    stall_s: float
    confined_share: float
    replicas: int
    """Of isolation, where it is asked for or is an alternative."""
    job_length_s: float
    listed: list[Input] = field(default_factory=list)


class _Taken:
    """Takes values from flag, profile or default, and lists where each came from."""

    def __init__(self, profile: TrainingProfile | None) -> None:
        self._values = {} if profile is None else profile.values
        self.listed: list[Input] = []

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def value(
        self, key: str, flag: str, given: float | None, default: float, unit: str | None = "s"
    ) -> float:
        """The value of `key`, listed."""
        if given is not None:
            return self.say(key, given, unit, "flag", f"--{flag}")
        if key in self._values:
            return self.of_profile(key, unit)
        return self.say(key, default, unit, "default", "neither flag nor profile gives it")

    def of_profile(self, key: str, unit: str | None = "s") -> float:
        """The profile's value of `key`, listed."""
        known = self._values[key]
        because = f"assumption: {known.because}" if known.assumed else known.because
        return self.say(key, known.value, unit, "profile", because)

    def say(self, key: str, value: float, unit: str | None, origin: Origin, because: str) -> float:
        """List a value, once, and return it."""
        said = Input(name=key, value=value, unit=unit, origin=origin, because=because)
        if said not in self.listed:
            self.listed.append(said)
        return value


def make_inputs(spec: EttSpec, profile: TrainingProfile | None) -> Inputs:
    """All numbers. Raises UsageError."""
    taken = _Taken(profile)
    sizes = spec.n
    if not sizes:
        if "n" not in taken:
            raise UsageError(
                f"-n is missing, and profile {spec.profile} has no n: expected numbers of GPUs, as "
                "in -n 16384,98304"
            )
        sizes = (int(taken.of_profile("n", "GPUs")),)
    gpus = int(
        taken.value("gpus_per_node", "gpus-per-node", spec.gpus_per_node, GPUS_PER_NODE, None)
    )
    rate, counted = _rate(spec, taken, gpus)
    write, at_peak, period = _write(spec, taken)
    interval = _interval(spec, taken, write)
    inputs = Inputs(
        sizes=sizes,
        gpus_per_node=gpus,
        per_1000_node_days=rate,
        counted=counted,
        write_s=write,
        shortest_write_s=at_peak,
        shortest_period_s=period,
        interval_s=interval,
        detection_s=taken.value("detection", "detection", spec.detection_s, 0.0),
        restart_s=taken.value("restart", "restart", spec.restart_s, 0.0),
        init_s=0.0 if spec.plan else taken.value("init", "init", spec.init_s, 0.0),
        stall_s=taken.value("stall", "stall", spec.stall_s, 0.0),
        confined_share=taken.value(
            "confined_share", "confined-share", spec.confined_share, 1.0, None
        ),
        replicas=int(taken.value("replicas", "isolation", spec.isolation, REPLICAS, None)),
        job_length_s=taken.value("job_length", "job-length", spec.job_length_s, JOB_LENGTH_S),
    )
    inputs.listed = taken.listed
    if spec.isolation is not None:
        for n in sizes:
            if n < spec.isolation:
                raise UsageError(
                    f"--isolation is {spec.isolation}: {n} GPUs cannot be so many replicas, "
                    f"expected at most {n}"
                )
    return inputs


def _rate(spec: EttSpec, taken: _Taken, gpus_per_node: int) -> tuple[float, int | None]:
    """Failures per 1,000 node-days, and how many they were counted from."""
    key, unit = "failures_per_1000_node_days", "per 1,000 node-days"
    given = spec.failures_per_1000_node_days
    if given is not None or not ({"failures", "mean_time_between_failures"} & set(_known(taken))):
        flag = "failures-per-1000-node-days"
        return taken.value(key, flag, given, 0.0, unit), None
    nodes = nodes_of(int(taken.of_profile("n", "GPUs")), gpus_per_node)
    counted = None
    if "failures" in taken:
        counted = int(taken.of_profile("failures", None))
        rate = per_1000_node_days(counted, nodes, taken.of_profile("observed"))
        because = f"failures / (observed x {nodes} nodes)"
    else:
        rate = per_1000_node_days_of(taken.of_profile("mean_time_between_failures"), nodes)
        because = f"1 / (mean_time_between_failures x {nodes} nodes)"
    if rate > MAX_RATE:
        raise UsageError(f"the profile's rate is {rate:g} {unit}: expected at most {MAX_RATE:g}")
    return taken.say(key, rate, unit, "calculated", because), counted


def _known(taken: _Taken) -> list[str]:
    return [key for key in ("failures", "mean_time_between_failures") if key in taken]


def _write(spec: EttSpec, taken: _Taken) -> tuple[float, float, float]:
    """How long a checkpoint takes to write; the same at the storage's peak; the shortest period."""
    by_flags = spec.checkpoint_size_bytes is not None or spec.storage_bandwidth is not None
    given = spec.checkpoint_write_s
    if given is not None or not (by_flags or "checkpoint_size" in taken):
        write = taken.value("checkpoint_write", "checkpoint-write", given, 0.0)
        return write, write, 0.0
    for flag, value, key in (
        ("--checkpoint-size", spec.checkpoint_size_bytes, "checkpoint_size"),
        ("--storage-bandwidth", spec.storage_bandwidth, "storage_sustained"),
    ):
        if value is None and key not in taken:
            raise UsageError(f"{flag} is missing: the write time follows from both")
    size = taken.value(
        "checkpoint_size", "checkpoint-size", spec.checkpoint_size_bytes, 0.0, "bytes"
    )
    bandwidth = taken.value(
        "storage_sustained", "storage-bandwidth", spec.storage_bandwidth, 0.0, "bytes/s"
    )
    peak, burst = bandwidth, 0.0
    if "storage_peak" in taken and spec.storage_bandwidth is None:
        peak = taken.of_profile("storage_peak", "bytes/s")
        burst = taken.of_profile("storage_burst", "bytes") if "storage_burst" in taken else 0.0
    write = write_s(size, bandwidth, peak, burst)
    why = "checkpoint_size / storage_sustained"
    if burst:
        why = "the burst at storage_peak, the rest at storage_sustained"
    taken.say("checkpoint_write", write, "s", "calculated", why)
    return write, size / peak, shortest_period_s(size, bandwidth)


def _interval(spec: EttSpec, taken: _Taken, write: float) -> float | None:
    """Work between two writes; None: the best."""
    key, flag = "checkpoint_interval", "checkpoint-interval"
    if spec.best_interval or (spec.checkpoint_interval_s is None and key not in taken):
        return None
    interval = taken.value(key, flag, spec.checkpoint_interval_s, 0.0)
    if interval == 0 and write > 0:
        raise UsageError(
            f"--{flag} is 0 and a write takes {write:g} s: nothing but writing would be done; "
            "expected more than 0, or auto"
        )
    return interval
