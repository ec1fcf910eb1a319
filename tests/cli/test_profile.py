"""`emucoll profile`: planted bottlenecks are named first, what cannot be profiled is refused."""

from pathlib import Path

import pytest

from tests.cli.command import Commands

SIZES = "-np", "16,32,64,128,256"
FLAGS = *SIZES, "--repeat", 1, "--steps", 4, "--cluster", "h100-roce-98k", "--json"

PLANTED = '''
from emucoll.formation.store_client import StoreClient
from emucoll.formation.tcpstore import TcpStoreRing
from emucoll.formation.base import accept_bootstrap, connect_bootstrap
from emucoll.wire.address import pack_address, unpack_address, ADDRESS_BYTES


class Staggered(TcpStoreRing):
    """Each rank waits 10 ms longer than the one before."""

    async def form(self, rank, job):
        with rank.span("bootstrap.delay"):
            await rank.clock.sleep(0.01 * rank.rank)
        return await super().form(rank, job)


class Mesh(TcpStoreRing):
    """Each rank connects to all before it."""

    async def form(self, rank, job):
        ring = await super().form(rank, job)
        with rank.span("bootstrap.mesh"):
            store = await StoreClient.open(rank, job)
            comm, listener = job.comm.encode(), rank.network.listen()
            await store.set(b"%s-mesh-%d" % (comm, rank.rank), pack_address(listener.address))
            for other in range(rank.rank):
                key = b"%s-mesh-%d" % (comm, other)
                address = unpack_address(await store.get(key, ADDRESS_BYTES))
                (await connect_bootstrap(rank, address, job)).close()
            for _ in range(rank.rank + 1, job.nranks):
                (await accept_bootstrap(rank, listener, job)).close()
            listener.close()
            store.close()
        return ring
'''


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    (tmp_path / "planted.py").write_text(PLANTED)
    return tmp_path


@pytest.mark.parametrize(
    ("formation", "target", "entity", "phase", "resource", "laws"),
    [
        pytest.param(
            "Staggered", 512, "rank", "bootstrap.delay", "wait", {"n"}, marks=pytest.mark.scale
        ),
    ],
)
def test_what_was_planted_is_named_first(
    emucoll: Commands,
    planted: Path,
    formation: str,
    target: int,
    entity: str,
    phase: str,
    resource: str,
    laws: set[str],
    bounded_scale: bool,
) -> None:
    if bounded_scale:
        pytest.skip("half a minute")
    told = emucoll(
        "profile", "--formation", f"planted:{formation}", "--target", target, *FLAGS, cwd=planted
    )
    assert told.exit_code == 0
    verdict = told.document["verdict"]
    assert (verdict["entity"], verdict["phase"], verdict["resource"]) == (entity, phase, resource)
    assert verdict["law"] in laws
    assert verdict["low"] - 0.15 <= (2 if resource == "cpu" else 1) <= verdict["high"] + 0.15
    assert verdict["share_at_target"] > 0.4
    assert told.document["findings"][0] == verdict


@pytest.mark.scale
def test_connections_of_a_mesh_grow_with_the_square(
    emucoll: Commands, planted: Path, bounded_scale: bool
) -> None:
    if bounded_scale:
        pytest.skip("a minute")
    told = emucoll("profile", "--formation", "planted:Mesh", "--target", 512, *FLAGS, cwd=planted)
    [figure] = [
        each
        for each in told.document["figures"]
        if (each["entity"], each["resource"]) == ("rank", "connections")
    ]
    assert figure["law"] == "n²"
    assert figure["at_target"] == pytest.approx(512 * 511 / 2, rel=0.05)


def test_the_table_begins_with_the_verdict(emucoll: Commands, tmp_path: Path) -> None:
    told = emucoll(
        "profile", "--plan", "nccl-2.22.3", *SIZES, "--target", 512, "--repeat", 1, "--steps", 2,
        "--out", tmp_path / "kept",
    )  # fmt: skip
    assert told.exit_code == 0
    text = told.out.decode()
    assert text.startswith("# VERDICT fixed stagger (bootstrap.delay), asleep of a rank")
    assert (tmp_path / "kept" / "result.json").exists()
    rows = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert rows[0].split()[:2] == ["rank", "bootstrap.delay"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("-np", "16,32", "--target", 512), "names 2 sizes: expected 5 to 32"),
        (("-np", "16,16,32,64,128", "--target", 512), "16 is named twice"),
        ((*SIZES, "--target", 128), "--target is 128: expected 256 to"),
        ((*SIZES, "--target", 512, "--repeat", 0), "--repeat is 0: expected 1 to 100"),
        ((*SIZES, "--target", 512, "--steps", 0), "--steps is 0: expected 1"),
        ((*SIZES, "--target", 512, "--plan", "nccl-2.22"), "nccl-2.22.3"),
        ((*SIZES, "--target", 512, "--formation", "tcpstor"), "tcpstore"),
        ((*SIZES, "--target", 512, "--plan", "ncclx", "--allgather", "ring"), "of its own"),
        ((*SIZES, "--target", 512, "--cluster", "moon"), "moon"),
        ((*SIZES, "--target", 200000), "200000"),
        ((*SIZES, "--target", 512, "--out", "/dev/null/x"), "/dev/null/x"),
    ],
)
def test_what_cannot_be_profiled_is_refused(
    emucoll: Commands, flags: tuple[object, ...], says: str
) -> None:
    refused = emucoll("profile", *flags, "--json")
    assert refused.exit_code == 2
    assert refused.document["schema"] == "emucoll.profile/1"
    assert says in refused.error["what"]


def test_a_run_that_fails_is_told(emucoll: Commands, tmp_path: Path) -> None:
    (tmp_path / "raises.py").write_text(
        "from emucoll.formation.tcpstore import TcpStoreRing\n"
        "class Raises(TcpStoreRing):\n"
        "    async def form(self, rank, job):\n"
        "        raise ValueError('no')\n"
    )
    failed = emucoll(
        "profile", "--formation", "raises:Raises", "--target", 512, *FLAGS, cwd=tmp_path
    )
    assert failed.exit_code == 1
    assert "ValueError: no" in failed.error["evidence"]
