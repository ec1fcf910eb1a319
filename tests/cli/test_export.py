"""`emucoll export`: what it writes, its document, bad input."""

import re
from pathlib import Path

import numpy as np
import pytest

from emucoll.errors import UsageError
from harness.cli.export import export, refuse_mixed
from tests.cli.command import Commands
from tests.unit.report.traces import Loaded


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run over TCP, with a root."""
    folder = tmp_path_factory.mktemp("kept")
    flags = ("-np", 24, "--formation", "nccl-root", "--workers", 2)
    ran = Commands(folder)("run", *flags, "--out", folder / "run", "--json")
    assert ran.document["ok"]
    return folder / "run"


def test_a_schedule_on_stdout_and_in_a_file(emucoll: Commands, tmp_path: Path) -> None:
    flags = ("--goal", "-np", 8, "--allgather", "ring-bidir")
    shown = emucoll("export", *flags)
    assert (shown.exit_code, shown.err) == (0, "")
    assert shown.out.startswith(b"num_ranks 8\n\nrank 0 {\nl1: send 4b to 1 tag 1\n")
    document = emucoll("export", *flags, "--out", tmp_path / "ring.goal", "--json").document
    assert (tmp_path / "ring.goal").read_bytes() == shown.out
    assert document["schema"] == "emucoll.export/1"
    assert (document["messages"], document["bytes"]) == (8 * 14, 8 * 7 * (4 + 120))
    assert shown.out.count(b": send ") == document["messages"]


def test_a_run_for_perfetto(emucoll: Commands, kept: Path, tmp_path: Path) -> None:
    flags = ("--perfetto", tmp_path / "new" / "all.pftrace", "--from", kept)
    document = emucoll("export", *flags, "--ranks", "0-23", "--json").document
    assert (document["form"], document["kind"], document["nranks"]) == ("perfetto", "measured", 24)
    assert document["spec"]["formation"] == "nccl-root"
    assert [each["rank"] for each in document["ranks"]] == list(range(24))
    trace = Loaded((tmp_path / "new" / "all.pftrace").read_bytes())
    totals = np.load(kept / "ranks.npz")["total"]
    slowest = trace.named(document["ranks"][totals.argmax()]["name"])
    assert "slowest" in slowest.name
    for each in document["ranks"]:
        slices = trace.named(each["name"]).slices
        assert len(slices) == each["spans"]
        [whole] = [one for one in slices if one.name == "bootstrap"]
        [waiting] = [one for one in slices if one.name == "bootstrap.recv"]
        assert waiting.parent is whole
        assert waiting.details["peer"] == (each["rank"] + 1) % 24
    series = np.load(kept / "recording.npz")
    accepted = series["series.root.connections"]
    rates = trace.children("root")["connections"].values
    assert list(document["counters"]) == ["root", "worker 0", "worker 1"]
    assert list(trace.children("root")) == document["counters"]["root"]
    times = [*(at / 1e9 for at, _ in rates), series["series.root.t"][-1]]
    last = [rate * s for (_, rate), s in zip(rates[1:], np.diff(times)[1:], strict=True)]
    assert sum(last) == pytest.approx(accepted[-1] - accepted[-len(rates)], rel=1e-3)


def test_ranks_worth_a_look(emucoll: Commands, kept: Path, tmp_path: Path) -> None:
    file = tmp_path / "some.pftrace"
    shown = emucoll("export", "--perfetto", file, "--from", kept)
    assert (shown.exit_code, shown.err) == (0, "")
    lines = shown.out.decode().splitlines()
    named = [line.rpartition(":")[0] for line in lines if line.startswith("rank ")]
    threads = [each for each in Loaded(file.read_bytes()).tracks.values() if each.slices]
    assert [each.name for each in threads] == ["run (measured)", *named]
    for note in ("slowest", "median", "fastest", "leader of host 2"):
        assert sum(note in name for name in named) == 1
    again = emucoll("export", "--perfetto", tmp_path / "again", "--from", kept)
    assert again.exit_code == 0
    assert (tmp_path / "again").read_bytes() == file.read_bytes()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ((), "export: as what? give --goal, or --perfetto FILE --from DIR"),
        (("--goal", "--perfetto", "x"), "give one of the two"),
        (("--goal",), "export --goal: add -np N"),
        (("--goal", "-np", "8", "--from", "x"), "--from is of --perfetto; leave it out"),
        (("--perfetto", "x"), "export --perfetto: add --from DIR"),
        (("--perfetto", "x", "--from", "y", "--out", "z"), "--out is of --goal; leave it out"),
        (("--perfetto", "x", "--from", "y", "-np", "8"), "-np is of --goal; leave it out"),
    ],
)
def test_flags_that_do_not_go_together(flags: tuple[str, ...], says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        refuse_mixed(export.make_context("export", [*flags]).params)


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("-np", 8), "give --goal, or --perfetto FILE --from DIR"),
        (("--goal", "-np", 0), "-np is 0"),
        (("--goal", "-np", 8, "--allgather", "rign"), "did you mean 'ring'?"),
        (("--goal", "-np", 8, "--allgather", "bruck"), "bruck is no ring in lockstep"),
        (("--goal", "-np", 8, "--out", "/none/x"), "--out /none/x: No such file"),
    ],
)
def test_what_cannot_be_exported(emucoll: Commands, flags: tuple[object, ...], says: str) -> None:
    refused = emucoll("export", *flags)
    assert (refused.exit_code, refused.out) == (2, b"")
    assert says in " ".join(refused.err.split())


def test_a_schedule_and_a_document_do_not_share_stdout(emucoll: Commands) -> None:
    assert "both want stdout" in emucoll("export", "--goal", "-np", 2, "--json").error["what"]


def test_ranks_and_places_that_are_none(emucoll: Commands, kept: Path, tmp_path: Path) -> None:
    file = tmp_path / "trace"
    error = emucoll("export", "--perfetto", file, "--from", kept, "--ranks", "0,24", "--json").error
    assert error["what"] == "--ranks: there is no rank 24, expected 0 to 23"
    assert not file.exists()
    within = kept / "result.json" / "trace"
    error = emucoll("export", "--perfetto", within, "--from", kept, "--json").error
    assert "choose another place with --perfetto" in error["what"]
    error = emucoll("export", "--perfetto", tmp_path, "--from", kept, "--json").error
    assert "it is a folder" in error["what"]
    error = emucoll("export", "--perfetto", file, "--from", tmp_path, "--json").error
    assert "expected the directory that emucoll run --out wrote" in error["what"]
