"""Whom everybody waited for, by hand, and that no second is missing."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from emucoll.formation import FORMATIONS
from emucoll.net.base import Channel
from emucoll.sim.cost import Costs
from emucoll.sim.loop import VirtualLoop
from emucoll.sim.network import VirtualNetwork, VirtualWorld
from emucoll.sim.path import Path, Piece
from harness.clusters import find_cluster, in_order
from harness.engine.virtual import VirtualRun
from harness.projection.engine import setting_of, spec_of
from harness.projection.spec import ProjectSpec
from harness.spec import Spec

MS = 1e-3
COSTS = Costs(latency_s=5 * MS, send_s=1 * MS, recv_s=2 * MS, connect_s=0.1 * MS, accept_s=0.2 * MS)


class Recorded:
    """A world whose path is recorded, in which a test's coroutine runs."""

    def __init__(self, costs: Costs = COSTS) -> None:
        self.loop = VirtualLoop()
        self.path = Path()
        self.world = VirtualWorld(self.loop, costs, path=self.path)

    def run(self, main: Coroutine[Any, Any, None]) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(main)

    def network(self, phase: str, host: int) -> VirtualNetwork:
        network = self.world.network(host)
        self.path.enter(network.number, phase, 0.0, 0.0)
        return network

    def end(self, network: VirtualNetwork) -> list[tuple[float, int, str]]:
        """Milliseconds, whose, of what, in order, that led to where that process is."""
        now = self.loop.time()
        self.path.close(network.number, now, network.cpu.done_s(now))
        return shown(self.path.to(network.number))


def shown(pieces: list[Piece]) -> list[tuple[float, int, str]]:
    found: list[tuple[float, int, str]] = []
    before = 0.0
    for piece in pieces:
        took = (piece.until - before) / MS
        if found and found[-1][1:] == (piece.process, piece.what):
            took += found.pop()[0]
        found.append((round(took, 6), piece.process, piece.what))
        before = piece.until
    return found


async def connected(here: VirtualNetwork, there: VirtualNetwork) -> tuple[Channel, Channel]:
    listener = there.listen()
    near = await here.connect(listener.address, 1e6)
    return near, await listener.accept()


def test_a_chain_of_messages_leads_back_to_the_one_who_slept() -> None:
    recorded = Recorded()
    one, two, three = (recorded.network("x", host) for host in range(3))

    async def main() -> None:
        first, second = await connected(one, two), await connected(two, three)

        async def pass_on() -> None:
            await first[1].recv(1)
            await second[0].send(b"b")

        passing = asyncio.create_task(pass_on())
        ending = asyncio.create_task(second[1].recv(1))
        await recorded.world.clock.sleep(70 * MS)
        await first[0].send(b"a")
        await asyncio.gather(passing, ending)

    recorded.run(main())
    *before, last = recorded.end(three)
    assert last == (2, 2, "cpu")  # its read
    assert before[-4:] == [(1, 0, "cpu"), (5, 0, "latency"), (3, 1, "cpu"), (5, 1, "latency")]
    slept_ms, *slept = before[-5]
    assert slept_ms >= 70
    assert slept == [0, "sleep"]


def test_a_server_that_is_busy_is_the_cause_itself() -> None:
    """Twenty speak at once; the last is answered when nineteen others have been read."""
    recorded = Recorded(Costs(latency_s=5 * MS, recv_s=2 * MS))
    server = recorded.network("serve", 0)
    peers = [recorded.network("ask", 1 + i) for i in range(20)]

    async def main() -> None:
        channels = [await connected(peer, server) for peer in peers]
        await asyncio.gather(*(near.send(b"x") for near, _ in channels))
        await asyncio.gather(*(far.recv(1) for _, far in channels))

    recorded.run(main())
    pieces = recorded.end(server)
    assert pieces[-1] == (40, 0, "cpu")


def test_syns_that_are_sent_again_are_told() -> None:
    recorded = Recorded(Costs(latency_s=5 * MS, accept_s=300 * MS))
    server = recorded.network("serve", 0)
    peers = [recorded.network("ask", 1 + i) for i in range(6)]

    async def main() -> None:
        listener = server.listen(backlog=1)

        async def accept_all() -> None:
            for _ in peers:
                await listener.accept()

        accepting = asyncio.create_task(accept_all())
        await asyncio.gather(*(peer.connect(listener.address, 1e6) for peer in peers))
        last.extend(max((recorded.path.to(peer.number) for peer in peers), key=end_of))
        await accepting

    def end_of(pieces: list[Piece]) -> float:
        return pieces[-1].until

    last: list[Piece] = []
    recorded.run(main())
    assert [piece.what for piece in last] == ["syn-retry", "latency"]
    assert last[0].until >= 1.0


def blame(run: VirtualRun, path: Path) -> tuple[Counter[tuple[str, str, str]], float]:
    """Seconds by role, phase and what; and when the last rank was done."""
    assert run.last_done is not None
    n, before = run.spec.nranks, 0.0
    found: Counter[tuple[str, str, str]] = Counter()
    for piece in path.to(run.last_done):
        role = "rank" if piece.process < n else "server"
        assert piece.until > before
        found[role, piece.phase, piece.what] += piece.until - before
        before = piece.until
    return found, before


def recorded_run(spec: Spec, cluster_name: str, n: int) -> tuple[VirtualRun, Path]:
    path = Path()
    setting = find_cluster(cluster_name, n).setting(in_order(n, 8))
    run = VirtualRun(spec, setting, path)
    assert run.run().trouble is None
    return run, path


@pytest.mark.parametrize("formation", sorted(FORMATIONS))
@pytest.mark.parametrize("allgather", ["ring", "ring-bidir", "bruck"])
def test_no_second_is_missing(formation: str, allgather: str) -> None:
    n = 29
    spec = Spec(
        nranks=n, formation=formation, allgather=allgather, world="virtual", cluster="ethernet-64"
    )
    run, path = recorded_run(spec, "ethernet-64", n)
    found, end = blame(run, path)
    assert sum(found.values()) == pytest.approx(end, rel=1e-12)
    assert end == pytest.approx(max(run.totals), rel=1e-12)


@pytest.mark.parametrize("plan", ["nccl-2.22.3", "nccl-2.30.7", "ncclx"])
@pytest.mark.parametrize("in_rounds", [False, True])
def test_a_plan_is_blamed_alike_in_rounds_and_event_by_event(plan: str, in_rounds: bool) -> None:
    n, cluster = 136, find_cluster("h100-roce-98k", 136)
    asked = ProjectSpec(plan=(plan,), n=(n,), cluster="h100-roce-98k", draws=0)
    setting = setting_of(cluster, in_order(n, 8))
    if not in_rounds:
        setting = cluster.setting(in_order(n, 8))
    path = Path()
    run = VirtualRun(spec_of(plan, n, asked, cluster), setting, path)
    assert run.run().trouble is None
    found, end = blame(run, path)
    assert end == pytest.approx(max(run.totals), rel=1e-12)
    by_phase: Counter[str] = Counter()
    for (role, phase, _), seconds in found.items():
        by_phase[phase if role == "rank" else role] += seconds
    gathers = [gather.phase for gather in run.plan.gathers]
    steps = [by_phase[phase] for phase in gathers]
    assert min(steps) > 0.6 * max(steps)  # all AllGathers, alike
    if plan == "nccl-2.22.3":
        assert found["rank", "bootstrap.delay", "sleep"] == pytest.approx((n - 1) * MS, rel=1e-3)


def test_recording_changes_nothing() -> None:
    n, cluster = 48, find_cluster("h100-roce-98k", 48)
    asked = ProjectSpec(plan=("ncclx",), n=(n,), cluster="h100-roce-98k", draws=0)
    make: Callable[[Path | None], VirtualRun] = lambda path: VirtualRun(  # noqa: E731
        spec_of("ncclx", n, asked, cluster), cluster.setting(in_order(n, 8)), path
    )
    runs = make(None), make(Path())
    for run in runs:
        run.run()
    assert runs[0].digest() == runs[1].digest()
