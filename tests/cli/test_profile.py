"""`emucoll profile`: planted bottlenecks are named first, what cannot be profiled is refused."""

import json
from pathlib import Path

import pytest

from tests.cli.command import CHECKOUT, Commands

SIZES = "-np", "16,32,64,128,256"
FLAGS = *SIZES, "--repeat", 1, "--steps", 4, "--no-sample", "--json"


def test_the_table_begins_with_the_verdict(emucoll: Commands, tmp_path: Path) -> None:
    told = emucoll(
        "profile", "--plan", "nccl-2.22.3", "-np", "8,16,32,64,132", "--target", 256, "--repeat", 1,
        "--steps", 2, "--no-sample", "--out", tmp_path / "kept",
    )  # fmt: skip
    assert told.exit_code == 0
    text = told.out.decode()
    assert text.startswith("# VERDICT fixed stagger (bootstrap.delay), asleep of a rank")
    assert (tmp_path / "kept" / "result.json").exists()
    page = tmp_path / "kept" / "report.html"
    assert text.endswith(f", report: {page}\n")
    assert "fixed stagger (bootstrap.delay)" in page.read_text()
    rows = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert rows[0].split()[:2] == ["rank", "bootstrap.delay"]
    kept = json.loads((tmp_path / "kept" / "result.json").read_bytes())
    place, _, name = kept["verdict"]["location"].partition(" in ")
    file, _, line = place.rpartition(":")
    assert (file, name) == ("emucoll/formation/nccl.py", "NcclRoot.form")
    assert "bootstrap.delay" in (CHECKOUT / file).read_text().splitlines()[int(line) - 1]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("-np", "16,32", "--target", 512), "names 2 sizes: expected 5 to 32"),
        (("-np", "16,16,32,64,128", "--target", 512), "16 is named twice"),
        ((*SIZES, "--target", 128), "--target is 128: expected 256 to"),
        ((*SIZES, "--target", 512, "--repeat", 0), "--repeat is 0: expected 1 to 100"),
        ((*SIZES, "--target", 512, "--steps", 0), "--steps is 0: expected 1"),
        ((*SIZES, "--target", 512, "--plan", "nccl-2.22"), "nccl-2.22.3"),
        ((*SIZES, "--target", 512, "--formation", "tcpstor"), "tcpstore"),
        ((*SIZES, "--target", 512, "--plan", "ncclx", "--allgather", "ring"), "of its own"),
        ((*SIZES, "--target", 512, "--cluster", "moon"), "moon"),
        ((*SIZES, "--target", 200000), "200000"),
        ((*SIZES, "--target", 512, "--out", "/dev/null/x"), "/dev/null/x"),
    ],
)
def test_what_cannot_be_profiled_is_refused(
    emucoll: Commands, flags: tuple[object, ...], says: str
) -> None:
    refused = emucoll("profile", *flags, "--json")
    assert refused.exit_code == 2
    assert refused.document["schema"] == "emucoll.profile/1"
    assert says in refused.error["what"]


def test_a_run_that_fails_is_told(emucoll: Commands, tmp_path: Path) -> None:
    (tmp_path / "raises.py").write_text(
        "from emucoll.formation.tcpstore import TcpStoreRing\n"
        "class Raises(TcpStoreRing):\n"
        "    async def form(self, rank, job):\n"
        "        raise ValueError('no')\n"
    )
    failed = emucoll(
        "profile", "--formation", "raises:Raises", "--target", 512, *FLAGS, cwd=tmp_path
    )
    assert failed.exit_code == 1
    assert "ValueError: no" in failed.error["evidence"]
