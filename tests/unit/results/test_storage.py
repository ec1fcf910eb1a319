import json
import os
from pathlib import Path

import msgspec
import numpy as np
import pytest

from emucoll.errors import UsageError
from harness.results import storage
from harness.results.codec import from_json
from harness.results.schema import RunResult, failure
from harness.results.storage import (
    Pids,
    check_file_writable,
    check_writable,
    load,
    save,
    save_file,
    save_pids,
)

RANKS = {"bootstrap": np.array([0.5, 0.25, 1.0]), "bootstrap.ring": np.array([0.1, 0.2, 0.3])}


def files(directory: Path) -> list[str]:
    return sorted(os.listdir(directory))


def test_what_was_saved_is_loaded(tmp_path: Path) -> None:
    result = RunResult(ok=True, exit_code=0, nranks=3)
    save(result, RANKS, tmp_path / "out" / "deep")
    loaded, ranks = load(tmp_path / "out" / "deep")
    assert loaded == result
    assert set(ranks) == set(RANKS)
    for phase, times in RANKS.items():
        np.testing.assert_array_equal(ranks[phase], times)
    assert files(tmp_path / "out" / "deep") == ["ranks.npz", "result.json"]


def test_the_files_need_nothing_of_ours(tmp_path: Path) -> None:
    save(failure("x"), RANKS, tmp_path)
    assert json.loads((tmp_path / "result.json").read_text())["schema"] == "emucoll.run/1"
    with np.load(tmp_path / "ranks.npz") as ranks:
        assert ranks["bootstrap"][2] == 1.0


def test_a_failed_run_leaves_no_times_of_an_earlier_one(tmp_path: Path) -> None:
    save(RunResult(ok=True, exit_code=0), RANKS, tmp_path)
    save(failure("x"), {}, tmp_path)
    loaded, ranks = load(tmp_path)
    assert loaded.ok is False
    assert ranks == {}


def test_a_disk_that_fails_midway_leaves_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match="No space left on device"):
        save(failure("x"), RANKS, tmp_path)
    assert files(tmp_path) == []


def test_a_result_is_only_there_when_its_times_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(RunResult(ok=True, exit_code=0), RANKS, tmp_path)

    def interrupted(result: RunResult) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(storage, "to_json", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(failure("x"), {}, tmp_path)
    assert files(tmp_path) == ["ranks.npz"]


def test_times_of_another_shape_are_our_own_fault(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="bootstrap"):
        save(failure("x"), {"bootstrap": np.zeros((2, 2))}, tmp_path)


def test_a_directory_is_made_before_a_run_and_left_empty(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b")
    assert files(tmp_path / "a" / "b") == []
    check_writable(tmp_path / "a" / "b")


def test_a_report_of_an_earlier_run_goes(tmp_path: Path) -> None:
    (tmp_path / "mine.html").touch()
    for name in ("report.html", "rank.svg", "store.speedscope.json"):
        (tmp_path / name).touch()
    check_writable(tmp_path)
    assert files(tmp_path) == ["mine.html"]


def test_a_file_in_the_way_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    for directory in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UsageError, match=r"file.*(exists|Not a directory).*another --out"):
            check_writable(directory)
        with pytest.raises(UsageError, match=r"exists|Not a directory"):
            save(failure("x"), {}, directory)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize("directory", ["/proc/emucoll", "/proc/self/fd"])
def test_a_place_where_nobody_may_write_is_refused(directory: str) -> None:
    with pytest.raises(UsageError, match=f"cannot write results to '{directory}': .+"):
        check_writable(directory)


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_name_that_no_file_can_have_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="cannot write results"):
        check_writable(tmp_path / name)
    with pytest.raises(UsageError, match="cannot write results"):
        save(failure("x"), {}, tmp_path / name)


def test_a_file_is_written_whole_or_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "new" / "file.toml"
    check_file_writable(str(file))
    assert files(file.parent) == []
    save_file(b"before", str(file))
    check_file_writable(str(file))

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UsageError, match=r"cannot write .*file\.toml': No space left on device"):
        save_file(b"after", str(file))
    assert file.read_bytes() == b"before"
    assert files(file.parent) == ["file.toml"]


@pytest.mark.parametrize("name", ["x" * 300, "x" * 250, "a\0b", "file/below", "."])
def test_a_file_that_cannot_be_is_refused_before(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UsageError, match=r"cannot write .*; choose another place with --out"):
        check_file_writable(f"{tmp_path}/{name}")
    assert files(tmp_path) == ["file"]


def test_process_ids_are_kept(tmp_path: Path) -> None:
    save_pids(Pids(controller=10, store=11, workers=[12, 13]), tmp_path)
    text = (tmp_path / "pids.json").read_text()
    assert json.loads(text) == {"controller": 10, "root": None, "store": 11, "workers": [12, 13]}
    assert msgspec.json.decode(text, type=Pids).workers[1] == 13
    assert files(tmp_path) == ["pids.json"]
    with pytest.raises(UsageError, match=r"cannot write .*pids\.json"):
        save_pids(Pids(), tmp_path / "missing")


def test_loading_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"cannot read.*No such file"):
        load(tmp_path)
    save(failure("x"), RANKS, tmp_path)
    (tmp_path / "ranks.npz").unlink()
    with pytest.raises(UsageError, match=r"cannot read.*No such file"):
        load(tmp_path)


def test_loading_refuses_what_is_damaged(tmp_path: Path) -> None:
    save(failure("x"), RANKS, tmp_path)
    whole = (tmp_path / "ranks.npz").read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", b"rubbish"):
        (tmp_path / "ranks.npz").write_bytes(damaged)
        with pytest.raises(UsageError, match="cannot read"):
            load(tmp_path)
    (tmp_path / "result.json").write_bytes(b"{}")
    with pytest.raises(UsageError, match=r"result\.json.*not a result of emucoll"):
        load(tmp_path)


def test_loading_runs_no_pickle(tmp_path: Path) -> None:
    save(failure("x"), {}, tmp_path)
    np.savez(tmp_path / "ranks.npz", bad=np.array([object()], dtype=object))
    with pytest.raises(UsageError, match="cannot read"):
        load(tmp_path)


def test_a_saved_result_is_what_the_command_prints(tmp_path: Path) -> None:
    result = failure("x")
    save(result, {}, tmp_path)
    assert from_json((tmp_path / "result.json").read_bytes()) == result
