"""What every test may ask for, and how hypothesis behaves on a shared machine.

Nothing here starts anything.
"""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

# Examples share cores with running ranks: how long one takes says nothing about it. CI repeats the
# same examples.
settings.register_profile("shared", deadline=None, derandomize="CI" in os.environ, print_blob=True)
settings.load_profile("shared")

# Started in the background (a shell's &, nohup), tests inherit that Ctrl-C is ignored, and so would
# the commands whose answer to it they test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """More of what `make test` runs a part of is for `make test-scale`, when it runs everything."""
    for item in items:
        if item.get_closest_marker("broad") is not None:
            item.add_marker(pytest.mark.scale)
            if os.environ.get("EMUCOLL_SCALE") == "ci":
                item.add_marker(pytest.mark.skip(reason="make test has run others of its kind"))


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout's top folder."""
    return Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def cache_folder() -> Path:
    """The one folder for wheels and big downloads, kept between runs."""
    named = os.environ.get("EMUCOLL_CACHE")
    folder = Path(named) if named else Path.home() / ".cache" / "emucoll"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def bounded_scale() -> bool:
    """Whether scale tests run a part that suits CI (EMUCOLL_SCALE=ci) instead of everything."""
    return os.environ.get("EMUCOLL_SCALE") == "ci"
