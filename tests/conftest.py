"""What every test may ask for, and how hypothesis behaves on a shared machine.

Nothing here starts anything.
"""

import os
import signal
from fnmatch import fnmatchcase
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


PLACES = {
    "waits": ("cli/",),
    "alone": ("cli/", "unit/net/"),
    "interop": ("interop/",),
}
"""Where tests of these markers are: the Makefile looks nowhere else for them."""
BROAD = (
    "agreement/test_counts.py::*-257-28-*",
    "agreement/test_groups.py::test_restarts[[]nccl-*root*",
    "agreement/test_plans.py::test_a_whole_initialization[[]*multiroot-*",
    "agreement/test_plans.py::test_pytorch_fetches_every_roots_id[[]40-7]",
    "agreement/test_plans.py::test_pytorch_fetches_every_roots_id[[]129-None]",
    "agreement/test_plans.py::test_the_first_steps_of_each_allgather[[]ncclx*",
    "agreement/test_projection.py::test_a_seed_repeats_and_low_is_below_high",
    "agreement/test_projection.py::test_draws_at_few_ranks_say_what_draws_at_many_do[[]nccl*",
    "agreement/test_three_ways.py::test_all_three_send_the_same[[]257-28-ring-bidir*",
    "cli/test_calibrate.py::test_few_ranks_are_calibrated_too",
    "cli/test_corrupt.py::test_a_flipped_byte_goes_the_way_of_dissemination[[]f*",
    "cli/test_ett.py::test_what_a_plan_takes_is_projected",
    "cli/test_own.py::test_ones_own_choice_of_roots",
    "cli/test_project.py::test_the_table",
    "cli/test_project.py::test_without_draws_there_is_no_interval",
    "cli/test_results.py::test_what_several_roots_did_is_one_sum[[]5-5]",
    "cli/test_results.py::test_what_several_roots_did_is_one_sum[[]300-None]",
    "cli/test_validate.py::test_a_formation_of_ones_own_is_checked_and_then_projected",
    "cli/test_virtual.py::test_what_only_delays_does_not_break[[]link=0-3*",
    "unit/sim/test_path.py::test_a_plan_is_blamed_alike_in_rounds_and_event_by_event[[]False-nccl*",
)
"""What takes long and is much as others are. It counts as `broad`, as what is marked so does: `make
test` runs the others, `make test-scale` all, when it runs everything.
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Broad tests are scale tests, but for the bounded run. Who is somewhere else than the Makefile
    looks would never run.
    """
    for item in items:
        name = item.nodeid.removeprefix("tests/")
        for marker, folders in PLACES.items():
            if item.get_closest_marker(marker) is not None and not name.startswith(folders):
                raise pytest.UsageError(f"{item.nodeid} is marked {marker}: expected in {folders}")
        if any(fnmatchcase(name, each) for each in BROAD):
            item.add_marker(pytest.mark.broad)
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
