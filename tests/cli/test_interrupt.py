"""Ctrl-C and SIGTERM, whenever they come: exit 130, soon, with a document, and nothing left."""

import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.command import Commands, Running, send
from tests.cli.test_faults import GATHERING, LONG_ALLGATHER, LONG_FORMATION, forming, gathering

pytestmark = pytest.mark.alone

SOON_S = 4.0
"""Less than the time after which a process that does not stop is killed."""

BOTH = (signal.SIGINT, signal.SIGINT)
Moment = Callable[[Running], bool]


def importing(running: Running) -> bool:
    """Is the command still importing what it needs?"""
    return "numpy" in Path(f"/proc/{running.process.pid}/maps").read_text()


def starting(running: Running) -> bool:
    """Has it started a process, but not all?"""
    return len(running.processes()) > 1


@pytest.mark.parametrize(
    ("signals", "flags", "moment", "doing"),
    [
        ((signal.SIGINT,), ("-np", 64), importing, "interrupted"),
        (BOTH, ("-np", 64), importing, "interrupted"),
        ((signal.SIGTERM,), ("-np", 64), importing, "interrupted"),
        ((signal.SIGINT,), ("-np", 64, "--workers", 8), starting, "the processes were starting"),
        (BOTH, ("-np", 64, "--workers", 8), starting, "the processes were starting"),
        ((signal.SIGINT,), LONG_FORMATION, forming, "the ring was forming"),
        ((signal.SIGTERM,), LONG_FORMATION, forming, "the ring was forming"),
        ((signal.SIGINT,), LONG_ALLGATHER, gathering, GATHERING),
        (BOTH, LONG_ALLGATHER, gathering, GATHERING),
    ],
)
def test_interrupted(
    emucoll: Commands,
    signals: tuple[signal.Signals, ...],
    flags: tuple[object, ...],
    moment: Moment,
    doing: str,
) -> None:
    with emucoll.start("run", *flags, "--json") as running:
        running.until(lambda: moment(running))
        for number in signals:
            send(running.process.pid, number)
        began = time.monotonic()
        ended = running.end()
        assert time.monotonic() - began < SOON_S
    assert ended.exit_code == 130
    assert ended.error["what"].startswith("interrupted")
    assert re.search(doing, ended.error["what"])
    assert "Traceback" not in ended.err


def test_interrupted_as_soon_as_the_processes_are_known(emucoll: Commands) -> None:
    with emucoll.start("run", "-np", 64) as running:
        running.published_pids()
        send(running.process.pid, signal.SIGINT)
        ended = running.end()
    assert ended.exit_code == 130
    assert "FAILED: interrupted while" in ended.err
    assert "FAILED: interrupted while" in ended.out.decode()


def test_doctor_interrupted(emucoll: Commands) -> None:
    with emucoll.start("doctor", "-np", 64, "--json") as running:
        running.until(lambda: importing(running))
        send(running.process.pid, signal.SIGINT)
        ended = running.end()
    assert (ended.exit_code, ended.document["schema"]) == (130, "emucoll.doctor/1")
