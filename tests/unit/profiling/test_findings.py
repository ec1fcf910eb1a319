"""From evidence to findings: noise does not outrank what was played, what grows clearly does."""

import numpy as np

from emucoll.sim.path import What
from harness.profiling.cluster import Blame, Part, Stretch
from harness.profiling.findings import Evidence, Timed, fastest_growing, ranked
from harness.profiling.measure import Metric, Series
from harness.profiling.spec import ProfileSpec
from harness.results.profile import Finding

SIZES = (16, 32, 64, 128, 256)
TARGET = 4096
RING = ("rank", "bootstrap.ring")


def evidence(series: Series, alone: str | None = None, ring_s: float = 1.0) -> Evidence:
    """A ring whose steps take as long as there are ranks, and what was measured."""
    spec = ProfileSpec(n=SIZES, target=TARGET, formation="tcpstore", allgather="ring")
    what: What = "steps"
    blames, seconds = {}, {}
    for n in (*SIZES, 1024, TARGET):
        seconds[n] = ring_s * n / TARGET
        stretch = Stretch("rank 0", RING[1], what, 0.0, seconds[n])
        owner = {} if alone is None else {RING: alone}
        blames[n] = Blame(seconds[n], {Part(*RING, what): seconds[n]}, [stretch], owner)
    timed = Timed(*RING, seconds, {what: seconds[TARGET]})
    return Evidence(spec, series, [timed], blames, {RING[1]: "rings.py:7 in Ring.exchanges"})


def measured(values: dict[int, list[float]], *metric: str) -> Series:
    return {Metric(metric[0], metric[1], metric[2]): values}  # type: ignore[arg-type]


def first(series: Series) -> Finding:
    return ranked(evidence(series))[0]


def test_what_was_played_is_named_with_its_place() -> None:
    finding = first({})
    assert (finding.entity, finding.phase, finding.law) == ("rank", "bootstrap.ring", "n")
    assert finding.share_at_target == 1.0
    assert finding.location == "rings.py:7 in Ring.exchanges"
    assert "See rings.py:7" in finding.text


def test_noise_of_one_repeat_does_not_outrank_it() -> None:
    draws = np.random.default_rng(3)
    for _ in range(20):
        noise = {n: [float(draws.uniform(0.0005, 0.002)) * n / 64] for n in SIZES}
        assert first(measured(noise, "root", "serve", "cpu")).phase == "bootstrap.ring"


def test_a_clear_square_does() -> None:
    draws = np.random.default_rng(3)
    clear = {n: (1e-6 * n**2 * draws.normal(1, 0.02, 3)).tolist() for n in SIZES}
    finding = first(measured(clear, "rank", "bootstrap.check", "cpu"))
    assert (finding.entity, finding.phase, finding.law) == ("rank", "bootstrap.check", "n²")
    assert finding.at_target_low is not None and finding.at_target_high is not None
    assert finding.at_target_low <= 1e-6 * TARGET**2 <= finding.at_target_high
    assert 0 < (finding.share_at_target or 0) < 1


def test_what_a_server_computes_counts_beside_what_was_played() -> None:
    cheap = {n: [1e-7 * n] * 3 for n in SIZES}
    assert {each.entity for each in ranked(evidence(measured(cheap, "store", "serve", "cpu")))} == {
        "rank"
    }


def test_memory_counts_by_what_a_rank_may_have() -> None:
    keeps = {n: [2e6 * n * n] * 2 for n in SIZES}  # 8 GB a rank at the target
    finding = first(measured(keeps, "rank", "all", "memory"))
    assert (finding.resource, finding.law, finding.share_at_target) == ("memory", "n²", None)
    fewer = {n: [2e6 * n] * 2 for n in SIZES}
    assert first(measured(fewer, "rank", "all", "memory")).phase == "bootstrap.ring"


def test_one_rank_is_named_where_it_is_the_same_at_every_size() -> None:
    finding = ranked(evidence({}, alone="rank 7"))[0]
    assert finding.entity == "rank 7"
    assert "of rank 7 alone" in finding.text
    assert finding.known_fix is None


def test_what_overtakes_the_verdict_is_named_too() -> None:
    loops = {n: [2e-8 * n**2] * 3 for n in SIZES}
    findings = ranked(evidence(measured(loops, "rank", "rest.loop", "cpu")))
    fastest = fastest_growing(findings)
    assert findings[0].phase == "bootstrap.ring"
    assert fastest is not None and fastest.phase == "rest.loop"
    assert fastest_growing(findings[:1]) is None
    assert fastest_growing([]) is None
