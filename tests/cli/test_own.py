"""A user's own formation and AllGather, by a dotted path: as the README shows, and mistaken."""

import re
from pathlib import Path

import pytest

from tests.cli.command import Commands

CHECKOUT = Path(__file__).parents[2]
README = (CHECKOUT / "README.md").read_text()


def test_the_formation_of_the_readme_as_shown(emucoll: Commands, tmp_path: Path) -> None:
    shown = re.search(r"<!-- own-formation: (\S+) -->\n```python\n(.*?)```", README, re.S)
    assert shown is not None
    name, code = shown.groups()
    assert (CHECKOUT / "examples" / name).read_text().endswith(code)
    assert len(code.splitlines()) <= 40
    (tmp_path / "shown_in_readme.py").write_text(code)
    for n, workers in ((1, 1), (2, 2), (15, 2), (257, 2)):
        flags = ("--formation", "shown_in_readme:Backward", "--workers", workers)
        document = emucoll(
            "run", "-np", n, *flags, "--allgather", "ring", "--json", cwd=tmp_path
        ).document
        assert (document["ok"], document["wrong"]) == (True, 0)
        assert document["formation"]["name"] == "shown_in_readme:Backward"
        assert document["work"]["ranks"]["connections"] == 2 * n
        assert document["work"]["store"]["requests"] == 5 * n
        names = {phase["name"] for phase in document["phases"]}
        assert {"bootstrap.get_key", "bootstrap.connect", "bootstrap.accept"} <= names


def test_the_schedule_of_the_readme_as_shown(emucoll: Commands, tmp_path: Path) -> None:
    shown = re.search(r"```python\n(from emucoll.collectives.*?)```", README, re.S)
    assert shown is not None
    (tmp_path / "my_schedules.py").write_text(shown[1])
    flags = ("--allgather", "my_schedules:RING_BARE", "--record-bytes", 120, "--workers", 2)
    ended = emucoll("run", "-np", 9, *flags, "--json", cwd=tmp_path)
    [gather] = ended.document["allgathers"]
    assert (gather["wrong"], gather["frames"], gather["transfers"]) == (0, "bare", 72)
    ended = emucoll(
        "run", "-np", 9, *flags, "--inject", "rank=3:corrupt=last", "--json", cwd=tmp_path
    )
    assert (ended.exit_code, ended.document["wrong"]) == (1, 1)


def test_the_formation_of_the_readme_on_a_store_that_holds_keys(emucoll: Commands) -> None:
    """Every bring-up has names of its own; and a window lets its ranks in by turns."""
    flags = ("--formation", "examples.backward:Backward", "--restarts", 2, "--workers", 2)
    document = emucoll("run", "-np", 64, *flags, "--start-window", 4, "--json").document
    assert [each["wrong"] for each in document["restarts"]] == [0, 0, 0]


UNSOUND = """
from emucoll.collectives.rings import Ring
from emucoll.collectives.schedule import NEXT, Transfer
from emucoll.formation.base import Formation

class Twice(Ring):
    def exchanges(self, n, step):
        return ((Transfer(NEXT, 0, -1),),)

class Raises(Ring):
    def exchanges(self, n, step):
        return {}[step]

TWICE = Twice("twice", "its own block again and again", "bare", "lockstep")
RAISES = Raises("raises", "", "bare", "lockstep")
BOTH = Ring("both", "", "bare", "cut-through", both_ways=True)

class Nothing(Formation):
    server = "store"
    async def form(self, rank, job):
        return None
"""


def test_a_schedule_that_does_not_bring_every_block(emucoll: Commands, tmp_path: Path) -> None:
    """What verification could not see: every byte is as the formulas promise."""
    (tmp_path / "unsound.py").write_text(UNSOUND)
    for name, why in (
        ("TWICE", "after 15 steps a rank of 16 lacks 14 blocks"),
        ("BOTH", "is not the one-way ring's"),
        ("RAISES", "its formulas failed at "),
    ):
        flags = ("-np", 16, "--allgather", f"unsound:{name}", "--json")
        for command in ("run", "doctor"):
            refused = emucoll(command, *flags, cwd=tmp_path)
            assert refused.exit_code == 2
            assert why in refused.error["what"]
    assert "unsound.py:12: KeyError: 0" in refused.error["what"]


def test_a_formation_that_returns_no_ring(emucoll: Commands, tmp_path: Path) -> None:
    (tmp_path / "unsound.py").write_text(UNSOUND)
    failed = emucoll("run", "-np", 4, "--formation", "unsound:Nothing", "--json", cwd=tmp_path)
    assert failed.exit_code == 1
    assert failed.error["evidence"] == "formation unsound:Nothing returned None: expected a Ring"


ROOTED = """
from emucoll.formation.nccl import NcclMultiRoot, NcclRoot222

class Tens(NcclMultiRoot):
    ranks_per_root = 10

class Late(NcclRoot222):
    def stagger_s(self, local_id, owned, threshold, rate):
        return 0.2
"""


def test_ones_own_choice_of_roots(emucoll: Commands, tmp_path: Path) -> None:
    """What a formation says of its roots reaches them and the limits, by a dotted path too."""
    (tmp_path / "rooted.py").write_text(ROOTED)
    flags = ("-np", 64, "--workers", 2, "--json")
    document = emucoll("run", *flags, "--formation", "rooted:Tens", cwd=tmp_path).document
    assert (document["ok"], document["formation"]["roots"]) == (True, 7)
    assert document["work"]["root"]["connections"] == 2 * 64 + 7
    asked = ("--formation", "rooted:Tens", "--roots", 3)
    assert emucoll("run", *flags, *asked, cwd=tmp_path).document["formation"]["roots"] == 3
    document = emucoll("run", *flags, "--formation", "rooted:Late", cwd=tmp_path).document
    assert (document["ok"], document["work"]["root"]["bytes"]) == (True, 64 * (12 + 4 + 28))
    [delay] = [each for each in document["phases"] if each["name"] == "bootstrap.delay"]
    assert delay["p50_s"] >= 0.2
    refused = emucoll("run", *flags, "--formation", "rooted:Late", "--roots", 2, cwd=tmp_path)
    assert (refused.exit_code, "has one root" in refused.error["what"]) == (2, True)


MINE = """
from emucoll.formation.base import Formation
from emucoll.formation.tcpstore import TcpStoreRing

NUMBER = 7

class Raises(TcpStoreRing):
    async def form(self, rank, job):
        if rank.rank == 2:
            raise ValueError("I forgot something")
        return await super().form(rank, job)

class Plain(Formation):
    server = "store"
    def form(self, rank, job):
        return None

class Elsewhere(TcpStoreRing):
    server = "etcd"

class Many(TcpStoreRing):
    listeners = "two"

class Forgets(TcpStoreRing):
    async def form(self, rank, job):
        if rank.rank == 2:
            self.tell(job)
            await rank.clock.sleep(3600)
        return await super().form(rank, job)

    async def tell(self, job):
        pass

class Turned(TcpStoreRing):
    async def form(self, rank, job):
        ring = await super().form(rank, job)
        return ring._replace(next=ring.prev, prev=ring.next)

class Formless(Formation):
    server = "store"
    async def fromm(self, rank, job):
        return None

class Asks(TcpStoreRing):
    def __init__(self, question):
        pass
"""


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mine:Riases", ["has no 'Riases'", "did you mean 'Raises'?"]),
        ("mine:NUMBER", ["of type int", "it lacks server, unformed_descriptors"]),
        ("mine:Plain", ["form is no coroutine function"]),
        ("mine:Formless", ["it lacks form: write `async def form(self, rank, job)`"]),
        ("mine:Elsewhere", ["server is 'etcd': expected 'root' or 'store'"]),
        ("mine:Many", ["listeners is 'two': expected int"]),
        ("mine:Asks", ["cannot be made without arguments", "name an instance"]),
        ("no_such_module:X", ["there is no module 'no_such_module'"]),
        ("needs:X", ["importing it failed at", "needs.py:1", "No module named 'not_installed'"]),
        ("broken:X", ["importing it failed at", "broken.py:2", "SyntaxError"]),
        ("divides:X", ["divides.py:1", "ZeroDivisionError: division by zero"]),
        (":X", ["expected package.module:name"]),
        ("mine:", ["expected package.module:name"]),
    ],
)
def test_a_users_mistakes_are_said_before_anything_runs(
    emucoll: Commands,
    tmp_path: Path,
    name: str,
    says: list[str],
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "needs.py").write_text("import not_installed\n")
    (tmp_path / "broken.py").write_text("x = 1\ndef f(:\n")
    (tmp_path / "divides.py").write_text("x = 1 / 0\n")
    refused = emucoll("run", "-np", 4, "--formation", name, "--json", cwd=tmp_path)
    assert refused.exit_code == 2
    assert refused.error["what"].startswith("formation ")
    for text in says:
        assert text in refused.error["what"]
    assert "Traceback" not in refused.err


def test_one_that_raises_is_named_with_its_line(emucoll: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    ended = emucoll("run", "-np", 4, "--formation", "mine:Raises", "--json", cwd=tmp_path)
    assert (ended.exit_code, ended.error["rank"]) == (1, 2)
    told = f"{ended.error['what']} {ended.error['evidence']}"
    assert "ValueError: I forgot something" in told
    assert f"mine.py:{MINE[: MINE.index('raise ValueError')].count(chr(10)) + 1}" in told


@pytest.mark.parametrize("world", [(), ("--world", "virtual", "--cluster", "ethernet-64")])
def test_a_forgotten_await_ends_the_run_at_once(
    emucoll: Commands, tmp_path: Path, world: tuple[str, ...]
) -> None:
    """The others wait for rank 2, which goes on for an hour."""
    (tmp_path / "mine.py").write_text(MINE)
    ended = emucoll("run", "-np", 4, "--formation", "mine:Forgets", "--json", *world, cwd=tmp_path)
    assert (ended.exit_code, ended.error["rank"]) == (1, 2)
    line = MINE[: MINE.index("self.tell(job)")].count("\n") + 1
    assert "coroutine 'Forgets.tell' was never awaited" in ended.error["evidence"]
    assert f"mine.py:{line}" in ended.error["evidence"]


def test_a_ring_that_is_wired_wrongly_is_no_fault_of_the_data(
    emucoll: Commands, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    ended = emucoll("run", "-np", 16, "--formation", "mine:Turned", "--json", cwd=tmp_path)
    assert ended.exit_code == 1
    assert ended.document["wrong"] > 16 * 15 / 2
    assert "the formation has connected ranks to others" in ended.error["cause"]


def test_an_allgather_that_is_none(emucoll: Commands, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    refused = emucoll("run", "-np", 4, "--allgather", "mine:NUMBER", "--json", cwd=tmp_path)
    assert refused.exit_code == 2
    assert "it lacks name, text, frames, flow, lanes, rounds" in refused.error["what"]
