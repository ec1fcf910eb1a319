"""Bottlenecks that are drawn, none, one or two at once: the worst is named first, with its law; and
where there is none, none is named.
"""

import sys
from pathlib import Path

import pytest

import tests.planted
from harness.profiling.engine import profile, simulated
from harness.profiling.findings import ranked
from harness.profiling.spec import ProfileSpec
from harness.results.profile import Finding
from tests.planted.draws import OWN, TARGET, Drawn, drawn

pytestmark = pytest.mark.scale

PLANTED = str(Path(tests.planted.__file__).parent)
DRAWS, OVER_TCP = 200, 40
RIGHT, FALSE_ALARMS = 0.95, 0.05


@pytest.fixture(autouse=True)
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(PLANTED)
    monkeypatch.setattr(sys, "path", [*sys.path, PLANTED])


def spec_of(seed: int, sizes: tuple[int, ...]) -> ProfileSpec:
    return ProfileSpec(
        n=sizes, target=TARGET, plan=f"draws:plan{seed}", repeat=1, steps=8, seed=seed, sample=False
    )


def is_right(what: Drawn, verdict: Finding | None) -> bool:
    """The worst of what was drawn, or of what the plan brings along where nothing was."""
    if verdict is None:
        return False
    if not what.bottlenecks:
        return (verdict.entity, verdict.phase) == OWN[what.plan]
    worst = what.bottlenecks[0]
    entity = "rank 5" if worst.kind == "slow rank" else "rank"
    return (
        (verdict.entity, verdict.phase) == (entity, worst.phase)
        and worst.law in verdict.laws
        and abs(verdict.at_target / worst.seconds - 1) < 0.5
    )


def shares(told: dict[int, Finding | None]) -> tuple[float, float]:
    """How often right where something was drawn, and how often an alarm where nothing was."""
    spoiled = {seed: told[seed] for seed in told if drawn(seed).bottlenecks}
    whole = {seed: told[seed] for seed in told if not drawn(seed).bottlenecks}
    wrong = [
        f"seed {seed}: {drawn(seed)}: {'nothing' if each is None else each.text}"
        for seed, each in told.items()
        if not is_right(drawn(seed), each)
    ]
    print("\n".join(wrong))
    right = sum(is_right(drawn(seed), each) for seed, each in spoiled.items()) / len(spoiled)
    alarms = sum(not is_right(drawn(seed), each) for seed, each in whole.items()) / len(whole)
    return right, alarms


@pytest.mark.timeout(3600)
def test_in_virtual_time(bounded_scale: bool) -> None:
    if bounded_scale:
        pytest.skip("eight minutes")
    told: dict[int, Finding | None] = {}
    for seed in range(DRAWS):
        findings = ranked(simulated(spec_of(seed, (16, 32, 64, 128, 256))))
        told[seed] = findings[0] if findings else None
    right, alarms = shares(told)
    assert right >= RIGHT
    assert alarms <= FALSE_ALARMS


@pytest.mark.timeout(3600)
def test_over_tcp(bounded_scale: bool) -> None:
    if bounded_scale:
        pytest.skip("ten minutes")
    told: dict[int, Finding | None] = {}
    for seed in range(OVER_TCP):
        told[seed] = profile(spec_of(seed, (16, 32, 64, 128, 512))).verdict
    right, alarms = shares(told)
    assert right >= RIGHT
    assert alarms <= FALSE_ALARMS
