"""From what was asked and a profile to the numbers that the model takes, and where each is from.

A flag goes before the profile, the profile before the default: 0 for what costs time, 8 GPUs a
node, every failure confined where there is isolation. Raises UsageError for what cannot be
together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from emucoll.errors import UsageError
from emucoll.training.rates import DAY_S, nodes_of, per_1000_node_days, per_1000_node_days_of
from emucoll.training.storage import shortest_period_s, write_s
from harness.profile import Profile, Value
from harness.results.training import Input
from harness.training.spec import MAX_RATE, MAX_TIME_S, EttSpec

GPUS_PER_NODE = 8
JOB_LENGTH_S = 30 * DAY_S
REPLICAS = 12
"""What isolation is worth is told for so many where neither flag nor profile says how many: the
published number at 98,304 GPUs."""

Origin = Literal["flag", "profile", "default", "calculated"]
Pick: TypeAlias = Callable[[Value], float]
"""Which number of a profile's value is taken."""


@dataclass(kw_only=True)
class Inputs:
    """Numbers for the model; `listed` is what a report shows of them."""

    sizes: tuple[int, ...]
    gpus_per_node: int
    per_1000_node_days: float
    counted: int | None
    """Failures that the rate was counted from; None: it is taken as it is."""
    write_s: float
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


def as_given(value: Value) -> float:
    """The value itself, not one from its range."""
    return value.value


class _Taken:
    """Takes values from flag, profile or default, and lists where each came from."""

    def __init__(self, profile: Profile | None, pick: Pick) -> None:
        self._values: Mapping[str, Value] = {} if profile is None else profile.values
        self._pick = pick
        self.listed: list[Input] = []

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def value(
        self, key: str, flag: str, given: float | None, default: float, unit: str | None = "s"
    ) -> float:
        """The value of `key`, listed."""
        if given is not None:
            return self.say(key, given, unit, "flag", flag)
        if key in self._values:
            return self.of_profile(key, unit)
        return self.say(key, default, unit, "default", "neither flag nor profile gives it")

    def of_profile(self, key: str, unit: str | None = "s") -> float:
        """The profile's value of `key`, listed."""
        known = self._values[key]
        because = f"assumption: {known.why}" if known.source is None else known.why
        ends = (known.low, known.high) if known.low < known.high else (None, None)
        return self.say(key, self._pick(known), unit, "profile", because, ends)

    def say(
        self,
        key: str,
        value: float,
        unit: str | None,
        origin: Origin,
        because: str,
        ends: tuple[float | None, float | None] = (None, None),
    ) -> float:
        """List a value, once, and return it."""
        low, high = ends
        said = Input(
            name=key, value=value, low=low, high=high, unit=unit, origin=origin, because=because
        )
        if said not in self.listed:
            self.listed.append(said)
        return value


def make_inputs(spec: EttSpec, profile: Profile | None, pick: Pick = as_given) -> Inputs:
    """All numbers. Raises UsageError."""
    taken = _Taken(profile, pick)
    sizes = spec.n
    if not sizes:
        if "n" not in taken:
            raise UsageError(
                f"-n is missing, and profile {spec.profile} has no n: expected numbers of GPUs, as "
                "in -n 16384,98304"
            )
        sizes = (int(taken.of_profile("n", "GPUs")),)
    gpus = int(
        taken.value("gpus_per_node", "--gpus-per-node", spec.gpus_per_node, GPUS_PER_NODE, None)
    )
    rate, counted = _rate(spec, taken, gpus)
    write, period = _write(spec, taken)
    inputs = Inputs(
        sizes=sizes,
        gpus_per_node=gpus,
        per_1000_node_days=rate,
        counted=counted,
        write_s=write,
        shortest_period_s=period,
        interval_s=_interval(spec, taken, write),
        detection_s=taken.value("recovery.detection", "--detection", spec.detection_s, 0.0),
        restart_s=taken.value("recovery.restart", "--restart", spec.restart_s, 0.0),
        init_s=0.0 if spec.plan else taken.value("recovery.init", "--init", spec.init_s, 0.0),
        stall_s=taken.value("isolation.stall", "--stall", spec.stall_s, 0.0),
        confined_share=taken.value(
            "isolation.confined_share", "--confined-share", spec.confined_share, 1.0, None
        ),
        replicas=int(taken.value("replicas", "--isolation", spec.isolation, REPLICAS, None)),
        job_length_s=taken.value("job_length", "--job-length", spec.job_length_s, JOB_LENGTH_S),
        listed=taken.listed,
    )
    for each in inputs.listed:
        if each.unit == "s" and each.value > MAX_TIME_S:
            raise UsageError(f"{each.name} is {each.value:g} s: expected at most {MAX_TIME_S:g} s")
    _check_replicas(spec, sizes)
    return inputs


def _check_replicas(spec: EttSpec, sizes: tuple[int, ...]) -> None:
    for n in sizes:
        if spec.isolation is not None and n < spec.isolation:
            raise UsageError(
                f"--isolation is {spec.isolation}: {n} GPUs cannot be so many replicas, expected "
                f"at most {n}"
            )


def _rate(spec: EttSpec, taken: _Taken, gpus_per_node: int) -> tuple[float, int | None]:
    """Failures per 1,000 node-days, and how many they were counted from."""
    key, unit = "failures.per_1000_node_days", "per 1,000 node-days"
    given = spec.failures_per_1000_node_days
    counts, apart = "failures.count", "failures.mean_time_between"
    if given is not None or not (counts in taken or apart in taken):
        return taken.value(key, "--failures-per-1000-node-days", given, 0.0, unit), None
    nodes = nodes_of(int(taken.of_profile("n", "GPUs")), gpus_per_node)
    counted = None
    if counts in taken:
        counted = int(taken.of_profile(counts, None))
        rate = per_1000_node_days(counted, nodes, taken.of_profile("failures.observed"))
        because = f"failures.count / (failures.observed x {nodes} nodes)"
    else:
        rate = per_1000_node_days_of(taken.of_profile(apart), nodes)
        because = f"1 / (failures.mean_time_between x {nodes} nodes)"
    if rate > MAX_RATE:
        raise UsageError(f"the profile's rate is {rate:g} {unit}: expected at most {MAX_RATE:g}")
    return taken.say(key, rate, unit, "calculated", because), counted


def _write(spec: EttSpec, taken: _Taken) -> tuple[float, float]:
    """How long a checkpoint takes to write, and the shortest period that the storage keeps up with.

    A flag for size or bandwidth goes before the profile's write time.
    """
    size_flag, bandwidth_flag = spec.checkpoint_size_bytes, spec.storage_bandwidth
    by_flags = size_flag is not None or bandwidth_flag is not None
    given = spec.checkpoint_write_s
    if given is not None or not (by_flags or "checkpoint.size" in taken):
        return taken.value("checkpoint.write", "--checkpoint-write", given, 0.0), 0.0
    if size_flag is None and "checkpoint.size" not in taken:
        raise UsageError("--storage-bandwidth needs --checkpoint-size, or a profile that has it")
    if bandwidth_flag is None and "storage.sustained" not in taken:
        raise UsageError("--checkpoint-size needs --storage-bandwidth, or a profile that has it")
    size = taken.value("checkpoint.size", "--checkpoint-size", size_flag, 0.0, "bytes")
    sustained = taken.value(
        "storage.sustained", "--storage-bandwidth", bandwidth_flag, 0.0, "bytes/s"
    )
    peak, burst = sustained, 0.0
    if "storage.peak" in taken and bandwidth_flag is None:
        peak = max(sustained, taken.of_profile("storage.peak", "bytes/s"))
        burst = taken.of_profile("storage.burst", "bytes") if "storage.burst" in taken else 0.0
    write = write_s(size, sustained, peak, burst)
    why = "checkpoint.size / storage.sustained"
    if burst:
        why = "storage.burst at storage.peak, the rest at storage.sustained"
    taken.say("checkpoint.write", write, "s", "calculated", why)
    if peak > sustained:
        fastest = "all at storage.peak: no write of this size is faster"
        taken.say("checkpoint.write at peak", size / peak, "s", "calculated", fastest)
    return write, shortest_period_s(size, sustained)


def _interval(spec: EttSpec, taken: _Taken, write: float) -> float | None:
    """Work between two writes; None: the best."""
    key, flag = "checkpoint.interval", "--checkpoint-interval"
    if spec.best_interval or (spec.checkpoint_interval_s is None and key not in taken):
        return None
    interval = taken.value(key, flag, spec.checkpoint_interval_s, 0.0)
    if interval == 0 and write > 0:
        raise UsageError(
            f"{flag} is 0 and a write takes {write:g} s: nothing but writing would be done; "
            "expected more than 0, or auto"
        )
    return interval
