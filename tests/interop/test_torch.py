"""PyTorch's own TCPStore under our ranks, and PyTorch's own clients and gloo on our store."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.command import Commands
from tests.interop.fetch import TORCH, FetchError, fetch_torch
from tests.servers import serve_store

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

CLIENT = Path(__file__).with_name("torch_client.py")
GLOO = Path(__file__).with_name("torch_gloo.py")


IN_CI = ("--formation tcpstore --restarts 2", "--formation tcpstore --steps 1",
         "--plan pytorch --steps 2")  # fmt: skip
"""Of the runs on the real store, those with EMUCOLL_SCALE=ci."""


@pytest.fixture(scope="module")
def torch_path() -> dict[str, str]:
    """The environment in which torch can be imported."""
    try:
        folder = fetch_torch()
    except FetchError as error:
        pytest.skip(str(error))
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), os.environ.get("PYTHONPATH")]))
    }


@pytest.fixture
def emucoll(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


@pytest.mark.parametrize(
    ("n", "what"),
    [
        (1, "--formation tcpstore"),
        (64, "--formation tcpstore --restarts 2"),
        (16_384, "--formation tcpstore --steps 1"),  # with EMUCOLL_SCALE=ci 2,048
        (100, "--plan pytorch --steps 2"),
        (300, "--plan pytorch --steps 2"),
        (64, "--plan ncclx"),
        (60, "--formation nccl-root --groups a=5,b=12 --group-init ncclx"),
    ],
)
def test_the_real_store(
    emucoll: Commands, torch_path: dict[str, str], bounded_scale: bool, n: int, what: str
) -> None:
    if bounded_scale and what not in IN_CI:
        pytest.skip("not in CI")
    n = min(n, 2048) if bounded_scale else n
    flags = (*what.split(), "--store", "torch", "--json")
    document = emucoll("run", "-np", n, *flags, env=torch_path).document
    assert (document["ok"], document["wrong"]) == (True, 0)
    assert document["servers"]["store"].startswith(f"PyTorch {TORCH}")
    work = document["work"]
    assert (work["ranks"]["retries"], work["store"]["requests"]) == (0, None)
    assert work["store"]["cpu_s"] > 0
    a_bring_up = 5 * n if "tcpstore" in what or "ncclx" in what else None
    if a_bring_up is not None and "groups" not in what:
        assert work["ranks"]["requests"] == a_bring_up, "of the last bring-up"


def test_the_real_store_killed(emucoll: Commands, torch_path: dict[str, str]) -> None:
    flags = ("--store", "torch", "--start-skew", "uniform:2s", "--inject", "store:kill")
    ended = emucoll("run", "-np", 64, *flags, "--deadline", "60s", "--json", env=torch_path)
    assert ended.exit_code == 3
    assert ended.error["what"] == "store was lost"
    assert "injected" in ended.error["cause"]


def test_without_torch(emucoll: Commands) -> None:
    if (
        subprocess.run(
            [sys.executable, "-c", "import torch"], check=False, capture_output=True
        ).returncode
        == 0
    ):
        pytest.skip("torch is installed here")
    ended = emucoll("run", "-np", 2, "--store", "torch", "--json")
    assert ended.exit_code == 2
    assert "--store torch needs PyTorch" in ended.error["what"]


def run_torch(script: Path, environment: dict[str, str], *arguments: object) -> str:
    command = [sys.executable, str(script), *map(str, arguments)]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def test_pytorchs_client_on_our_store(torch_path: dict[str, str]) -> None:
    with serve_store() as (address, store):
        said = run_torch(CLIENT, torch_path, address.host, address.port)
    assert said == "every answer as expected\n"
    assert store.dropped == []


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_gloo_on_our_store(torch_path: dict[str, str], bounded_scale: bool, n: int) -> None:
    """Each of n ranks' clients: VALIDATE and PING, ADD of init/, SET of its address, and for each
    peer, itself included, WAIT, WAIT, GET: 4n + 3n² in all. (A client that only runs the store's
    protocol adds none.)
    """
    if bounded_scale and n != 4:
        pytest.skip("four processes in CI")
    with serve_store() as (address, store):
        said = run_torch(GLOO, torch_path, address.host, address.port, n)
        requests = store.state.requests
    assert said.split() == [f"{n * (n - 1) // 2}"] * n, "each rank's sum of all ranks"
    assert requests == 4 * n + 3 * n * n
    assert store.dropped == []
