"""Where libnccl is looked for, and what is said of a file that isn't it. No libnccl needed."""

import ctypes.util
import importlib
import os
from pathlib import Path

import pytest

from emucoll.errors import UsageError
from harness.external import libnccl
from harness.external.libnccl import LibncclRoot, find_library


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No wheel, no system library, and an environment that is put back as it was."""
    monkeypatch.setattr(libnccl, "_WHEELS", ("no-such-wheel",))
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: None)
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    monkeypatch.setenv("NCCL_SOCKET_IFNAME", "mine")


def make_library(folder: Path) -> Path:
    folder.mkdir(parents=True)
    path = folder / "libnccl.so.2"
    path.write_bytes(b"not an ELF file")
    return path


def test_an_explicit_path_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine, other = make_library(tmp_path / "mine"), make_library(tmp_path / "other")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(other.parent))
    assert find_library(str(mine)) == mine


def test_an_explicit_path_must_exist(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "absent.so", "no such file"), (tmp_path, "it is a folder")):
        with pytest.raises(UsageError, match=f"{path}: {why}"):
            find_library(str(path))


def test_the_wheel_comes_before_the_linker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = make_library(tmp_path / "nvidia" / "nccl" / "lib")
    info = tmp_path / "nvidia_nccl_cu99-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: nvidia-nccl-cu99\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(libnccl, "_WHEELS", ("no-such-wheel", "nvidia-nccl-cu99"))
    monkeypatch.setenv("LD_LIBRARY_PATH", str(make_library(tmp_path / "other").parent))
    importlib.invalidate_caches()
    assert find_library() == ours


def test_the_linker_s_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes.util, "find_library", lambda name: f"lib{name}.so.2")
    assert find_library() == Path("libnccl.so.2")
    path = make_library(tmp_path / "lib")
    monkeypatch.setenv("LD_LIBRARY_PATH", f":{tmp_path}:{path.parent}")
    assert find_library() == path


def test_none_says_what_to_do() -> None:
    with pytest.raises(UsageError, match=r"pip install 'emucoll\[interop\]'.*or give the path"):
        find_library()


def test_a_file_that_is_no_library(tmp_path: Path) -> None:
    path = make_library(tmp_path / "lib")
    with pytest.raises(UsageError, match=f"{path} can't be loaded as libnccl: "):
        LibncclRoot(path)


def test_a_library_that_is_not_libnccl() -> None:
    libc = Path("libc.so.6")
    with pytest.raises(UsageError, match=r"libc\.so\.6 is not libnccl: it has no ncclGetVersion"):
        LibncclRoot(libc, interface="eth7")
    assert os.environ["NCCL_SOCKET_IFNAME"] == "=eth7"
