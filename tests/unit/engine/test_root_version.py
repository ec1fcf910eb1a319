"""When a result warns that the root is of other releases than the formation."""

import pytest

from harness.control.controller import Outcome, Placement
from harness.engine.assemble import warnings_of
from harness.spec import Spec

ALL = Placement((range(4),), None)


def warning(formation: str, check_in_bytes: int | None, version: str) -> str | None:
    outcome = Outcome(check_in_bytes=check_in_bytes, server_versions={"root": f"NCCL {version}"})
    warnings = warnings_of(Spec(nranks=4, formation=formation), ALL, outcome)
    return next((each.text for each in warnings if each.code == "root-version"), None)


@pytest.mark.parametrize(
    ("formation", "check_in_bytes", "version"),
    [
        ("nccl-root", 172, "2.23.4"),
        ("nccl-root", 176, "2.32.3"),
        ("nccl-root-2.22", 64, "2.18.3"),
        ("nccl-root", None, ""),  # it failed before it had a root
        ("tcpstore", None, ""),
    ],
)
def test_a_root_that_goes_with_its_formation(
    formation: str, check_in_bytes: int | None, version: str
) -> None:
    assert warning(formation, check_in_bytes, version) is None


def test_an_older_root_than_the_formations() -> None:
    text = warning("nccl-root", 64, "2.22.3")
    assert text is not None
    assert text.startswith("the root is NCCL 2.22.3, which answers nobody before everybody has")
    assert text.endswith("formation nccl-root-2.22 goes with this root")


def test_a_newer_root_than_the_formations() -> None:
    text = warning("nccl-root-2.22", 172, "2.28.9")
    assert text is not None
    assert text.startswith("the root is NCCL 2.28.9, which answers eagerly, while")
    assert text.endswith("formation nccl-root goes with this root")
