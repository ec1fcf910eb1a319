"""The rules that keep the parts apart, and the tools that keep them clean."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(sys.executable).parent
LOOKED_AT_BY_PEOPLE = ("click", "rich", "scipy", "plotly", "jinja2")


def check(repository: Path, *command: str) -> None:
    """Run a tool on the checkout, and fail with what it printed."""
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"


def test_import_rules(repository: Path) -> None:
    check(repository, str(TOOLS / "lint-imports"), "--no-logo")


@pytest.mark.timeout(300)
def test_types(repository: Path) -> None:
    check(repository, str(TOOLS / "mypy"), "--strict")


def test_style(repository: Path) -> None:
    check(repository, str(TOOLS / "ruff"), "check", "--output-format=concise", ".")


@pytest.mark.parametrize("module", ["harness.control.worker", "harness.control.server"])
def test_loaded_worker_is_light(repository: Path, module: str) -> None:
    """What is really loaded: import-linter does not follow third parties' own imports."""
    code = (
        f"import sys, {module}\n"
        f"heavy = sorted(set({LOOKED_AT_BY_PEOPLE!r}) & set(sys.modules))\n"
        f"sys.exit(f'{module} loads {{heavy}}' if heavy else 0)\n"
    )
    check(repository, sys.executable, "-c", code)
