"""`emucoll validate`: what it tells, keeps and refuses; runs are few and short here."""

from pathlib import Path

import click
import pytest

from emucoll.errors import UsageError
from harness.cli.validate import validate
from harness.hosts import as_toml, machine_of
from harness.profile import Value
from harness.results.environment import read_environment
from harness.validation.spec import ValidateSpec, check
from tests.cli.command import Commands
from tests.unit.validation.test_model import COSTS

POINT = {
    *("regime", "formation", "allgather", "n", "phase", "predicted_s", "measured_s"),
    *("spread", "error"),
}
"""CONTRACT.md, emucoll.validate/1."""
QUICK = ("--regime", "latency-bound", "--repeat", 1)
OWN = """
from emucoll.formation.tcpstore import TcpStoreRing
from emucoll.plans import PLANS
from dataclasses import replace

class Mine(TcpStoreRing):
    name = "mine"

PLAN = replace(PLANS["ncclx"], name="mine", formation=Mine())
"""


@pytest.fixture
def calibration(tmp_path: Path) -> Path:
    """Of a machine that is not this one."""
    values = {
        **{name: Value(each, each, each, source="a run", why="a run") for name, each in LOOPS},
        **{
            name: Value(each, each, each, source="a run", why="a run")
            for name, each in COSTS.items()
        },
    }
    machine = machine_of(read_environment("uvloop"))._replace(cpu_model="Another CPU")
    path = tmp_path / "other.toml"
    path.write_text(as_toml("another machine", machine, values))
    return path


LOOPS = [
    (f"loop.{name}", 1e-9)
    for name in (
        *("ring_check", "ring_check_bitmap", "same_process"),
        *("duplicate_gpu", "node_numbering"),
    )
]


def test_a_formation_of_ones_own_is_checked_and_then_projected(
    emucoll: Commands, tmp_path: Path, calibration: Path
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    flags = ("--calibration", calibration, "--out", tmp_path / "mine.json", "--json")
    ended = emucoll("validate", *QUICK, "--formation", "mine:Mine", *flags, cwd=tmp_path)
    document = ended.document
    assert document["schema"] == "emucoll.validate/1"
    assert ended.exit_code == (0 if document["decided"] else 4)
    assert "other-machine" in ended.warnings
    assert [point["n"] for point in document["points"] if point["phase"] == "formation"] == [
        8,
        32,
        128,
    ]
    for point in document["points"]:
        assert point.keys() >= POINT
        assert (point["regime"], point["formation"]) == ("latency-bound", "mine:Mine")
        assert point["error"] == pytest.approx(point["predicted_s"] / point["measured_s"] - 1)

    plan = ("--plan", "mine:PLAN", "-np", 64, "--cluster", "ethernet-64", "--draws", 0, "--json")
    without = emucoll("project", *plan, cwd=tmp_path)
    assert (without.exit_code, without.document["ok"]) == (4, False)
    assert "was never checked against a run" in without.document["error"]["what"]
    projected = emucoll("project", *plan, "--validation", "mine.json", cwd=tmp_path).document
    assert projected["ok"]
    assert {ground["part"] for ground in projected["grounds"]} == {"mine:Mine", "ring-bidir"}


def refusal(*flags: object) -> str:
    options = validate.make_context("validate", [*map(str, flags)]).params
    try:
        check(ValidateSpec(**{k: v for k, v in options.items() if k not in ("as_json", "quiet")}))
    except (UsageError, click.ClickException) as error:
        return str(error)
    raise AssertionError(f"{flags} are taken")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--regime", "latency"), "no regime is called 'latency'"),
        (("--formation", "tcpstor"), "no formation is called 'tcpstor'"),
        (("--allgather", "rings"), "no AllGather is called 'rings'"),
        (("--repeat", 0), "--repeat is 0: expected 1 to 100"),
        (("--out", ""), "--out is empty"),
    ],
)
def test_what_there_is_not(flags: tuple[object, ...], says: str) -> None:
    assert says in refusal(*flags)


def test_without_a_calibration_it_names_the_command(emucoll: Commands, tmp_path: Path) -> None:
    ended = emucoll("validate", *QUICK, "--calibration", "nowhere", "--json", cwd=tmp_path)
    assert ended.exit_code == 2
    assert "emucoll calibrate" in ended.document["error"]["what"]
