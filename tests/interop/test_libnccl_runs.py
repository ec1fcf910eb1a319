"""Runs through NVIDIA's own root of every kind of release, by the real command: one and several,
with the formation that goes with it, and with another's.
"""

from pathlib import Path

import pytest

from tests.cli.command import Commands
from tests.interop.fetch import FetchError, fetch_nccl

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

CHECK_IN_BYTES = {"2.18.3": 64, "2.22.3": 64, "2.23.4": 172, "2.28.9": 172, "2.32.3": 176}
OWN = {
    "2.18.3": "nccl-root-2.22",
    "2.22.3": "nccl-root-2.22",
    "2.23.4": "nccl-root",
    "2.28.9": "nccl-root",
    "2.32.3": "nccl-root",
}


@pytest.fixture
def emucoll(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def library(version: str) -> Path:
    try:
        return fetch_nccl(version)
    except FetchError as error:
        pytest.skip(str(error))


def forming_bytes(n: int, check_in_bytes: int, check_ins: int) -> int:
    """What ranks send for it: hello and framed check-in to a root, and a hello to rank + 1. The
    AllGather of no bytes adds nothing.
    """
    return check_ins * (12 + 4 + check_in_bytes) + 12 * n


@pytest.mark.parametrize("version", OWN)
@pytest.mark.parametrize("formation", ["nccl-root", "nccl-root-2.22"])
@pytest.mark.parametrize("n", [64, 257])
def test_one_root(emucoll: Commands, version: str, formation: str, n: int) -> None:
    """The library's version decides what goes over the wire, and the result says if they differ."""
    flags = ("--formation", formation, "--root", f"libnccl:{library(version)}")
    ended = emucoll("run", "-np", n, *flags, "--record-bytes", 0, "--json")
    assert (ended.exit_code, ended.document["wrong"]) == (0, 0)
    assert ended.document["servers"] == {"root": f"NCCL {version}"}
    work = ended.document["work"]["ranks"]
    assert (work["connections"], work["retries"]) == (2 * n, 0)
    assert work["bytes"] == forming_bytes(n, CHECK_IN_BYTES[version], n)
    if formation == OWN[version]:
        assert "root-version" not in ended.warnings
    else:
        assert f"formation {OWN[version]} goes" in ended.warnings["root-version"]


@pytest.mark.parametrize("version", ["2.23.4", "2.28.9", "2.32.3"])
@pytest.mark.parametrize(("n", "roots"), [(64, 64), (129, None), (257, 5)])
def test_several_roots(emucoll: Commands, version: str, n: int, roots: int | None) -> None:
    asked = () if roots is None else ("--roots", roots)
    flags = ("--formation", "nccl-multiroot", *asked, "--root", f"libnccl:{library(version)}")
    ended = emucoll("run", "-np", n, *flags, "--record-bytes", 0, "--json")
    assert (ended.exit_code, ended.document["wrong"]) == (0, 0)
    count = roots or 2
    assert ended.document["formation"]["roots"] == count
    work = ended.document["work"]["ranks"]
    assert (work["connections"], work["retries"]) == (2 * n + count, 0)
    assert work["bytes"] == forming_bytes(n, CHECK_IN_BYTES[version], n + count)
    assert "root-version" not in ended.warnings


def test_a_release_with_one_root_cannot_be_several(emucoll: Commands) -> None:
    flags = ("--formation", "nccl-multiroot", "--root", f"libnccl:{library('2.22.3')}")
    refused = emucoll("run", "-np", 64, *flags, "--json")
    assert refused.exit_code == 2
    assert "NCCL 2.22.3 knows one root alone" in refused.error["what"]
    assert "use NCCL 2.23 or later, or a formation or plan of one root" in refused.error["what"]


def test_a_window_before_a_root_that_collects(emucoll: Commands) -> None:
    """Nobody would ever be answered."""
    flags = ("--formation", "nccl-root", "--root", f"libnccl:{library('2.22.3')}")
    refused = emucoll("run", "-np", 64, *flags, "--start-window", 5, "--json")
    assert refused.exit_code == 2
    assert "answers nobody before all 64 ranks have come" in refused.error["what"]
    assert "Leave --start-window out" in refused.error["what"]


def test_a_killed_root_that_collects(emucoll: Commands) -> None:
    flags = ("--formation", "nccl-root-2.22", "--root", f"libnccl:{library('2.22.3')}")
    ended = emucoll("run", "-np", 1000, *flags, "--inject", "root:kill", "--json")
    assert (ended.exit_code, ended.error["peer"]) == (3, "root")
    assert "was ended by SIGKILL while the ring was forming" in ended.error["evidence"]
