"""A run's directory, read back with its recording, or what is the matter with it."""

import re
import shutil
from pathlib import Path

import pytest
from msgspec import structs

from emucoll.errors import UsageError
from harness.engine.virtual import run
from harness.results.recorded import load_recorded, refuse_ranks
from harness.results.recording import load_recording
from harness.results.schema import failure
from harness.results.storage import load, save
from harness.spec import Spec


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("kept")
    assert run(Spec(nranks=8, world="virtual", cluster="ethernet-64", out=str(folder))).ok
    return folder


@pytest.fixture
def copied(kept: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(kept, tmp_path / "copied"))


def refused(directory: Path) -> str:
    with pytest.raises(UsageError, match=re.escape(f"--from {directory}: ")) as error:
        load_recorded(str(directory))
    return str(error.value)


def test_what_was_kept(kept: Path) -> None:
    run = load_recorded(str(kept))
    result, times = load(kept)
    recording = load_recording(str(kept))
    assert recording is not None
    assert (run.result, run.spec, run.ranks) == (result, result.spec, list(range(8)))
    assert run.totals.tolist() == times["total"].tolist()
    assert run.recording.begin.tolist() == recording.begin.tolist()


def test_no_directory_of_a_run(tmp_path: Path) -> None:
    assert "there is no such directory" in refused(tmp_path / "none")
    assert "expected the directory that emucoll run --out wrote" in refused(tmp_path)


def test_a_run_without_recording(copied: Path, tmp_path: Path) -> None:
    (copied / "recording.npz").unlink()
    assert "a version wrote it that kept none; run again with --out" in refused(copied)
    spec = Spec(nranks=8, world="virtual", cluster="ethernet-64", out=str(copied))
    assert run(structs.replace(spec, record=False)).ok
    assert "it was made with --no-record; run again without" in refused(copied)
    save(failure("rank 3 failed", exit_code=1, spec=spec), {}, copied)
    assert "it failed, and one that fails before its end keeps none" in refused(copied)


def test_damaged_and_of_two_runs(copied: Path) -> None:
    result, times = load(copied)
    save(result, {name: each[1:] for name, each in times.items()}, copied)
    assert "its files do not belong together" in refused(copied)
    save(result, times, copied)
    (copied / "recording.npz").write_bytes(b"PK")
    with pytest.raises(UsageError, match="cannot read"):
        load_recorded(str(copied))


def test_ranks_that_are_none_or_ran_elsewhere(copied: Path) -> None:
    result, times = load(copied)
    assert result.spec is not None
    result.spec = structs.replace(result.spec, external_ranks=(2, 7))
    save(result, {name: each[:6] for name, each in times.items()}, copied)
    run = load_recorded(str(copied))
    assert run.ranks == [0, 1, 3, 4, 5, 6]
    refuse_ranks(run, (0, 6))
    with pytest.raises(UsageError, match="there is no rank 8, expected 0 to 7"):
        refuse_ranks(run, (0, 8))
    with pytest.raises(UsageError, match="rank 7 was another program"):
        refuse_ranks(run, (7,))
