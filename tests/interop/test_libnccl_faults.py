"""A run whose root is NVIDIA's own, by the real command: well, killed, interrupted, and scanned."""

import signal
from pathlib import Path

import pytest

from tests.cli.command import Commands, send, sockets
from tests.cli.test_strangers import Scanner
from tests.interop.fetch import FetchError, fetch_nccl

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]

SLOW = ("--uid-stagger-threshold", 1, "--uid-stagger-rate", 16)
"""Rank r checks in after r / 16 s."""


@pytest.fixture(scope="module", params=["2.23.4", "2.28.9", "2.32.3"])
def root(request: pytest.FixtureRequest) -> tuple[object, ...]:
    """The flags for a root of this release."""
    try:
        library = fetch_nccl(request.param)
    except FetchError as error:
        pytest.skip(str(error))
    return ("--formation", "nccl-root", "--root", f"libnccl:{library}")


@pytest.fixture
def emucoll(tmp_path: Path) -> Commands:
    return Commands(tmp_path)


def test_it_forms_the_ring(emucoll: Commands, root: tuple[object, ...]) -> None:
    ended = emucoll("run", "-np", 33, *root, "--json")
    assert (ended.exit_code, ended.document["wrong"]) == (0, 0)
    work = ended.document["work"]["root"]
    assert work["cpu_s"] > 0
    assert work["messages"] is None  # nobody counts what NVIDIA's code sends


def test_killed_when_half_the_ranks_have_checked_in(
    emucoll: Commands, root: tuple[object, ...]
) -> None:
    flags = ("-np", 32, *root, *SLOW, "--inject", "root:kill")
    ended = emucoll("run", *flags, "--json")
    assert ended.exit_code == 3
    assert ended.error["peer"] == "root"
    assert "was ended by SIGKILL while the ring was forming" in ended.error["evidence"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, 3), (signal.SIGINT, 130)])
def test_ended_while_the_ring_forms(
    emucoll: Commands, root: tuple[object, ...], number: signal.Signals, code: int
) -> None:
    """SIGKILL to the root, Ctrl-C to the controller."""
    with emucoll.start("run", "-np", 48, *root, *SLOW, "--workers", 1, "--json") as running:
        pids = running.published_pids()
        running.until(lambda: len(sockets(pids["worker 0"])) > 96)
        send(pids["root"] if number == signal.SIGKILL else running.process.pid, number)
        ended = running.end()
    assert ended.exit_code == code
    assert "while the ring was forming" in ended.error["what"] + ended.error["evidence"]


def test_what_a_scanner_says_does_not_matter(emucoll: Commands, root: tuple[object, ...]) -> None:
    """It may not stay silent, though: a real root waits for such a peer for ever."""
    flags = ("-np", 48, *root, *SLOW, "--workers", 1, "--handshake-timeout", "1s")
    with emucoll.start("run", *flags, "--json") as running:
        pids = running.published_pids()
        running.until(lambda: len(sockets(pids["worker 0"])) > 96)
        Scanner("rubbish").visit(running, {"controller": 1, "root": 1, "worker 0": 48})
        ended = running.end()
    assert (ended.exit_code, ended.document["wrong"]) == (0, 0)
