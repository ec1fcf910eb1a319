"""Profiles of training jobs: `profiles/training/*.toml`, or a user's own file.

Which keys there are, and which need or exclude each other; how a file is read, `harness.profile`
says. What is wrong is a UsageError that names file and key, and what was expected.
"""

from collections.abc import Mapping

from emucoll.errors import UsageError
from harness.profile import Kind, Profile, Value, names, read
from harness.suggest import unknown

FOLDER = "training"
LAYOUT: dict[str, Kind] = {
    "n": "count",
    "gpus_per_node": "count",
    "replicas": "count",
    "job_length": "time",
    "failures.count": "count",
    "failures.observed": "time",
    "failures.per_1000_node_days": "number",
    "failures.mean_time_between": "time",
    "failures.causes": "counts",
    "checkpoint.write": "time",
    "checkpoint.size": "size",
    "checkpoint.interval": "time",
    "storage.sustained": "size",
    "storage.peak": "size",
    "storage.burst": "size",
    "recovery.detection": "time",
    "recovery.restart": "time",
    "recovery.init": "time",
    "isolation.stall": "time",
    "isolation.confined_share": "share",
}
"""Bandwidths of storage are sizes: bytes a second."""

_RATES = ("failures.per_1000_node_days", "failures.mean_time_between", "failures.count")
_NEEDS = {
    "failures.count": ("n", "failures.observed"),
    "failures.observed": ("failures.count",),
    "failures.mean_time_between": ("n",),
    "checkpoint.size": ("storage.sustained",),
    "storage.peak": ("storage.sustained",),
    "storage.burst": ("storage.peak",),
}
_ABOVE_ZERO = (
    *("job_length", "failures.observed", "failures.mean_time_between"),
    *("storage.sustained", "storage.peak"),
)


def load_profile(name: str) -> Profile:
    """A profile by its name, or from a file (`.toml`, or a path). Raises UsageError."""
    if not name.endswith(".toml") and "/" not in name and name not in names(FOLDER):
        raise unknown("training profile", name, names(FOLDER))
    profile = read(FOLDER, name, LAYOUT, set(LAYOUT))
    _check_whole(profile.values, name)
    return profile


def _check_whole(values: Mapping[str, Value], name: str) -> None:
    """What needs what, and what excludes what."""
    rates = [key for key in _RATES if key in values]
    if len(rates) > 1:
        raise UsageError(f"{name}: {rates[1]} and {rates[0]}: expected one of them, not both")
    for key, others in _NEEDS.items():
        for other in others:
            if key in values and other not in values:
                raise UsageError(f"{name}: {key}: expected {other} beside it")
    for key in _ABOVE_ZERO:
        if key in values and values[key].low <= 0:
            raise UsageError(f"{name}: {key} is 0: expected more")
    if "checkpoint.size" in values and "checkpoint.write" in values:
        raise UsageError(
            f"{name}: checkpoint.write: it follows from checkpoint.size and storage.sustained; "
            "expected one or the other"
        )
    if "storage.peak" in values:
        peak, sustained = values["storage.peak"].value, values["storage.sustained"].value
        if peak < sustained:
            raise UsageError(f"{name}: storage.peak: expected at least storage.sustained")
    if "replicas" in values and values["replicas"].value < 2:
        raise UsageError(f"{name}: replicas is 1: expected at least 2")
