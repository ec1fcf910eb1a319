"""`emucoll project`: its document, table and picture, and what it refuses."""

from pathlib import Path

import pytest

from tests.cli.command import CHECKOUT, Commands

PLAN = {"name", "n", "total_s", "low_s", "high_s", "held_out_error", "phases"}
"""CONTRACT.md, emucoll.project/1."""
FEW = ("--plan", "ncclx,nccl-2.22.3", "-np", "16,64", "--cluster", "ethernet-64", "--draws", 9)
CLUSTER = (CHECKOUT / "profiles" / "clusters" / "ethernet-64.toml").read_text()


def test_the_document_and_what_is_kept(emucoll: Commands, tmp_path: Path) -> None:
    out = tmp_path / "kept"
    ended = emucoll("project", *FEW, "--out", out, "--json")
    document = ended.document
    assert (ended.exit_code, document["schema"], document["ok"]) == (0, "emucoll.project/1", True)
    assert (document["kind"], document["seed"]) == ("projected", 1)
    assert [(each["name"], each["n"]) for each in document["plans"]] == [
        ("ncclx", 16),
        ("ncclx", 64),
        ("nccl-2.22.3", 16),
        ("nccl-2.22.3", 64),
    ]
    for plan in document["plans"]:
        assert plan.keys() >= PLAN
        assert plan["low_s"] < plan["total_s"] < plan["high_s"]
        outermost = [each["seconds"] for each in plan["phases"] if each["within"] is None]
        assert sum(outermost) == pytest.approx(plan["total_s"], rel=0.1)
        assert 0 <= plan["held_out_error"] < 1
        assert plan["largest_phase"] in {each["name"] for each in plan["phases"]}
    assert {each["code"] for each in document["warnings"]} == {"assumed"}
    assert {each["part"] for each in document["grounds"]} == {
        *("tcpstore", "ring-bidir", "nccl-root-2.22", "ring"),
    }
    assert {each["system"] for each in document["published"]} == {"nccl", "ncclx"}
    assert (out / "result.json").read_bytes() == ended.out
    picture = (out / "projection.html").read_text()
    assert "Initialization (projected)" in picture
    assert "http-equiv" not in picture
    assert "<script src=" not in picture


def test_the_table(emucoll: Commands) -> None:
    ended = emucoll("project", *FEW, "--quiet")
    text = ended.out.decode()
    assert (ended.exit_code, ended.err) == (0, "")
    assert max(map(len, text.splitlines())) <= 100
    data = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert [row[:2] for row in data] == [
        *(["ncclx", "16"], ["ncclx", "64"]),
        *(["nccl-2.22.3", "16"], ["nccl-2.22.3", "64"]),
    ]
    assert "WARNING assumed" in text
    assert "takes" in text


def test_without_draws_there_is_no_interval(emucoll: Commands) -> None:
    flags = ("--plan", "ncclx", "-np", 16, "--cluster", "ethernet-64", "--draws", 0, "--json")
    document = emucoll("project", *flags).document
    assert [(plan["low_s"], plan["high_s"]) for plan in document["plans"]] == [(None, None)]
    assert document["sensitivities"] == []


@pytest.mark.parametrize(
    ("flags", "what"),
    [
        (("-np", 65), "ethernet-64 has 8 hosts × 8 GPUs = 64 places"),
        (("--rank-order", "rack"), "the cluster has no racks"),
        (("--rank-order", "by-host"), "expected host, rack, random or a file"),
        (("--plan", "nccl-9"), "no plan is called 'nccl-9'"),
        (("--plan", "ncclx,ncclx"), "ncclx is named twice"),
        (("--draws", -1), "--draws is -1"),
        (("--cluster", "ethernet"), "no cluster is called 'ethernet'"),
        (("--validation", "nowhere.json"), "--validation nowhere.json: No such file"),
    ],
    ids=str,
)
def test_what_is_refused(emucoll: Commands, flags: tuple[object, ...], what: str) -> None:
    few = dict(zip(FEW[::2], FEW[1::2], strict=True)) | {flags[0]: flags[1]}
    words = [word for pair in few.items() for word in pair]
    ended = emucoll("project", *words, "--json")
    assert (ended.exit_code, ended.document["ok"]) == (2, False)
    assert what in ended.document["error"]["what"]


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("hosts = ", "hostz = ", "unknown key 'hostz'"),
        ('between_hosts = { value = "30us"', 'between_hosts = { value = "30"', "unit is missing"),
        ('between_hosts = { value = "30us"', 'between_hosts = { value = "-30us"', "between_hosts"),
        ("[network]", '[loops]\nsort = { value = "1ns", source = "a" }\n[network]', "loops.sort"),
        (
            "[latency]",
            '[latency]\nwithin_rack = { value = "9us", source = "a" }',
            "expected hosts_per_rack too",
        ),
        (
            "[latency]",
            '[latency]\njitter = { value = "1us", source = "a" }\n'
            'jitter_distribution = { value = "normal", source = "a" }',
            "no jitter 'normal'",
        ),
    ],
)
def test_a_cluster_file_that_is_wrong(
    emucoll: Commands, tmp_path: Path, old: str, new: str, says: str
) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(CLUSTER.replace(old, new, 1))
    ended = emucoll("project", "--plan", "ncclx", "-np", 8, "--cluster", path, "--json")
    assert ended.exit_code == 2
    assert str(path) in ended.document["error"]["what"]
    assert says in ended.document["error"]["what"]
