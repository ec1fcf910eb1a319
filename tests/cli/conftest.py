"""Commands for the tests of this folder."""

from pathlib import Path

import pytest

from tests.cli.command import Commands


@pytest.fixture
def emucoll(tmp_path: Path) -> Commands:
    """Starts commands, and lets none outlive its test."""
    return Commands(tmp_path)
