"""What of a run stands beside what of a log, and what the verdict says."""

import pytest

from harness.analysis.beside import comparable, rows_of, verdict
from harness.results.schema import Phase, Row, RunResult
from tests.unit.analysis.logs import bootstrap, complete, init, start, the_one


def a_run(nranks: int = 2, saturated: bool = False, **more: float) -> RunResult:
    means: dict[str, float | None] = {
        "admission": 0.5,
        "bootstrap": 0.100,
        "bootstrap.create": 0.001,
        "bootstrap.delay": 0.0,
        "bootstrap.send": 0.004,
        "bootstrap.recv": 0.010,
        "bootstrap.connect": 0.003,
        "bootstrap.accept": 0.002,
        "bootstrap.barrier": 0.020,
        "bootstrap.ring": 0.060,
        "rest": 0.007,
        "loop": None,
    }
    phases = [Phase(name=name, mean_s=mean) for name, mean in (means | more).items()]
    return RunResult(
        ok=True, exit_code=0, kind="measured", nranks=nranks, saturated=saturated, phases=phases
    )


def a_job(nranks: int = 2) -> str:
    text = ""
    for rank in range(nranks):
        p = f"n{rank}:1:2 [0]"
        text += start(p, rank, nranks, "0xc")
        text += bootstrap(p, "0.200000", "0.001000 0.004000 0.040000 0.120000 0.000000")
        text += complete(p, rank, nranks, "0xc")
        text += init(p, rank, nranks, "1.00", "0.30 0.20 0.20 0.05 0.10 0.05 0.09 0.01")
    return text


def by_metric(rows: list[Row]) -> dict[str, Row]:
    return {row.metric: row for row in rows}


def test_the_barrier_is_not_nccls_and_leaves_the_bootstrap() -> None:
    rows = by_metric(rows_of(a_run(), the_one(a_job())))
    whole = rows["bootstrap"]
    # 0.100 s less 0.020 s of barrier; the log's own line says 0.200 s, 20 % of Init
    assert whole.base == pytest.approx(0.080)
    assert whole.candidate == pytest.approx(0.200)
    assert whole.ratio == pytest.approx(2.5)
    assert whole.candidate_share == pytest.approx(0.2)
    assert whole.verdict == "worse"
    assert not {"bootstrap.barrier", "bootstrap.total", "admission"} & set(rows)


def test_shares_of_bootstrap_stand_beside_its_seconds() -> None:
    rows = by_metric(rows_of(a_run(), the_one(a_job())))
    assert rows["bootstrap.recv"].base_share == pytest.approx(0.010 / 0.080)
    assert rows["bootstrap.recv"].candidate_share == pytest.approx(0.04 / 0.2)
    # connect and accept: 0.080 - 0.075; real: 0.200 - 0.165
    assert rows["bootstrap.unexplained"].base == pytest.approx(0.005)
    assert rows["bootstrap.unexplained"].candidate == pytest.approx(0.035)
    parts = [row for name, row in rows.items() if name.startswith("bootstrap.")]
    assert sum(row.base_share or 0 for row in parts) == pytest.approx(1)
    assert sum(row.candidate_share or 0 for row in parts) == pytest.approx(1)
    assert rows["bootstrap.send"].verdict == "same"


def test_what_the_run_does_not_have_is_none_and_never_zero() -> None:
    rows = by_metric(rows_of(a_run(), the_one(a_job())))
    for name in ("kernels", "alloc", "topo", "graphs", "connections", "allgathers", "rest"):
        assert (rows[name].base, rows[name].ratio, rows[name].verdict) == (None, None, None)
    plan = by_metric(rows_of(a_run(allgathers=0.05), the_one(a_job())))
    assert plan["allgathers"].base == pytest.approx(0.05)
    assert plan["rest"].base == pytest.approx(0.007)


def test_a_saturated_run_decides_nothing() -> None:
    rows = rows_of(a_run(saturated=True), the_one(a_job()))
    assert {row.verdict for row in rows if row.base is not None} == {"noise"}


def test_a_log_of_2_22_has_the_init_line_alone() -> None:
    p = "n1:1:2 [0]"
    text = "".join(
        complete(p, rank, 2, "0xc", f"0xa{rank}")
        + init(p, rank, 2, "1.00", "0.50 0.20 0.05 0.10 0.05 0.09 0.01")
        for rank in range(2)
    )
    rows = by_metric(rows_of(a_run(), the_one(text)))
    assert rows["bootstrap"].candidate == pytest.approx(0.2)
    assert "bootstrap.recv" not in rows


def test_only_communicators_of_its_size_are_compared() -> None:
    log = [the_one(a_job(2))]
    assert comparable(a_run(2), log) == log
    assert comparable(a_run(3), log) == []


@pytest.mark.parametrize(
    ("base", "candidate", "resolution", "expected"),
    [
        (1.0, 1.2, 0.005, "same"),
        (1.0, 0.81, 0.005, "same"),
        (1.0, 1.3, 0.005, "worse"),
        (1.0, 0.7, 0.005, "better"),
        (0.001, 0.009, 0.005, "noise"),  # two decimals tell neither from 0
        (0.012, 0.008, 0.005, "noise"),
        (0.001, 0.009, 5e-7, "worse"),
        (0.0, 0.0, 5e-7, "noise"),
    ],
)
def test_verdict(base: float, candidate: float, resolution: float, expected: str) -> None:
    assert verdict(base, candidate, resolution) == expected
