"""--start-skew: late ranks delay the others and break nothing."""

import pytest

from harness.control.skew import skew_s
from harness.skew import NormalSkew, UniformSkew
from tests.cli.command import Commands

pytestmark = pytest.mark.alone

ROUNDED_S = 0.002
"""Event loops round their timers to a millisecond."""
FORMATIONS = ["tcpstore", "nccl-root"]


def phase(document: dict, name: str) -> dict:  # type: ignore[type-arg]
    [found] = [each for each in document["phases"] if each["name"] == name]
    return found


@pytest.mark.parametrize("formation", FORMATIONS)
def test_a_straggler_delays_and_does_not_break(emucoll: Commands, formation: str) -> None:
    flags = ("--formation", formation, "--start-skew", "ranks:5=1500ms", "--workers", 2)
    document = emucoll("run", "-np", 16, *flags, "--allgather", "ring", "--json").document
    assert document["wrong"] == 0
    assert document["formation"]["seconds"] >= 1.5 - ROUNDED_S
    skew = phase(document, "start-skew")
    assert skew["within"] == "run"
    assert 1.5 - ROUNDED_S <= skew["max_s"] <= document["total_s"]
    assert skew["p50_s"] == 0
    own = [each["mean_s"] for each in document["phases"] if each["within"] is None]
    assert sum(own) == pytest.approx(document["mean_total_s"])
    assert document["mean_total_s"] > 15 / 16 * 1.4, "all the others waited for it"


def test_the_estimate_and_the_deadline_know_it(emucoll: Commands) -> None:
    flags = ("-np", 32, "--start-skew", "ranks:3=700s", "--json")
    document = emucoll("doctor", *flags).document
    assert document["estimate"]["low_s"] >= 700
    assert document["warnings"][0]["code"] == "deadline"


def test_the_one_that_is_waited_for_is_named(emucoll: Commands) -> None:
    flags = ("--start-skew", "ranks:5=50s", "--deadline", "2s", "--json")
    ended = emucoll("run", "-np", 16, *flags)
    assert (ended.exit_code, ended.error["rank"]) == (3, 5)
    assert ended.error["phase"] == "start-skew"
    assert "--start-skew makes it late" in ended.error["cause"]


@pytest.mark.parametrize("skew", ["uniform:300ms", "normal:200ms:50ms"])
def test_distributions(emucoll: Commands, skew: str) -> None:
    document = emucoll("run", "-np", 64, "--start-skew", skew, "--workers", 2, "--json").document
    late = phase(document, "start-skew")
    drawn = {
        "uniform": UniformSkew(high_s=0.3),
        "normal": NormalSkew(mean_s=0.2, deviation_s=0.05),
    }[skew.partition(":")[0]]
    expected = [skew_s(drawn, rank, 1) for rank in range(64)]
    assert max(expected) - ROUNDED_S <= late["max_s"] <= document["total_s"]
    assert late["mean_s"] >= sum(expected) / 64 - ROUNDED_S


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("uniform", "expected uniform:T, normal:MEAN:DEVIATION or ranks:RANK=T"),
        ("uniform:", "expected uniform:T"),
        ("normal:1s", "expected uniform:T"),
        ("ranks:", "expected uniform:T"),
        ("ranks:7", "expected uniform:T"),
        ("ranks:1=1s,1=2s", "a rank is named twice"),
        ("ranks:16=1s", "rank 16 is none of 0 to 15"),
        ("poisson:1s", "expected uniform:T"),
        ("uniform:-1s", "negative"),
        ("normal:1s:1x", "no unit 'x'"),
    ],
)
def test_what_it_takes(emucoll: Commands, text: str, says: str) -> None:
    refused = emucoll("run", "-np", 16, "--start-skew", text, "--json")
    assert refused.exit_code == 2
    assert says in refused.error["what"]
