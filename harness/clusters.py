"""Clusters: what `--cluster` names, as costs and places."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from emucoll.errors import UsageError
from emucoll.sim.cost import Costs
from harness.jitter import SHAPES, Jitter
from harness.profile import Kind, Profile, read

FOLDER = "clusters"
MOST_TRANSFERS = 1 << 17
"""An AllGather that delivers more blocks is played in rounds, all ranks at once."""
_LAYOUT: dict[str, Kind] = {
    "hosts": "count",
    "gpus_per_host": "count",
    "hosts_per_rack": "count",
    "latency.between_hosts": "time",
    "latency.within_host": "time",
    "latency.within_rack": "time",
    "latency.jitter": "time",
    "latency.jitter_distribution": "text",
    "cpu.write": "time",
    "cpu.read": "time",
    "cpu.contention": "time",
    "cpu.connect": "time",
    "cpu.accept": "time",
    "cpu.listen": "time",
    "cpu.iteration": "time",
    "network.bandwidth": "size",
    "kernel.somaxconn": "count",
}
_LOOPS = "loops."
_LAYOUT |= dict.fromkeys(
    (
        f"{_LOOPS}{name}"
        for name in ("ring_check", "same_process", "duplicate_gpu", "node_numbering", "split_sort")
    ),
    "time",
)
_OPTIONAL = {
    "latency.jitter",
    "latency.jitter_distribution",
    "latency.within_rack",
    "hosts_per_rack",
    "cpu.contention",
}
_OPTIONAL |= {key for key in _LAYOUT if key.startswith(_LOOPS)}
Hosts: TypeAlias = npt.NDArray[np.int64]
"""The number of each rank's host."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Where ranks run in virtual time, and what things cost there."""

    hosts: Hosts
    costs: Costs
    iteration_s: float
    """Of the innermost loops of local work,"""
    loops_s: Mapping[str, float] = field(default_factory=dict)
    """but for the work of these names."""
    jitter: Jitter = field(default_factory=Jitter)
    """Of every message."""
    sharing: tuple[range, ...] = ()
    """Ranks that share a CPU; all others have their own."""
    played_above: float = MOST_TRANSFERS
    """AllGathers that deliver more blocks are played in rounds."""


@dataclass(frozen=True)
class Cluster:
    """Hosts, and what things cost on them."""

    profile: Profile

    @property
    def hosts(self) -> int:
        """How many."""
        return int(self.profile.values["hosts"].value)

    @property
    def gpus_per_host(self) -> int:
        """And so ranks."""
        return int(self.profile.values["gpus_per_host"].value)

    @property
    def hosts_per_rack(self) -> int:
        """1 where nothing is said of racks."""
        per_rack = self.profile.values.get("hosts_per_rack")
        return 1 if per_rack is None else int(per_rack.value)

    @property
    def iteration_s(self) -> float:
        """Of the innermost loops of local work."""
        return self.profile.values["cpu.iteration"].value

    @property
    def jitter(self) -> Jitter:
        """What a message takes beyond its latency."""
        values = self.profile.values
        if "latency.jitter" not in values:
            return Jitter()
        shape = values.get("latency.jitter_distribution")
        return Jitter(values["latency.jitter"].value, SHAPES[0] if shape is None else shape.words)

    def setting(self, hosts: Hosts) -> Setting:
        """With each rank on the host of that number."""
        return Setting(
            hosts=hosts,
            costs=self.costs(),
            iteration_s=self.iteration_s,
            loops_s={
                key.removeprefix(_LOOPS): each.value
                for key, each in self.profile.values.items()
                if key.startswith(_LOOPS)
            },
            jitter=self.jitter,
        )

    def costs(self) -> Costs:
        """Of its network and its processes."""
        values = {key: each.value for key, each in self.profile.values.items()}
        return Costs(
            latency_s=values["latency.between_hosts"],
            intra_host_latency_s=values["latency.within_host"],
            intra_rack_latency_s=values.get("latency.within_rack"),
            hosts_per_rack=int(values.get("hosts_per_rack", 1)),
            contention_s=values.get("cpu.contention", 0.0),
            send_s=values["cpu.write"],
            recv_s=values["cpu.read"],
            byte_s=1 / values["network.bandwidth"],
            connect_s=values["cpu.connect"],
            accept_s=values["cpu.accept"],
            listen_s=values["cpu.listen"],
            somaxconn=int(values["kernel.somaxconn"]),
        )


def find_cluster(name: str, nranks: int) -> Cluster:
    """The cluster of that name, or of a file, that has room for the ranks. Raises UsageError."""
    cluster = Cluster(read(FOLDER, name, _LAYOUT, _OPTIONAL))
    slots = cluster.hosts * cluster.gpus_per_host
    if nranks > slots:
        raise UsageError(
            f"-np {nranks}: {name} has {cluster.hosts} hosts × {cluster.gpus_per_host} GPUs = "
            f"{slots} places: fewer ranks, or a larger cluster"
        )
    try:
        cluster.jitter  # noqa: B018
    except UsageError as error:
        raise UsageError(f"{name}: latency.jitter_distribution: {error}") from None
    if cluster.profile.values["network.bandwidth"].low <= 0:
        raise UsageError(f"{name}: network.bandwidth is 0: expected more")
    if "latency.within_rack" in cluster.profile.values and cluster.hosts_per_rack == 1:
        raise UsageError(f"{name}: latency.within_rack: expected hosts_per_rack too, above 1")
    return cluster


def in_order(nranks: int, ranks_per_host: int) -> Hosts:
    """Ranks fill one host after another."""
    return np.arange(nranks, dtype=np.int64) // ranks_per_host
