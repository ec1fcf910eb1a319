"""`emucoll run --world virtual`: the same counts as over TCP, times of a modelled cluster."""

from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import CHECKOUT, Commands
from tests.cli.refusals import refusal

VIRTUAL = ("--world", "virtual", "--cluster", "ethernet-64", "--json")
CLUSTER = (CHECKOUT / "profiles" / "clusters" / "ethernet-64.toml").read_text()


def sent(document: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """By role, what does not depend on time."""
    names = ("messages", "bytes", "connections", "requests")
    return {
        role: tuple(work[name] for name in names)
        for role, work in document["work"].items()
        if work is not None and role != "controller"
    }


@pytest.mark.parametrize(
    "flags",
    [
        ("--plan", "pytorch"),
        ("--formation", "nccl-root-2.22", "--allgather", "bruck"),
        ("--groups", "tp=8,pp=2,dp=2", "--group-init", "split"),
        *(
            pytest.param(flags, marks=pytest.mark.broad)
            for flags in (
                ("--plan", "nccl-2.22.3"),
                ("--plan", "nccl-2.28.9+multiroot", "--roots", 3),
                ("--plan", "ncclx"),
                ("--allgather", "ring-bidir-headerless", "--record-bytes", 5000),
                ("--groups", "tp=8,pp=2,dp=2", "--group-init", "new"),
                ("--groups", "tp=8,pp=2,dp=2", "--group-init", "ncclx"),
            )
        ),
    ],
    ids=str,
)
def test_it_sends_what_is_sent_over_tcp(emucoll: Commands, flags: tuple[object, ...]) -> None:
    real = emucoll("run", "-np", 32, *flags, "--json").document
    virtual = emucoll("run", "-np", 32, *flags, *VIRTUAL).document
    assert (virtual["ok"], virtual["wrong"], virtual["kind"]) == (True, 0, "simulated")
    assert sent(virtual) == sent(real)
    assert {phase["kind"] for phase in virtual["phases"]} == {"simulated"}
    means = [phase["mean_s"] for phase in virtual["phases"] if phase["within"] is None]
    assert sum(means) == pytest.approx(virtual["mean_total_s"])
    names = {phase["name"] for phase in real["phases"]} - {"loop", "bootstrap.barrier"}
    assert names - {"admission"} == {phase["name"] for phase in virtual["phases"]}
    assert virtual["descriptors"]["held_per_rank"] == real["descriptors"]["held_per_rank"]
    assert (virtual["memory"]["peak_rss_bytes"], virtual["saturated"]) == (None, None)


def test_a_seed_replays(emucoll: Commands, tmp_path: Path) -> None:
    """Whatever Python's own hashes are."""
    jittery = tmp_path / "jittery.toml"
    jitter = '[latency]\njitter = { value = "4us", assumption = "some" }\n'
    jittery.write_text(CLUSTER.replace("[latency]\n", jitter))
    flags = ("-np", 48, "--plan", "ncclx", "--world", "virtual", "--cluster", jittery, "--json")
    hashes = []
    for hash_seed, seed in (("1", 5), ("2", 5), ("1", 6)):
        environment = {"PYTHONHASHSEED": hash_seed}
        ended = emucoll("run", *flags, "--seed", seed, env=environment)
        assert ended.document["ok"] is True
        hashes.append(ended.document["trace_hash"])
    assert hashes[0] == hashes[1] != hashes[2]


def test_a_deadlock_is_told_at_once_with_who_waits_for_whom(emucoll: Commands) -> None:
    flags = ("-np", 12, "--formation", "nccl-root", "--inject", "rank=5:never-start")
    ended = emucoll("run", *flags, *VIRTUAL)
    error = ended.error
    assert (ended.exit_code, error["rank"]) == (3, 5)
    assert error["what"].startswith("nothing is under way at ")
    assert error["what"].endswith("while the ring was forming: rank 5 holds it up")
    assert error["cause"] == "injected: --inject rank=5:never-start"
    assert {"rank": 4, "phase": "bootstrap.recv", "for": 5} in error["waiting"]


def test_a_slow_rank_is_slow_there(emucoll: Commands) -> None:
    """Ten times: its writes and reads, of which it has four a step, take nine times 5 us longer."""
    flags = ("-np", 16, "--allgather", "ring", *VIRTUAL)
    usual = emucoll("run", *flags).document["allgathers"][0]["seconds"]
    slow = emucoll("run", *flags, "--inject", "rank=7:slow=10").document["allgathers"][0]["seconds"]
    assert slow - usual == pytest.approx(15 * 4 * 9 * 5e-6, rel=0.35)


def test_flipped_bytes_are_found_there(emucoll: Commands) -> None:
    flags = ("-np", 8, "--allgather", "ring", "--inject", "rank=3:corrupt=last")
    ended = emucoll("run", *flags, *VIRTUAL)
    assert (ended.exit_code, ended.document["wrong"]) == (1, 1)


def test_what_raises_there(emucoll: Commands) -> None:
    failed = emucoll("run", "-np", 8, "--inject", "rank=3:raise", *VIRTUAL)
    assert (failed.exit_code, failed.error["rank"]) == (1, 3)


def test_a_large_allgather_is_played_and_says_so(emucoll: Commands) -> None:
    flags = ("-np", 2048, "--plan", "nccl-2.30.7", "--world", "virtual")
    document = emucoll("run", *flags, "--cluster", "h100-roce-16k", "--json").document
    for gather in document["allgathers"]:
        assert gather["wrong"] is None
        assert "no block was sent" in gather["note"]
        assert gather["transfers"] == 2048 * 2047
    assert document["work"]["ranks"]["messages"] > 2 * 3 * 2048 * 2047


def test_too_small_a_cluster_and_none() -> None:
    assert "8 hosts × 8 GPUs = 64 places" in refusal("-np", 65, *VIRTUAL[:-1])
    missing = refusal("-np", 4, "--world", "virtual")
    assert "--cluster is missing: ethernet-64, h100-roce-16k, h100-roce-98k" in missing
    assert "did you mean 'ethernet-64'?" in refusal(
        "-np", 4, "--world", "virtual", "--cluster", "ethernet"
    )
    assert "add that" in refusal("-np", 4, "--cluster", "ethernet-64")
    assert "expected at most 8 on ethernet-64" in refusal(
        "-np", 4, *VIRTUAL[:-1], "--ranks-per-host", 9
    )


@pytest.mark.parametrize(
    "flags",
    ["--workers 2", "--hop-delay 1ms", "--store torch", "--restarts 1", "--inject store:kill"],
)
def test_what_is_real_is_not_there(flags: str) -> None:
    said = refusal("-np", 4, *flags.split(), *VIRTUAL[:-1])
    assert "is of real processes and sockets" in said


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("[kernel]", "[kernels]", "'kernels.somaxconn': did you mean 'kernel.somaxconn'"),
        ('write = { value = "5us", low = "2us", high = "8us"', 'write = { value = 5',
         "cpu.write.value is 5: the unit is missing: expected a time with its unit, such as 50us"),
        ('value = "30us"', 'value = "-30us"', "latency.between_hosts.value: '-30us' is negative"),
        ('low = "15us"', 'low = "45us"', "latency.between_hosts: expected low ≤ value ≤ high"),
        ('assumption = "a rack"', 'note = "a rack"', "hosts: unknown part 'note'"),
        (', assumption = "a rack"', "", "hosts: expected where it is from: either source or"),
        ("hosts = { value = 8,", "hosts = { value = 0,", "hosts.value is 0: expected a whole"),
        ("gpus_per_host = {", "gpus = {", "unknown key 'gpus': did you mean 'gpus_per_host'"),
        ("[cpu]", "[cpu", "it is no TOML"),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong(tmp_path: Path, old: str, new: str, says: str) -> None:
    assert old in CLUSTER
    file = tmp_path / "mine.toml"
    file.write_text(CLUSTER.replace(old, new, 1))
    said = refusal("-np", 4, "--world", "virtual", "--cluster", file)
    assert said.startswith(f"{file}: ")
    assert says in said


# -- faults of hosts and links


def test_a_process_that_crashes_is_noticed(emucoll: Commands) -> None:
    flags = ("-np", 16, "--allgather", "ring", "--record-bytes", 120)
    failed = emucoll("run", *flags, "--inject", "rank=5:crash@1ms", *VIRTUAL)
    assert failed.exit_code == 1
    assert failed.error["rank"] in (4, 6)
    assert failed.error["cause"] == "injected: --inject rank=5:crash@0.001s"
    unharmed = emucoll("run", *flags, "--inject", "rank=5:crash@1h", *VIRTUAL)
    assert unharmed.document["ok"] is True
    assert "all was over after" in unharmed.warnings["fault-too-late"]


@pytest.mark.parametrize("formation", ["tcpstore", "nccl-root", "nccl-multiroot"])
def test_a_partition_while_the_ring_forms_ends_with_named_ranks(
    emucoll: Commands, formation: str
) -> None:
    """Hosts 0 to 3 and 4 to 7 do not hear each other: nobody is told, and nothing more happens."""
    flags = ("-np", 64, "--formation", formation, "--inject", "link=0-3/4-7:cut@0s")
    failed = emucoll("run", *flags, *VIRTUAL)
    assert failed.exit_code in (1, 3)
    assert failed.error["rank"] is not None
    assert failed.error["cause"] == "injected: --inject link=0-3/4-7:cut@0s"


def test_a_dead_host_and_who_waits_for_it(emucoll: Commands) -> None:
    flags = ("-np", 32, "--plan", "nccl-2.30.7", "--inject", "host=2:dead@5ms")
    error = emucoll("run", *flags, *VIRTUAL).error
    assert error["what"].startswith("nothing is under way at ")
    assert error["cause"] == "injected: --inject host=2:dead@0.005s"
    assert error["waiting"]


@pytest.mark.parametrize("formation", ["tcpstore", "nccl-root"])
def test_a_dead_host_is_the_cause_whoever_does_not_answer(
    emucoll: Commands, formation: str
) -> None:
    flags = ("-np", 64, "--formation", formation, "--inject", "host=3:dead@1ms")
    error = emucoll("run", *flags, *VIRTUAL).error
    assert error["cause"] == "injected: --inject host=3:dead@0.001s"
    assert error["next"] == "leave --inject out"


@pytest.mark.parametrize(
    ("fault", "slower"),
    [
        ("host=1:slow=20", (1.5, 50)),
        ("link=0/1:delay=10ms", (5, 1000)),
        ("link=0-3/0-3:loss=0.05", (5, 10_000)),
        ("link=0/1:cut@1ms-50ms", (5, 1000)),
    ],
)
def test_what_only_delays_does_not_break(
    emucoll: Commands, fault: str, slower: tuple[float, float]
) -> None:
    flags = ("-np", 32, "--allgather", "ring")
    usual = emucoll("run", *flags, *VIRTUAL).document["total_s"]
    document = emucoll("run", *flags, "--inject", fault, *VIRTUAL).document
    assert (document["ok"], document["wrong"]) == (True, 0)
    low, high = slower
    assert low * usual <= document["total_s"] <= high * usual
