"""What others published of such initializations: `profiles/published/init-times.toml`."""

from collections.abc import Sequence

from harness.profile import Kind, Value, read
from harness.results.projection import PublishedPoint

SYSTEMS = {"nccl": "nccl-2.22.3", "ncclx": "ncclx"}
"""And the plan that each is taken to be."""
SIZES = (8192, 32768, 98304)
TOPOLOGY = "topology_pair"
_LAYOUT: dict[str, Kind] = {
    f"{system}.{name}": "time" for system in SYSTEMS for name in (*map(str, SIZES), TOPOLOGY)
}


def published_values() -> dict[str, Value]:
    """By SYSTEM.N the totals, by SYSTEM.topology_pair what a pair of ranks costs beside a plan."""
    return read("published", "init-times", _LAYOUT, set()).values


def published_points(plans: Sequence[str]) -> list[PublishedPoint]:
    """The totals of these plans."""
    values = published_values()
    return [
        PublishedPoint(
            system=system,
            plan=plan,
            n=n,
            seconds=values[f"{system}.{n}"].value,
            source=values[f"{system}.{n}"].why,
        )
        for system, plan in SYSTEMS.items()
        if plan in plans
        for n in SIZES
    ]
