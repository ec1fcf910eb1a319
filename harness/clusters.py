"""Clusters: what `--cluster` names, as costs and places."""

from dataclasses import dataclass

from emucoll.errors import UsageError
from emucoll.sim.cost import Costs
from harness.profile import Kind, Profile, read

FOLDER = "clusters"
_LAYOUT: dict[str, Kind] = {
    "hosts": "count",
    "gpus_per_host": "count",
    "latency.between_hosts": "time",
    "latency.within_host": "time",
    "latency.jitter": "time",
    "cpu.write": "time",
    "cpu.read": "time",
    "cpu.connect": "time",
    "cpu.accept": "time",
    "cpu.listen": "time",
    "cpu.iteration": "time",
    "network.bandwidth": "size",
    "kernel.somaxconn": "count",
}
_OPTIONAL = {"latency.jitter"}


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
    def iteration_s(self) -> float:
        """Of the innermost loops of local work."""
        return self.profile.values["cpu.iteration"].value

    @property
    def jitter_s(self) -> float:
        """The mean of what a message takes beyond its latency; exponentially distributed."""
        jitter = self.profile.values.get("latency.jitter")
        return 0.0 if jitter is None else jitter.value

    def costs(self) -> Costs:
        """Of its network and its processes."""
        values = {key: each.value for key, each in self.profile.values.items()}
        return Costs(
            latency_s=values["latency.between_hosts"],
            intra_host_latency_s=values["latency.within_host"],
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
    if cluster.profile.values["network.bandwidth"].value <= 0:
        raise UsageError(f"{name}: network.bandwidth is 0: expected more")
    return cluster
