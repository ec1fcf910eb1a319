"""Where ranks are: orders by name, and from a file."""

from pathlib import Path

import numpy as np
import pytest

from emucoll.errors import UsageError
from harness.clusters import Cluster, find_cluster
from harness.projection.spec import ProjectSpec, check, hosts_of
from tests.cli.command import CHECKOUT

RACKED = """gpus_per_host = { value = 4, assumption = "some" }
hosts_per_rack = { value = 3, assumption = "some" }
"""


@pytest.fixture
def racked(tmp_path: Path) -> Cluster:
    """Hosts of 4, racks of 3 hosts."""
    text = (CHECKOUT / "profiles" / "clusters" / "ethernet-64.toml").read_text()
    line = next(each for each in text.splitlines() if each.startswith("gpus_per_host"))
    path = tmp_path / "racked.toml"
    path.write_text(text.replace(line + "\n", RACKED))
    return find_cluster(str(path), 1)


def test_by_host_seven_of_eight_hops_stay_inside() -> None:
    cluster = find_cluster("h100-roce-16k", 1024)
    hosts = hosts_of("host", 1024, cluster, 1)
    assert np.count_nonzero(hosts == np.roll(hosts, 1)) == 1024 * 7 // 8


def test_dealt_within_a_rack_none_does(racked: Cluster) -> None:
    hosts = hosts_of("rack", 28, racked, 1).tolist()
    assert hosts[:12] == [0, 1, 2] * 4
    assert hosts[12:24] == [3, 4, 5] * 4
    assert hosts[24:] == [6] * 4
    assert max(np.bincount(hosts)) == 4


def test_shuffled_hosts_are_as_full_and_a_seed_repeats(racked: Cluster) -> None:
    hosts = hosts_of("random", 32, racked, 1)
    assert np.bincount(hosts).tolist() == [4] * 8
    assert hosts.tolist() != sorted(hosts)
    assert hosts_of("random", 32, racked, 1).tolist() == hosts.tolist()
    assert hosts_of("random", 32, racked, 2).tolist() != hosts.tolist()


@pytest.mark.parametrize("text", ["0 0 1 1 0 0\n1 1", "[0, 0, 1, 1, 0, 0, 1, 1, 7]"])
def test_a_file_says_where(tmp_path: Path, racked: Cluster, text: str) -> None:
    path = tmp_path / "order"
    path.write_text(text)
    assert hosts_of(str(path), 8, racked, 1).tolist() == [0, 0, 1, 1, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("0 1 2", "it has hosts for 3 ranks: expected 4"),
        ("0 1 2 x", "expected the number of each rank's host"),
        ("", "expected the number of each rank's host"),
        ("{}", "expected the number of each rank's host"),
        ("0 1 2 8", "expected hosts from 0 to 7"),
        ("0 1 2 -1", "expected hosts from 0 to 7"),
    ],
)
def test_a_wrong_file_is_told(tmp_path: Path, racked: Cluster, text: str, says: str) -> None:
    path = tmp_path / "order.txt"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"--rank-order .*order.txt") as raised:
        hosts_of(str(path), 4, racked, 1)
    assert says in str(raised.value)


def test_a_host_is_not_overfilled(tmp_path: Path, racked: Cluster) -> None:
    path = tmp_path / "order.txt"
    path.write_text("1 " * 5)
    with pytest.raises(UsageError, match="host 1 has 5 ranks: expected at most 4"):
        hosts_of(str(path), 5, racked, 1)


def test_orders_that_are_none_are_told(racked: Cluster) -> None:
    with pytest.raises(UsageError, match="expected host, rack, random or a file"):
        hosts_of("hosts", 4, racked, 1)
    with pytest.raises(UsageError, match="No such file"):
        hosts_of("./hosts", 4, racked, 1)
    with pytest.raises(UsageError, match="has no racks"):
        hosts_of("rack", 4, find_cluster("ethernet-64", 4), 1)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"n": (0,)}, "-np is 0"),
        ({"n": (8, 8)}, "-np names one twice"),
        ({"plan": ("ncclx", "ncclx")}, "--plan names one twice"),
        ({"channels": 65}, "--channels is 65: expected 1 to 64"),
        ({"draws": -1}, "--draws is -1"),
        ({"seed": -1}, "--seed is -1"),
        ({"out": ""}, "--out is empty"),
        ({"n": ()}, "-np is missing"),
        ({"plan": ()}, "--plan is missing"),
    ],
)
def test_what_no_cluster_makes_sense_of(spec: dict[str, object], says: str) -> None:
    given = {"plan": ("ncclx",), "n": (8,), "cluster": "ethernet-64", **spec}
    with pytest.raises(UsageError, match=says):
        check(ProjectSpec(**given))  # type: ignore[arg-type]
