"""A barrier that is run once for all hosts alike takes what every host's own would."""

import numpy as np
import pytest

from harness.clusters import Cluster, find_cluster, in_order
from harness.engine import played
from harness.engine.assemble import OUTSIDE
from harness.engine.barriers import PlayedBarriers
from harness.engine.virtual import run_in
from harness.projection.engine import setting_of, spec_of
from harness.projection.spec import ProjectSpec
from harness.results.schema import RunResult

CLUSTER = "h100-roce-98k"


@pytest.fixture
def cluster() -> Cluster:
    return find_cluster(CLUSTER, 512)


def run(plan: str, n: int, cluster: Cluster, name: str, hosts: np.ndarray) -> RunResult:
    spec = spec_of(plan, n, ProjectSpec(plan=(plan,), n=(n,), cluster=name), cluster)
    result = run_in(spec, setting_of(cluster, hosts))
    assert result.ok
    return result


@pytest.mark.parametrize("plan", ["nccl-2.22.3", "nccl-2.23.4+multiroot", "nccl-2.30.7", "ncclx"])
@pytest.mark.parametrize(("n", "order"), [(2, "host"), (15, "host"), (164, "host"), (96, "random")])
def test_each_phase_takes_as_long(
    monkeypatch: pytest.MonkeyPatch, cluster: Cluster, plan: str, n: int, order: str
) -> None:
    hosts = in_order(n, cluster.gpus_per_host)
    if order == "random":
        np.random.default_rng(1).shuffle(hosts)
    cases: list[PlayedBarriers] = []

    class Kept(PlayedBarriers):
        def __init__(self, *args: object) -> None:
            super().__init__(*args)  # type: ignore[arg-type]
            cases.append(self)

    monkeypatch.setattr(played, "PlayedBarriers", Kept)
    once = run(plan, n, cluster, CLUSTER, hosts)
    assert len(cases) == 1
    monkeypatch.delattr(played.PlayedInitialization, "_barrier")
    each = run(plan, n, cluster, CLUSTER, hosts)

    def seconds(result: RunResult) -> dict[str, list[float | None]]:
        phases = [phase for phase in result.phases if phase.within != OUTSIDE]
        assert any(phase.name.endswith("barrier") for phase in phases)
        return {p.name: [p.mean_s, p.max_s] for p in phases}

    for name, values in seconds(each).items():
        assert seconds(once)[name] == pytest.approx(values, rel=1e-9, abs=1e-12), name
    assert once.total_s == pytest.approx(each.total_s, rel=1e-9)
    assert work_of(once) == work_of(each)
    if order == "host" and n > 100:
        assert 1 <= len(cases[0]._known) < n / 8  # 20 full hosts and one of four


def work_of(result: RunResult) -> tuple[object, ...]:
    """What was sent and asked for, to the last message; CPU seconds add up in another order."""
    work = result.work.ranks
    assert work is not None
    return (
        *(getattr(work, name) for name in ("messages", "bytes", "connections", "retries")),
        pytest.approx(work.cpu_s, rel=1e-9),
        result.descriptors,
    )


def test_where_ranks_are_makes_another_case(cluster: Cluster) -> None:
    """Ranks of one host, by number, that lie elsewhere."""
    n = 16
    together = run("ncclx", n, cluster, CLUSTER, in_order(n, 8))
    apart = run("ncclx", n, cluster, CLUSTER, np.arange(n))

    def barrier_s(result: RunResult) -> float:
        return next(p.mean_s or 0.0 for p in result.phases if p.name.endswith("barrier"))

    assert barrier_s(apart) > 1.5 * barrier_s(together)
