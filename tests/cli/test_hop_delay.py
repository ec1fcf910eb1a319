"""--hop-delay: AllGathers take at least the hops that depend on each other, and not many more."""

import pytest

from tests.cli.command import Commands
from tests.cli.refusals import refusal

pytestmark = pytest.mark.alone

HOP_S = 0.02


@pytest.mark.parametrize(
    ("allgather", "n", "hops"),
    [
        ("ring", 8, 2 * 7),
        ("ring-bidir", 8, 3 * 4 - 1),  # the last step is forward only
        ("ring-bidir", 9, 3 * 4),
        ("ring-bidir-headerless", 8, 4),
        ("ring-pipelined", 8, 7),
        ("bruck", 8, 3),
    ],
)
def test_as_many_hops_as_depend_on_each_other(
    emucoll: Commands, allgather: str, n: int, hops: int
) -> None:
    flags = ("--allgather", allgather, "--hop-delay", f"{HOP_S}s", "--json")
    document = emucoll("run", "-np", n, *flags).document
    seconds = document["allgathers"][-1]["seconds"]
    assert document["wrong"] == 0
    assert document["spec"]["hop_delay_s"] == HOP_S
    assert hops * HOP_S <= seconds < 2 * hops * HOP_S


def test_within_a_host_hops_are_shorter(emucoll: Commands) -> None:
    """Four ranks a host: of every block's way round, two hops of eight are between hosts."""
    delay = f"{10 * HOP_S}s,intra-host={HOP_S / 10}s"
    flags = ("--allgather", "ring-pipelined", "--ranks-per-host", 4, "--hop-delay", delay)
    document = emucoll("run", "-np", 8, *flags, "--json").document
    seconds = document["allgathers"][0]["seconds"]
    least, all_far = 10 * HOP_S + 6 * HOP_S / 10, 7 * 10 * HOP_S
    assert least <= seconds < all_far
    assert document["spec"]["intra_host_delay_s"] == pytest.approx(HOP_S / 10)


@pytest.mark.parametrize("formation", ["tcpstore", "nccl-root"])
def test_formations_are_late_as_well(emucoll: Commands, formation: str) -> None:
    """Store: PING and its echo, WAIT, GET and their answers: six hops; the hello is the seventh.
    Root: check-in, its answer, the hello.
    """
    flags = ("--formation", formation, "--hop-delay", f"{HOP_S}s", "--json")
    document = emucoll("run", "-np", 8, *flags).document
    hops = {"tcpstore": 7, "nccl-root": 3}[formation]
    assert hops * HOP_S <= document["formation"]["seconds"] < 3 * hops * HOP_S


def test_too_much_for_the_cores_is_said(emucoll: Commands) -> None:
    flags = ("--allgather", "ring", "--steps", 100, "--hop-delay", "100us", "--json")
    warnings = emucoll("run", "-np", 512, *flags).warnings
    assert "take fewer ranks or a longer delay" in warnings["not-latency-bound"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("11s", "--hop-delay is 11 s: expected 0 to 10 s"),
        ("-1ms", "negative"),
        ("5ms,intra=1ms", "expected a time, or one as in 5ms,intra-host=500us"),
        ("5ms,intra-host=", "expected a time, or one as in 5ms,intra-host=500us"),
        ("5ms,intra-host=1ms,intra-host=2ms", "or one as in 5ms,intra-host=500us"),
        ("5parsecs", "no unit 'parsecs'"),
        ("1ms,intra-host=5ms", "0.005 s within a host is more than 0.001 s between hosts"),
    ],
)
def test_what_it_takes(text: str, says: str) -> None:
    assert says in refusal("-np", 4, "--hop-delay", text)


def test_the_estimate_counts_with_it(emucoll: Commands) -> None:
    flags = ("-np", 64, "--allgather", "ring", "--json")
    at_once = emucoll("doctor", *flags).document["estimate"]["seconds"]
    late = emucoll("doctor", *flags, "--hop-delay", "1s").document["estimate"]["seconds"]
    assert late >= 2 * 63
    assert at_once < 60


def test_the_estimate_knows_hosts_and_their_barrier(emucoll: Commands) -> None:
    """One host of 8: three AllGathers of seven steps, two hops each, and a barrier of three hops,
    none of them between hosts. Of two hosts: an eighth of 30 hops is, rounded down.
    """
    flags = ("--plan", "nccl-2.27.7", "--hop-delay", "9s,intra-host=1s", "--json")
    for n, gather_s in ((8, 14), (16, 3 * 9 + 27)):
        estimate = emucoll("doctor", "-np", n, *flags).document["estimate"]
        assert estimate["low_s"] == 3 + 3 * gather_s + 3


def test_a_deadline_that_cannot_be_met_is_said_before(emucoll: Commands) -> None:
    flags = ("-np", 8, "--allgather", "ring", "--hop-delay", "1s", "--deadline", "2s", "--json")
    said = "this takes 17 s or more, and --deadline is 2 s"
    assert emucoll("doctor", *flags).warnings["deadline"] == said
    assert emucoll("run", *flags).warnings["deadline"] == said
