"""Plans by name and one's own: as the docs show, and mistaken."""

import re
import sys
from pathlib import Path

import pytest

from tests.cli.command import Commands
from tests.cli.refusals import refusal

DOCS = (Path(__file__).parents[2] / "docs" / "plans.md").read_text()


def test_the_plan_of_the_docs_as_shown(emucoll: Commands, tmp_path: Path) -> None:
    shown = re.search(r"```python\n(from emucoll.collectives.*?)```", DOCS, re.S)
    assert shown is not None
    (tmp_path / "my_plans.py").write_text(shown[1])
    flags = ("--plan", "my_plans:MINE", "--workers", 2, "--ranks-per-host", 4, "--json")
    document = emucoll("run", "-np", 11, *flags, cwd=tmp_path).document
    assert (document["ok"], document["wrong"]) == (True, 0)
    gathers = [(gather["phase"], gather["name"]) for gather in document["allgathers"]]
    assert gathers == [("bootstrap.ring", "ring-bidir"), ("allgathers.all", "bruck")]
    names = {phase["name"] for phase in document["phases"]}
    assert {"allgathers.ring_check", "rest.barrier"} <= names
    assert document["spec"]["plan"] == "my_plans:MINE"
    assert document["formation"]["name"] == "tcpstore"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        ("--plan nccl-2.27.6", "did you mean 'nccl-2.27.7'"),
        ("--plan ncclX", "did you mean 'ncclx'"),
        ("--plan nccl-2.22.3+multiroot", "knows one root alone; leave +multiroot out"),
        ("--plan ncclx+multiroot", "has no root; leave +multiroot out"),
        ("--plan ncclx --formation tcpstore", "--plan ncclx and --formation"),
        ("--plan ncclx --allgather ring", "--plan ncclx and --allgather"),
        ("--plan ncclx --record-bytes 8", "--plan ncclx and --record-bytes"),
        ("--plan nccl-2.27.7 --roots 2", "use a plan with +multiroot"),
        ("--plan ncclx --root libnccl", "has no root"),
        ("--plan nccl-2.27.7 --store torch", "has no store"),
        ("--plan ncclx --channels 0", "--channels is 0: expected at least 1"),
        ("--channels 2", "--channels: they are a plan's"),
        ("--groups tp=2,pp=4", "belong together"),
        ("--groups tp=2,pp=3 --group-init new", "tp 2 × pp 3 = 6, and there are 8 ranks"),
        ("--groups tp=2,pp=4 --group-init split --record-bytes 8", "use --record-bytes 28"),
        ("--groups tp=2,pp=4 --group-init split --steps 2", "leave --steps out"),
        ("--groups tp=2,pp=4 --group-init new --allgather bruck", "bruck is no ring"),
        ("--restarts -1", "--restarts is -1"),
    ],
)
def test_what_is_refused(flags: str, why: str) -> None:
    assert why in refusal("-np", 8, *flags.split())


@pytest.mark.parametrize("flags", ["--plan nccl-2.27.6", "--plan nccl-2.22.3 --start-window 5"])
def test_what_is_refused_ends_the_command(emucoll: Commands, flags: str) -> None:
    ended = emucoll("run", "-np", 8, *flags.split(), "--json")
    assert ended.exit_code == 2
    assert ended.error["what"]


MISTAKEN = """
from emucoll.collectives import ALLGATHERS
from emucoll.formation import FORMATIONS
from emucoll.plans.local import LocalWork
from emucoll.plans.steps import RING, Barrier, Gather, Local, Plan, Published

import numpy as np

RING_28 = Gather("bootstrap.ring", ALLGATHERS["ring"], 28, (Published(RING, 0),))
STORE = FORMATIONS["tcpstore"]

def plan(*steps, **more):
    return Plan("mine", "", STORE, steps, **more)

NOT_A_PLAN = STORE
TWICE = plan(RING_28, RING_28)
NO_LISTENER = plan(Gather("rest.a", ALLGATHERS["ring"], 28, (Published("p2p", 0),)))
TOO_SHORT = plan(Gather("rest.a", ALLGATHERS["ring"], 30, (Published(RING, 4),)))
NO_P2P = plan(RING_28, p2p="p2p")
PEERS_FIRST = plan(Gather("rest.a", ALLGATHERS["bruck"], 28, (Published(RING, 0),)))

def faulty(array, rank):
    return 1 if rank == 3 else 0

def strange(array, rank):
    return array.no_such_method()

def loop(code):
    return Local("rest.loop", LocalWork("loop", "", lambda _: 1, lambda _: (np.zeros(1),), code))

FAULTY = plan(RING_28, loop(faulty))
STRANGE = plan(RING_28, loop(strange))
EMPTY = plan()
STRING_FORMATION = Plan("mine", "", "tcpstore", (RING_28,))
STRING_SCHEDULE = plan(Gather("bootstrap.ring", "ring", 28))
STRING_STEP = plan("ring")
STRING_WORK = plan(RING_28, Local("rest.loop", faulty))
NEGATIVE = plan(Gather("rest.a", ALLGATHERS["ring"], -1))
BARRIER_FIRST = plan(Barrier("rest.barrier"), RING_28)
NO_TIMER = plan(Gather("a", ALLGATHERS["ring"], 8))
TAKEN = plan(Gather("bootstrap.create", ALLGATHERS["ring"], 8))
"""


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("NOT_A_PLAN", "is no plan: it lacks"),
        ("TWICE", "two steps have the phase 'bootstrap.ring'"),
        ("NO_LISTENER", "has no address of a listener 'p2p' at byte 0"),
        ("TOO_SHORT", "at byte 4 of its 30"),
        ("NO_P2P", "p2p is 'p2p': expected one of"),
        ("PEERS_FIRST", "is bruck, which connects to peers"),
        ("NONE", "has no 'NONE'"),
        ("EMPTY", "it has no AllGather"),
        ("STRING_FORMATION", "its formation: what is there, of type str, is no formation"),
        ("STRING_SCHEDULE", "of step 0: what is there, of type str, is no AllGather"),
        ("STRING_STEP", "step 0 is 'ring': expected a Gather, a Local or a Barrier"),
        ("STRING_WORK", "no LocalWork"),
        ("NEGATIVE", "record_bytes is -1: expected 0 to"),
        ("BARRIER_FIRST", "an AllGather of those addresses has to come before"),
        ("NO_TIMER", "phase 'a': expected TIMER.NAME"),
        ("TAKEN", "phase 'bootstrap.create' is emucoll's own"),
    ],
)
def test_mistakes_in_ones_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, why: str
) -> None:
    (tmp_path / "mistaken.py").write_text(MISTAKEN)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "mistaken", raising=False)
    assert why in refusal("-np", 4, "--plan", f"mistaken:{name}")


@pytest.mark.parametrize(
    ("name", "exit_code", "why"),
    [
        ("FAULTY", 1, "local work loop of rank 3 found fault 1"),
        ("STRANGE", 2, "numba cannot compile it"),
    ],
)
def test_local_work_of_ones_own(
    emucoll: Commands, tmp_path: Path, name: str, exit_code: int, why: str
) -> None:
    (tmp_path / "mistaken.py").write_text(MISTAKEN)
    ended = emucoll("run", "-np", 4, "--plan", f"mistaken:{name}", "--json", cwd=tmp_path)
    assert ended.exit_code == exit_code
    assert why in ended.error["what"] + (ended.error["evidence"] or "")


def test_plans_are_listed(emucoll: Commands) -> None:
    shown = emucoll("plans").out.decode()
    document = emucoll("plans", "--json").document
    assert document["schema"] == "emucoll.names/1"
    names = {name["name"]: name["does"] for name in document["names"]}
    assert {"nccl-2.27.7", "ncclx", "pytorch"} <= names.keys()
    assert all(f"    {line}\n" in shown for does in names.values() for line in does)


def test_doctor_counts_a_plan(emucoll: Commands) -> None:
    """All its AllGathers, and five descriptors a rank."""
    flags = ("-np", 4096, "--steps", 16, "--json")
    plan = emucoll("doctor", "--plan", "nccl-2.30.7", *flags).document
    assert plan["estimate"]["transfers"] == 3 * 4096 * 32
    assert plan["estimate"]["bytes"] == 4096 * 32 * (120 + 144 + 2320)
    [descriptors] = [limit for limit in plan["limits"] if limit["name"].startswith("descriptors")][
        :1
    ]
    assert descriptors["need"] > 5 * 4096 / plan["estimate"]["workers"]
