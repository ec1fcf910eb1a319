"""A helper process: what it tells, how it fails, and that it is gone afterwards."""

import os
import sys
from pathlib import Path

import pytest

from emucoll.errors import HarnessError
from harness.control.helper import Helper

ECHO = """
import sys
from harness.control.helper import begin, tell
begin()
tell([*map(int, sys.argv[1:]), "ready"])
for line in sys.stdin:
    tell(line.strip())
"""
FAILS = "import sys\nsys.stderr.write('first\\n\\nlast words\\n')\nsys.exit(3)"
SILENT = "import signal\nprint('[1', end='', flush=True)\nsignal.pause()"


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which helpers import."""
    path = [str(tmp_path), str(Path(__file__).parents[3]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    for name, code in (("echo", ECHO), ("fails", FAILS), ("silent", SILENT)):
        (tmp_path / f"helper_that_{name}.py").write_text(code)
    return tmp_path


def has_ended(helper: Helper) -> bool:
    """And been waited for."""
    return helper._process.returncode is not None


def test_it_is_spoken_with_in_lines(modules: Path) -> None:
    with Helper("helper_that_echo", 7, 8) as helper:
        assert helper.hear(60.0) == [7, 8, "ready"]
        for value in ({"a": [1, None]}, "ä\n"):
            helper.say(value)
            helper.hear(60.0)
        helper.finish()
        with pytest.raises(HarnessError, match="helper_that_echo ended early: no word why"):
            helper.hear(60.0)
    assert has_ended(helper)


def test_one_that_fails_is_quoted(modules: Path) -> None:
    with (
        pytest.raises(HarnessError, match="helper_that_fails ended early: last words"),
        Helper("helper_that_fails") as helper,
    ):
        helper.hear(60.0)
    assert has_ended(helper)


def test_one_that_is_killed_is_told(modules: Path) -> None:
    with Helper("helper_that_silent") as helper:
        helper.kill()
        with pytest.raises(HarnessError, match="ended early: killed by SIGKILL"):
            helper.hear(60.0)


def test_one_that_is_silent_is_not_waited_for_long(modules: Path) -> None:
    with (
        pytest.raises(HarnessError, match=r"helper_that_silent said nothing for 0.2 s"),
        Helper("helper_that_silent") as helper,
    ):
        helper.hear(0.2)
    assert has_ended(helper)


def test_whatever_happens_it_is_ended(modules: Path) -> None:
    with pytest.raises(KeyboardInterrupt), Helper("helper_that_silent") as helper:
        raise KeyboardInterrupt
    assert has_ended(helper)


def test_one_that_cannot_be_started(modules: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(modules / "none"))
    with pytest.raises(HarnessError, match=r"could not be started: No such file"):
        Helper("helper_that_echo")
