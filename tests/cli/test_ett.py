"""`emucoll ett`: what it prints, its document, its picture, and what it refuses."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from emucoll.errors import UsageError
from harness.cli.ett import ett, make_ett_spec
from harness.engine import ett as engine
from harness.engine.ett import calculate, curves_of
from harness.report.ett import render_ett
from harness.results.codec import decode, to_json
from harness.results.schema import EttResult
from harness.results.training import EttPoint
from harness.training.spec import MAX_SIZES
from tests.cli.command import CHECKOUT, Commands

POINT = {
    *("n", "plan", "isolation", "ett", "low", "high", "first_order", "checkpoint_interval_s"),
    "parts",
}
"""CONTRACT.md, emucoll.ett/1."""
OWN_PLAN = """
from dataclasses import replace
from emucoll.formation.tcpstore import TcpStoreRing
from emucoll.plans import PLANS

class Mine(TcpStoreRing):
    name = "mine"

PLAN = replace(PLANS["ncclx"], name="mine", formation=Mine())
"""
"""As ncclx, but that nobody has checked the model of its formation."""
LLAMA = ("-n", 16384, "--failures-per-1000-node-days", 3.79)
LLAMA_10S = (*LLAMA, "--checkpoint-write", "10s", "--restart", "10min")


def asked(*flags: object) -> EttResult:
    """The result, by the command's own parser, in this process."""
    options = ett.make_context("ett", [*map(str, flags)]).params
    del options["as_json"]
    return calculate(make_ett_spec(options))


def the_point(*flags: object) -> EttPoint:
    (point,) = asked(*flags).points
    return point


# -- by the real command


def test_the_document(emucoll: Commands) -> None:
    document = emucoll("ett", *LLAMA_10S, "--json").document
    assert document["schema"] == "emucoll.ett/1"
    assert document["kind"] == "projected"
    assert document["seed"] == document["spec"]["seed"] == 1
    assert document["environment"]["cores"] > 0
    (point,) = document["points"]
    assert point.keys() >= POINT
    assert round(point["first_order"], 3) == 0.906
    assert point["ett"] == pytest.approx(0.906, abs=0.002)
    assert point["low"] < point["ett"] < point["high"]
    assert sum(point["parts"].values()) == pytest.approx(1.0)
    assert point["parts"]["productive"] == point["ett"]
    assert point["monte_carlo"]["ett"] == pytest.approx(point["ett"], rel=0.01)
    assert {each["change"] for each in point["worth"]} >= {"write-half", "restart-none"}


def test_the_table(emucoll: Commands) -> None:
    ended = emucoll("ett", *LLAMA_10S)
    text = ended.out.decode()
    assert (ended.exit_code, ended.err) == (0, "")
    assert max(map(len, text.splitlines())) <= 100
    (data,) = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert data[:4] == ["16384", "2048", "-", "-"]
    assert data[6] == "0.9079"
    assert data[9] == "0.9057"
    assert "GPU-hours saved" in text


def test_what_is_kept(emucoll: Commands, tmp_path: Path) -> None:
    out = tmp_path / "kept"
    ended = emucoll("ett", *LLAMA_10S, "--isolation", 4, "--out", out, "--json")
    assert (out / "result.json").read_bytes() == ended.out
    page = (out / "ett.html").read_text()
    assert page.count("<html") == page.count("</html>") == 1
    # plotly is in it, and nothing is fetched
    assert len(page) > 10**6
    assert re.findall(r"""<(?:script|link|img)[^>]+(?:src|href)=["']?http""", page) == []
    for name in ("isolation, 4 replicas", "no isolation", "as asked for"):
        assert name in page


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        ((*LLAMA, "--json", "--isolation", 1), "--isolation is 1: expected at least 2"),
        (("-n", "x", "--json"), "'x': expected whole numbers"),
    ],
)
def test_a_refusal_is_one_document_too(
    emucoll: Commands, flags: tuple[object, ...], what: str
) -> None:
    ended = emucoll("ett", *flags)
    assert ended.exit_code == 2
    assert ended.document["schema"] == "emucoll.ett/1"
    assert ended.document["points"] == []
    assert what in ended.error["what"]


def test_what_a_plan_takes_is_projected(emucoll: Commands) -> None:
    few = ("-n", 64, "--failures-per-1000-node-days", 3.79, "--monte-carlo", 0, "--json")
    ended = emucoll("ett", *few, "--plan", "ncclx,nccl-2.22.3", "--cluster", "ethernet-64")
    flags = ("--plan", "ncclx,nccl-2.22.3", "-np", 64, "--cluster", "ethernet-64", "--draws", 0)
    projected = emucoll("project", *flags, "--json").document
    inits = [point["init_s"] for point in ended.document["points"]]
    assert inits == [plan["total_s"] for plan in projected["plans"]]
    assert 0 < inits[0] < inits[1]


def test_without_ground_it_does_not_say(emucoll: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(OWN_PLAN)
    flags = ("--plan", "mine:PLAN", "--cluster", "ethernet-64")
    ended = emucoll("ett", "-n", 64, *flags, "--json", cwd=tmp_path)
    assert (ended.exit_code, ended.document["ok"]) == (4, False)
    assert "was never checked against a run" in ended.document["error"]["what"]


def test_profiles_are_found_where_the_packages_are_installed(tmp_path: Path) -> None:
    """Not by way of the checkout: here they are copied as a wheel holds them, in whole folders."""
    installed, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    for folder in ("emucoll", "harness", "profiles"):
        leave = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / folder, installed / folder, ignore=leave)
    elsewhere.mkdir()
    code = (
        "import profiles, sys; from harness.training.profile import load_profile;"
        "print(profiles.__file__, load_profile('h100-98k').text)"
    )
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=elsewhere,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(str(installed))


# -- in this process


def test_the_paper_and_its_profile() -> None:
    alone = the_point("--profile", "ft-hsdp-98k")
    isolated = the_point("--profile", "ft-hsdp-98k", "--isolation", 12)
    assert alone.first_order == pytest.approx(8 / 18, rel=1e-12)
    assert isolated.first_order == pytest.approx(173 / 216, rel=1e-12)
    assert (round(alone.ett, 3), round(isolated.ett, 3)) == (0.574, 0.834)
    assert isolated.without_isolation is not None
    assert isolated.without_isolation.ett == alone.ett


def test_the_talk_with_the_inputs_that_it_needs() -> None:
    needs = ("--profile", "ft-hsdp-98k", "--restart", "9min", "--stall", "68.7s")
    assert the_point(*needs).first_order == pytest.approx(0.5, rel=1e-12)
    assert the_point(*needs, "--isolation", 12).first_order == pytest.approx(0.9, abs=1e-4)


@pytest.mark.parametrize(
    ("write", "rate", "first_order", "young_min"),
    [("5min", 6.5, 0.740, 38.4), ("10s", 6.5, 0.921, 7.0), ("5min", 1.0, 0.898, 98)],
)
def test_kokolis_by_flags(write: str, rate: float, first_order: float, young_min: float) -> None:
    flags = ("-n", 12000, "--failures-per-1000-node-days", rate, "--restart", "5min")
    point = the_point(*flags, "--checkpoint-write", write)
    assert round(point.first_order, 3) == first_order
    assert point.intervals.young_s is not None
    young_s = point.intervals.young_s - point.checkpoint_write_s
    assert young_s / 60 == pytest.approx(young_min, rel=0.007)
    given = the_point(*flags, "--checkpoint-write", write, "--checkpoint-interval", young_s)
    assert round(given.first_order, 3) == first_order
    assert given.ett <= point.ett


def test_a_table_row_of_aupy_et_al_by_flags() -> None:
    rate = 86_400 / 60_150 * 1000
    flags = ("-n", 8, "--failures-per-1000-node-days", rate, "--detection", "1min")
    point = the_point(*flags, "--restart", "10min", "--checkpoint-write", "10min")
    intervals = point.intervals
    assert round(point.ett, 3) == 0.856
    assert [round(each or 0) for each in (intervals.young_s, intervals.daly_s)] == [9096, 9142]
    assert [round(each or 0) for each in (intervals.refined_s, intervals.best_s)] == [8449, 8701]
    assert point.checkpoint_interval_s == pytest.approx((intervals.best_s or 0) - 600)


def test_what_is_not_given_is_nothing() -> None:
    result = asked("-n", "8,100000")
    assert [point.ett for point in result.points] == [1.0, 1.0]
    assert [each.code for each in result.warnings] == ["no-failures"]
    assert result.points[0].mtbf_s is None
    assert result.points[0].checkpoint_interval_s is None
    assert json.loads(to_json(result))["points"][0]["parts"]["productive"] == 1.0
    lost = the_point(*LLAMA, "--restart", "10min")
    assert (lost.parts.checkpoint, lost.parts.rework, lost.parts.init) == (0, 0, 0)


def test_size_and_bandwidth_give_the_write_time() -> None:
    size = (*LLAMA, "--checkpoint-size", "4860GB", "--storage-bandwidth", "2TB/s")
    assert the_point(*size).checkpoint_write_s == pytest.approx(2.43)
    faster = the_point("--profile", "llama3-16k", "--storage-bandwidth", "7TB/s")
    assert faster.checkpoint_write_s == pytest.approx(0.694, abs=1e-3)
    assert the_point("--profile", "llama3-16k", "--checkpoint-write", 10).checkpoint_write_s == 10


def test_what_changes_are_worth() -> None:
    flags = ("--profile", "h100-98k", "--job-length", "240h")
    point = the_point(*flags)
    worth = {each.change: each for each in point.worth}
    hours = 98304 * 240
    for change, name, value in (
        ("init-half", "--init", "132.5s"),
        ("init-none", "--init", 0),
        ("write-half", "--checkpoint-write", "6s"),
        ("isolation", "--isolation", 12),
    ):
        changed = the_point(*flags, name, value)
        assert worth[change].ett == pytest.approx(changed.ett, rel=1e-12)
        # the same work in less time
        saved = hours * (1 - point.ett / changed.ett)
        assert worth[change].gpu_hours_saved == pytest.approx(saved)
        assert saved > 0
    assert [each.gpu_hours_saved for each in point.worth] == sorted(
        (each.gpu_hours_saved for each in point.worth), reverse=True
    )
    isolated = the_point(*flags, "--isolation", 12)
    back = {each.change: each for each in isolated.worth}["no-isolation"]
    assert back.gpu_hours_saved < 0
    assert back.ett == pytest.approx(point.ett)
    assert {"stall-half", "stall-none"} <= {each.change for each in isolated.worth}


def test_an_interval_that_is_not_the_best_is_said_to_be_worth_something() -> None:
    point = the_point(*LLAMA_10S, "--checkpoint-interval", "1h")
    worth = {each.change: each for each in point.worth}
    assert point.checkpoint_interval_s == 3600
    assert worth["interval-best"].ett == the_point(*LLAMA_10S).ett > point.ett
    auto = the_point(*LLAMA_10S, "--checkpoint-interval", "auto")
    assert auto.ett == the_point(*LLAMA_10S).ett


def test_ranges_of_a_profile_widen_the_interval() -> None:
    ranged = the_point("--profile", "h100-98k")
    given = ("--failures-per-1000-node-days", 6.5, "--checkpoint-write", "12s")
    fixed = the_point("-n", 98304, *given, "--detection", 60, "--restart", 275, "--init", 265)
    assert fixed.ett == pytest.approx(ranged.ett, rel=1e-12)
    assert ranged.high - ranged.low > 5 * (fixed.high - fixed.low) > 0


def test_causes_are_drawn_from_the_counts() -> None:
    result = asked("--profile", "llama3-16k", "--monte-carlo", 41_900)
    played = result.points[0].monte_carlo
    assert played is not None
    assert sum(played.causes.values()) == played.failures == 41_900
    assert played.causes["faulty GPU"] == pytest.approx(14_800, rel=0.05)
    assert list(played.causes) == list(result.causes)
    assert asked("--profile", "llama3-16k", "--monte-carlo", 0).points[0].monte_carlo is None


def test_a_seed_gives_the_same_again_and_a_size_does_not_hang_on_others() -> None:
    flags = ("--profile", "h100-98k", "-n")
    alone, both = asked(*flags, 98304), asked(*flags, "8192,98304")
    assert alone.points[0] == both.points[1]
    other = asked(*flags, 98304, "--seed", 2).points[0]
    assert other.ett == alone.points[0].ett
    assert other.low != alone.points[0].low


def test_warnings() -> None:
    result = asked("--profile", "h100-98k", "-n", "1024,98304")
    texts = {each.code: each.text for each in result.warnings}
    assert "at 98304 GPUs a failure costs more than 30%" in texts["first-order"]
    assert "at 1024 GPUs: the profile is of 98304" in texts["other-size"]
    assert asked(*LLAMA_10S).warnings == []


def test_many_sizes_leave_their_parts_to_the_json() -> None:
    sizes = ",".join(str(1024 * size) for size in range(1, 21))
    result = asked("-n", sizes, *LLAMA_10S[2:], "--monte-carlo", 0)
    text = render_ett(result)
    assert text.count("what a change is worth") == 12
    assert "parts and worth of 8 more sizes: see --json" in text
    etts = [point.ett for point in result.points]
    assert etts == sorted(etts, reverse=True)


def test_the_curves_pass_through_the_points() -> None:
    flags = ("--profile", "h100-98k", "-n", "12,16384", "--isolation", "12")
    result = asked(*flags)
    spec = result.spec
    assert spec is not None
    isolated, alone = curves_of(spec)
    for point in result.points:
        assert point.without_isolation is not None
        assert isolated.ett[isolated.n.index(point.n)] == point.ett
        assert alone.ett[alone.n.index(point.n)] == point.without_isolation.ett
    assert isolated.n[-1] == 32768


def test_it_comes_back_from_json_as_it_was() -> None:
    result = asked("--profile", "h100-98k", "--isolation", 12, "--seed", 3)
    assert decode(to_json(result), EttResult) == result


def test_sizes_of_all_kinds_are_numbers() -> None:
    always = ("--restart", "1h", "--detection", "5s", "--monte-carlo", 10)
    for rate in (0, 1e-9, 1e9):
        flags = ("--failures-per-1000-node-days", rate, *always)
        for more in ((), ("--isolation", 2, "--stall", "1min"), ("--checkpoint-interval", "1ns")):
            result = asked("-n", "2,2147483647", *flags, "--checkpoint-write", "1min", *more)
            document = json.loads(to_json(result), parse_constant=pytest.fail)
            for point in document["points"]:
                assert 0 <= point["low"] <= point["ett"] <= point["high"] <= 1
                assert sum(point["parts"].values()) == pytest.approx(1)
            assert render_ett(result).endswith("\n")


def test_a_burst_that_has_to_drain_keeps_checkpoints_apart(tmp_path: Path) -> None:
    source = 'source = "a paper"'
    (tmp_path / "burst.toml").write_text(f"""
        text = "storage that takes 2 TB at once, and then 10 GB/s"
        n = {{ value = 98304, {source} }}
        [failures]
        per_1000_node_days = {{ value = 6.5, {source} }}
        [checkpoint]
        size = {{ value = "2TB", {source} }}
        [storage]
        sustained = {{ value = "10GB", {source} }}
        peak = {{ value = "1TB", {source} }}
        burst = {{ value = "2TB", {source} }}
    """)
    point = the_point("--profile", tmp_path / "burst.toml")
    assert point.checkpoint_write_s == 2.0
    assert (point.intervals.best_s or 0) < 100  # two minutes too early for the storage
    assert point.checkpoint_interval_s == pytest.approx(200 - 2)


def test_what_a_plan_takes_comes_from_one_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the projection: a millisecond a rank, or two."""
    asked_for = []

    def init_s(plan: str, cluster: str, n: int) -> float:
        asked_for.append((plan, cluster, n))
        return n * (1e-3 if plan == "quick" else 2e-3)

    monkeypatch.setattr(engine, "init_s", init_s)
    engine._init_s.cache_clear()
    flags = ("-n", "8192,98304", "--failures-per-1000-node-days", 6.5, "--isolation", 12)
    result = asked(*flags, "--plan", "quick,slow", "--cluster", "large")
    rows = [(point.n, point.plan, point.init_s) for point in result.points]
    assert rows == [
        *((8192, "quick", 8.192), (8192, "slow", 16.384)),
        *((98304, "quick", 98.304), (98304, "slow", 196.608)),
    ]
    # A replica initializes alone, and every projection is made once.
    assert ("slow", "large", 98304 // 12) in asked_for
    assert len(asked_for) == len(set(asked_for))
    quick, slow = result.points[2:]
    assert quick.ett > slow.ett
    given = the_point(*flags[:1], 98304, *flags[2:], "--init", 98304 / 12 * 1e-3)
    assert quick.ett == pytest.approx(given.ett, rel=1e-12)
    assert result.spec is not None
    assert [curve.name for curve in curves_of(result.spec)][:2] == [
        "quick, isolation, 12 replicas",
        "quick, no isolation",
    ]
    engine._init_s.cache_clear()


# -- refusals


def refusal(*flags: object) -> str:
    try:
        asked(*flags)
    except click.ClickException as error:
        return error.format_message()
    except UsageError as error:
        return str(error)
    raise AssertionError(f"{flags} are taken")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "-n is missing: expected numbers of GPUs, as in -n 16384,98304"),
        (("-n", "0"), "-n is 0: expected at least 1"),
        (("-n", "-8"), "-n is -8: expected at least 1"),
        (("-n", "8,,16"), "'8,,16': expected whole numbers"),
        (("-n", "8,16,8"), "'8,16,8': 8 is named twice"),
        (("-n", "9" * 12), "expected at most 2147483647"),
        (("-n", "9" * 5000), "expected whole numbers"),
        (("-n", ",".join(map(str, range(1, MAX_SIZES + 2)))), "names 1001 sizes: expected at most"),
        (("-n", 8, "--failures-per-1000-node-days", "-1"), "is -1: expected at least 0"),
        (("-n", 8, "--failures-per-1000-node-days", "nan"), "is nan: expected at least 0"),
        (("-n", 8, "--failures-per-1000-node-days", "inf"), "is inf: expected at most 1000000000"),
        (("-n", 8, "--failures-per-1000-node-days", "x"), "'x' is not a valid float"),
        (("-n", 8, "--gpus-per-node", "0"), "--gpus-per-node is 0: expected at least 1"),
        (("-n", 8, "--restart", "-5s"), "'-5s' is negative"),
        (("-n", 8, "--restart", "5 weeks"), "no unit 'weeks'"),
        (("-n", 8, "--init", "1e30"), "--init is 1e+30 s: expected at most 1e+12 s"),
        (("-n", 8, "--checkpoint-interval", "often"), "'often' is not a time"),
        (
            ("-n", 8, "--checkpoint-interval", "0", "--checkpoint-write", "5"),
            "--checkpoint-interval is 0 and a write takes 5 s: nothing but writing would be done",
        ),
        (("-n", 8, "--isolation", "12"), "8 GPUs cannot be so many replicas, expected at most 8"),
        (("-n", 8, "--stall", "1s"), "--stall: it is of isolation; give --isolation REPLICAS too"),
        (("-n", 8, "--isolation", 2, "--confined-share", "2"), "is 2: expected at most 1"),
        (("-n", 8, "--storage-bandwidth", "2TB"), "expected bytes a second, as in 2TB/s"),
        (("-n", 8, "--storage-bandwidth", "0B/s"), "--storage-bandwidth is 0: expected at least 1"),
        (("-n", 8, "--storage-bandwidth", "2TB/s"), "needs --checkpoint-size"),
        (("-n", 8, "--checkpoint-size", "2TB"), "needs --storage-bandwidth"),
        (
            ("-n", 8, "--checkpoint-size", "2TB", "--checkpoint-write", "5s"),
            "the write time follows from those two; leave one of them out",
        ),
        (("-n", 8, "--plan", "ncclx"), "--plan and --cluster belong together"),
        (("-n", 8, "--plan", "a,,b", "--cluster", "c"), "'a,,b': expected names"),
        (
            ("-n", 8, "--plan", "ncclx", "--cluster", "c", "--init", "5s"),
            "--init and --plan: a plan says how long init takes",
        ),
        (("-n", 8, "--job-length", "0"), "--job-length is 0: expected how long the job runs"),
        (("-n", 8, "--monte-carlo", "-1"), "--monte-carlo is -1: expected at least 0"),
        (("-n", 8, "--monte-carlo", "1000000000000"), "expected at most 100000000"),
        (("-n", 8, "--seed", "-1"), "--seed is -1: expected at least 0"),
        (("-n", 8, "--out", ""), "--out is empty: expected a directory"),
        (("--profile", "llama3"), "did you mean 'llama3-16k'?"),
        (("--profile", "./none.toml"), "./none.toml: No such file or directory"),
    ],
)
def test_what_is_refused(flags: tuple[object, ...], says: str) -> None:
    assert says in refusal(*flags)


def test_a_place_that_cannot_be_written_is_told_before_anything_is_calculated(
    emucoll: Commands, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    ended = emucoll("ett", *LLAMA, "--out", tmp_path / "file", "--json")
    assert ended.exit_code == 2
    assert "cannot write results to" in ended.error["what"]


def test_without_plotly_the_numbers_still_come_and_the_picture_says_what_is_missing(
    emucoll: Commands, tmp_path: Path
) -> None:
    (tmp_path / "plotly.py").write_text("raise ImportError('no plotly')")
    path = os.pathsep.join([str(tmp_path), str(CHECKOUT), os.environ.get("PYTHONPATH", "")])
    assert emucoll("ett", *LLAMA, env={"PYTHONPATH": path}).exit_code == 0
    ended = emucoll("ett", *LLAMA, "--out", tmp_path / "out", "--json", env={"PYTHONPATH": path})
    assert ended.exit_code == 2
    assert "pip install plotly" in ended.error["what"]
