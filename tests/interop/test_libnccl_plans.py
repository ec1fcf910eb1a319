"""NVIDIA's own root of each release under its plan: 1,024 ranks, a whole communicator init
(with EMUCOLL_SCALE=ci the first steps of its AllGathers).
"""

import pytest

from emucoll.loading import find_plan
from tests.cli.command import Commands
from tests.interop.fetch import FetchError, fetch_nccl

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]

NRANKS = 1024
FEW_STEPS = 16
LONGEST_S = 800
"""Whole AllGathers take half a minute on two cores of their own, and more beside others."""


@pytest.mark.parametrize("version", ["2.22.3", "2.23.4", "2.27.7", "2.28.9", "2.30.7"])
@pytest.mark.parametrize("roots", ["", "+multiroot"])
def test_a_release_with_its_own_root(
    tmp_path_factory: pytest.TempPathFactory, bounded_scale: bool, version: str, roots: str
) -> None:
    if roots and (version == "2.22.3" or bounded_scale):
        pytest.skip("it knows one root alone" if version == "2.22.3" else "one root in CI")
    try:
        library = fetch_nccl(version)
    except FetchError as error:
        pytest.skip(str(error))
    plan = find_plan(f"nccl-{version}{roots}")
    whole = not bounded_scale and not roots
    flags = () if whole else ("--steps", 2 if bounded_scale else FEW_STEPS)
    emucoll = Commands(tmp_path_factory.mktemp("plan"))
    with emucoll.start(
        "run", "-np", NRANKS, "--plan", plan.name, "--root", f"libnccl:{library}", *flags, "--json",
        "--deadline", f"{LONGEST_S}s",
    ) as running:  # fmt: skip
        ended = running.end(within_s=LONGEST_S + 60)
    document = ended.document
    assert (document["ok"], document["wrong"]) == (True, 0)
    assert document["servers"] == {"root": f"NCCL {version}"}
    assert "root-version" not in ended.warnings
    assert document["formation"]["roots"] == (8 if roots else 1)
    assert document["descriptors"]["held_per_rank"] == plan.held_descriptors
    assert document["work"]["ranks"]["retries"] == 0
    for gather, record in zip(document["allgathers"], plan.gathers, strict=True):
        assert gather["record_bytes"] == record.record_bytes
        assert (gather["steps"] == gather["of_steps"]) is whole
