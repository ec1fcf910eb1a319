"""What other processes take: all that the cores did, less what was ours."""

from typing import NamedTuple

import pytest

from harness.engine import others
from harness.engine.others import Others


class Core(NamedTuple):
    """Of psutil's times what is asked for, and what is not."""

    user: float
    nice: float
    system: float
    idle: float
    softirq: float
    steal: float


@pytest.mark.parametrize(
    ("ours_s", "core", "share"),
    [
        (0.0, Core(0, 0, 0, 10, 5, 0), 0.0),
        (6.0, Core(4, 1, 1, 4, 5, 0), 0.0),
        (0.0, Core(4, 1, 1, 4, 0, 0), 0.6),
        (2.0, Core(2, 0, 1, 4, 0, 3), 0.4),
        (9.0, Core(2, 0, 1, 4, 0, 3), 0.0),
        (0.0, Core(90, 0, 0, 0, 0, 0), 1.0),
    ],
)
def test_the_share_of_others(
    monkeypatch: pytest.MonkeyPatch, ours_s: float, core: Core, share: float
) -> None:
    """10 s on one core, of two that there are."""
    now = {"s": 0.0, "ours_s": 0.0, "core": Core(0, 0, 0, 0, 0, 0)}
    monkeypatch.setattr(others.os, "sched_getaffinity", lambda _: {1})
    monkeypatch.setattr(others.time, "monotonic", lambda: now["s"])
    monkeypatch.setattr(others, "_ours_s", lambda: now["ours_s"])
    busy = Core(99, 99, 99, 99, 99, 99)
    monkeypatch.setattr(others.psutil, "cpu_times", lambda percpu: [busy, now["core"]])
    measured = Others()
    now.update(s=10.0, ours_s=ours_s, core=core)
    assert measured.share() == pytest.approx(share)


def test_on_this_machine_it_is_a_share() -> None:
    measured = Others()
    assert 0.0 <= measured.share() <= 1.0
