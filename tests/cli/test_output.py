"""Where results go: folders that cannot be written, and readers that have left."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.results.codec import from_json
from tests.cli.command import Commands

pytestmark = pytest.mark.waits


def closed(*descriptors: int) -> dict[str, object]:
    """For a child process: these are closed."""
    return {"preexec_fn": lambda: [os.close(descriptor) for descriptor in descriptors]}


@pytest.mark.parametrize("place", ["a file", "under a file", "/proc/nowhere", "a name too long"])
def test_an_output_folder_that_cannot_be(emucoll: Commands, tmp_path: Path, place: str) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    out = {
        "a file": file,
        "under a file": file / "folder",
        "a name too long": tmp_path / ("x" * 300),
    }.get(place, Path(place))
    refused = emucoll("run", "-np", 4, "--out", out, "--json")
    assert refused.exit_code == 2
    assert f"cannot write results to '{out}'" in refused.error["what"]
    assert "choose another --out" in refused.error["what"]
    assert "process ids" not in refused.err  # nothing was started for nothing
    assert file.read_text() == "in the way"


def test_an_output_folder_that_goes_away_costs_no_result(emucoll: Commands, tmp_path: Path) -> None:
    out = tmp_path / "kept"
    flags = ("-np", 16, "--formation", "nccl-root", "--out", out)
    slow = ("--uid-stagger-threshold", 1, "--uid-stagger-rate", 15)
    with emucoll.start("run", *flags, *slow, "--json") as running:
        running.published_pids()
        running.until(lambda: (out / "pids.json").exists())
        shutil.rmtree(out)
        out.write_text("in the way")
        ended = running.end()
    assert ended.exit_code == 2
    assert "cannot write results" in ended.error["what"]
    assert "not-saved" in ended.warnings
    assert (ended.document["wrong"], ended.document["allgathers"][0]["transfers"]) == (0, 240)


@pytest.mark.parametrize(("flags", "code"), [([], 0), (["--inject", "rank=1:corrupt=first"], 1)])
def test_a_reader_that_leaves_early(emucoll: Commands, flags: list[str], code: int) -> None:
    with emucoll.start("run", "-np", 4, *flags, "--json", stdout=subprocess.PIPE) as running:
        assert running.process.stdout is not None
        running.process.stdout.close()
        ended = running.end()
    assert ended.exit_code == code
    assert "Traceback" not in ended.err
    assert "Exception" not in ended.err


def test_closed_streams(emucoll: Commands, tmp_path: Path) -> None:
    """No socket takes the number of a closed stream, so no peer gets what is printed."""
    for count, descriptors in enumerate([(1,), (0, 1, 2)]):
        out = tmp_path / f"kept-{count}"
        ended = emucoll("run", "-np", 4, "--out", out, "--json", **closed(*descriptors))
        assert (ended.exit_code, ended.out) == (0, b"")
        assert from_json((out / "result.json").read_bytes()).ok
        assert "Traceback" not in ended.err
    without_stderr = emucoll("run", "-np", 4, "--inject", "rank=1:raise", "--json", **closed(2))
    assert (without_stderr.exit_code, without_stderr.error["rank"]) == (1, 1)


def test_a_full_disk(emucoll: Commands) -> None:
    with open("/dev/full", "wb") as full:
        no_stdout = emucoll("run", "-np", 4, "--json", stdout=full)
        no_stderr = emucoll("run", "-np", 4, "--inject", "rank=1:raise", stderr=full)
        neither = emucoll("formations", "--jsn", stdout=full, stderr=full)
    assert no_stdout.exit_code == 2
    assert "Traceback" not in no_stdout.err
    assert no_stderr.exit_code == 1
    assert "rank 1 failed" in no_stderr.out.decode()
    assert neither.exit_code == 2


def test_pids_of_every_process_are_published(emucoll: Commands, tmp_path: Path) -> None:
    out = tmp_path / "kept"
    with emucoll.start("run", "-np", 6, "--workers", 3, "--out", out, "--json") as running:
        pids = running.published_pids()
        running.until(lambda: (out / "pids.json").exists())
        controller = running.process.pid
        running.end()
    kept = json.loads((out / "pids.json").read_text())
    assert kept["controller"] == controller
    assert kept["store"] == pids["store"]
    assert kept["root"] is None
    assert kept["workers"] == [pids[f"worker {index}"] for index in range(3)]
