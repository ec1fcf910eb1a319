"""The process of one worker: `python -m harness.control.worker CONTROLLER NAME`.

It runs its share of the ranks as asyncio tasks: admits them, waits until every rank of the run has
formed, runs the plan's steps, verifies every byte, and reports. Never imports the command line or
the reports.
"""

import asyncio
import gc
import math
import random
import sys
import time
from array import array
from collections import Counter
from typing import Any

import msgspec

from emucoll.errors import EmucollError, UsageError
from emucoll.loading import look_in
from emucoll.net.delay import make_network
from emucoll.net.tcp import TcpClock
from emucoll.rank import Job, Rank
from emucoll.spans import SpanLog, peer_number
from emucoll.trace import IDLE, Metered, Trace, current_rank
from emucoll.wire.address import unpack_address
from emucoll.wire.nccl import layout_of_size, unpack_unique_ids
from harness.control.forgotten import forgotten_awaits
from harness.control.initialization import Initialization
from harness.control.inject import RankFaults
from harness.control.link import Link
from harness.control.loops import run_loop
from harness.control.messages import (
    AnyMessage,
    Begin,
    Broken,
    Dump,
    Finished,
    Formed,
    Prepared,
    Progress,
    Records,
    Setup,
    Start,
    Stop,
    WaitingRanks,
)
from harness.control.ranks import (
    ADMISSION,
    EXTERNAL,
    NEVER_STARTED,
    START_SKEW,
    rank_failed,
    spans_of,
)
from harness.control.series import Series
from harness.control.skew import skew_s
from harness.planned import plan_of
from harness.usage import cpu_s, peak_rss_bytes
from harness.work import Work

PROGRESS_S = 0.5
ADMITTED_A_TURN = 64


class Worker:
    """The ranks of one process, from its setup to its report."""

    def __init__(self, link: Link, setup: Setup) -> None:
        """Nothing runs yet."""
        self._link = link
        self._setup = setup
        self._spec = setup.spec
        look_in(setup.folder)
        self._plan = plan_of(self._spec)
        self._faults = RankFaults(self._spec, self._plan)
        self._trace = Trace(setup.count)
        if setup.record:
            self._trace.spans = SpanLog(setup.count)
        self._series = Series(self._counts)
        self._network = make_network(setup.source, self._spec.hop_delay_s, self._trace.to_loop)
        self._clock = TcpClock()
        self._admission = self._trace.phase(ADMISSION)
        self._skew = self._trace.phase(START_SKEW)
        self._late: list[asyncio.TimerHandle] = []
        jitter = random.Random(self._spec.seed * 1_000_003 + setup.first)
        self._ranks = [
            Rank(
                r,
                slot,
                self._network,
                self._clock,
                self._trace,
                jitter,
                self._faults.slow(r),
                self._admission,
            )
            for slot, r in enumerate(range(setup.first, setup.first + setup.count))
        ]
        self._initialization = Initialization(
            setup, self._ranks, self._faults, self._since_start_s, self._when_formed
        )
        self._external = {
            rank - setup.first for rank in self._spec.external_ranks if rank - setup.first >= 0
        }
        self._order = [slot for slot in range(setup.count) if slot not in self._external]
        self._own = len(self._order)
        """Ranks that run here: all of the worker's but the external ones."""
        for slot in self._external.intersection(range(setup.count)):
            self._ranks[slot].phase = self._trace.phase(EXTERNAL)
        self._tasks: set[asyncio.Task[None]] = set()
        self._forget = self._tasks.discard
        self._totals = array("d", bytes(8 * setup.count))
        loop = asyncio.get_running_loop()
        self._begin: asyncio.Future[None] = loop.create_future()
        self._failed = False
        self._started = self._started_at = self._began = 0.0
        self._admitted = self._formed = self._gathered = 0
        self._reads = self._writes = self._sent_before = 0
        self._cpu_before = cpu_s()
        self._ticker: asyncio.Task[None] | None = None
        loop.set_task_factory(_metered_task)

    # -- the controller's messages, in the order in which they come

    def handle(self, message: AnyMessage) -> None:
        """Act on one message."""
        match message:
            case Start():
                self._start(message)
            case Records():
                self._take_records(message.addresses)
            case Begin():
                self._began = self._clock.now()
                counters = self._network.counters
                self._reads, self._writes, self._sent_before = (
                    counters.reads,
                    counters.writes,
                    counters.bytes_sent,
                )
                self._begin.set_result(None)
                if not self._own:
                    self._link.send(self._finished())
            case Dump():
                self._link.send(self._waiting())
            case _:
                raise AssertionError(f"unexpected {type(message).__name__}")

    def _start(self, start: Start) -> None:
        spec = self._spec
        roots = unpack_unique_ids(start.unique_ids)
        job = Job(
            nranks=spec.nranks,
            magic=roots[0].magic if roots else self._setup.magic,
            comm=self._setup.comm,
            store=None if start.store is None else unpack_address(start.store),
            roots=roots,
            check_in=None if start.check_in_bytes is None else layout_of_size(start.check_in_bytes),
            uid_stagger_rate=spec.uid_stagger_rate,
            uid_stagger_threshold=spec.uid_stagger_threshold,
            handshake_s=spec.handshake_s,
            deadline_s=spec.deadline_s,
            attempt=self._setup.attempt,
        )
        self._initialization.start(job, unpack_unique_ids(start.group_ids))
        self._cpu_before = cpu_s()
        self._started = self._clock.now()
        self._started_at = time.time()
        self._ticker = asyncio.create_task(self._tick())
        leaders = self._put_leaders_first(len(roots))
        at_once = (self._setup.window or self._setup.count) + leaders
        self._admit_first(min(at_once, self._own))
        if not self._own:
            self._link.send(self._all_formed())

    def _put_leaders_first(self, nroots: int) -> int:
        """Ranks start in ascending order, but before them those that all others wait for, who take
        no place of a window. How many they are.
        """
        if self._plan.front is None:
            return 0
        first, count = self._setup.first, self._setup.count
        leaders = set(self._plan.front.leaders(self._spec.nranks, nroots))
        self._order.sort(key=lambda slot: (first + slot not in leaders, slot))
        return sum(first <= leader < first + count for leader in leaders)

    def _admit_first(self, count: int) -> None:
        """Admit the first `count` ranks, a few a turn of the loop: whoever has started is served in
        between, as it would be if every rank had a process of its own.
        """
        for _ in range(min(count, ADMITTED_A_TURN)):
            self._admit()
        if count > ADMITTED_A_TURN and not self._failed:
            asyncio.get_running_loop().call_soon(self._admit_first, count - ADMITTED_A_TURN)

    def _admit(self) -> None:
        """Let the next rank start. One that is injected never to start holds its place, as a dead
        host would.
        """
        if self._admitted == self._own or self._failed:
            return
        rank = self._ranks[self._order[self._admitted]]
        self._admitted += 1
        self._trace.wall[self._admission][rank.slot] = self._clock.now() - self._started
        if self._faults.never_starts(rank.rank):
            rank.phase = self._trace.phase(NEVER_STARTED)
            return
        late_s = skew_s(self._spec.start_skew, rank.rank, self._spec.seed)
        if not late_s:
            self._launch(rank)
            return
        rank.phase = self._skew
        loop = asyncio.get_running_loop()
        self._late.append(loop.call_later(late_s, self._launch_late, rank, self._clock.now()))

    def _launch_late(self, rank: Rank, since: float) -> None:
        """Start a rank that was made late, if there still is anything to start it for."""
        if not self._failed:
            self._trace.wall[self._skew][rank.slot] = self._clock.now() - since
            self._launch(rank)

    def _launch(self, rank: Rank) -> None:
        rank.phase = self._trace.phase(IDLE)
        task = asyncio.get_running_loop().create_task(Metered(self._run_rank(rank), rank))
        self._tasks.add(task)
        task.add_done_callback(self._forget)

    async def _run_rank(self, rank: Rank) -> None:
        wall = self._trace.wall
        began = self._started + wall[self._admission][rank.slot] + wall[self._skew][rank.slot]
        try:
            await self._initialization.run(rank)
        except asyncio.CancelledError:
            raise
        except (Exception, SystemExit) as error:
            self._rank_failed(rank, error)
            return
        self._totals[rank.slot] = self._clock.now() - began - rank.excused_s
        self._gathered += 1
        if self._gathered == self._own:
            self._link.send(self._finished())

    def _since_start_s(self) -> float:
        return self._clock.now() - self._started

    async def _when_formed(self, rank: Rank) -> None:
        """One more rank has formed: another may start; it waits until all of the run have."""
        self._formed += 1
        if self._formed == self._own:
            self._link.send(self._all_formed())
        self._admit()
        with rank.span("bootstrap.barrier", peer="all"):
            await self._begin

    def _all_formed(self) -> Formed:
        return Formed(addresses=self._initialization.published(), seconds=self._since_start_s())

    def _take_records(self, addresses: bytes | None) -> None:
        """Make the tables to verify against, then wait for the begin."""
        self._initialization.make_tables(addresses, self._own)
        if any(gather.schedule.flow == "cut-through" for gather in self._plan.gathers):
            self._let_pieces_pass_whole()
        self._link.send(Prepared())

    def _let_pieces_pass_whole(self) -> None:
        """Serve ranks in ring order, and let in what comes from the worker before only when nothing
        is inside.
        """
        rings = [ring for ring in self._initialization.rings if ring is not None]
        inside = [
            (line, slot) for slot, ring in enumerate(rings) for line in (ring.next, ring.prev)
        ]
        self._network.dispatch_in_order([*inside, (rings[0].prev, math.inf)])

    # -- what it tells the controller

    async def _tick(self) -> None:
        last = None
        sampled = -math.inf
        while True:
            now = self._clock.now()
            if self._setup.record and now - sampled >= PROGRESS_S:
                sampled = now
                self._series.sample()
            progress = self._progress()
            if progress != last:
                self._link.send(progress)
                last = progress
            pause_s = 0.002 if self._setup.report_check_ins else PROGRESS_S
            await asyncio.sleep(pause_s)

    def _progress(self) -> Progress:
        names = self._trace.names
        phases = Counter(rank.phase for rank in self._ranks)
        before = (
            "bootstrap",
            "bootstrap.create",
            "bootstrap.create_store",
            "bootstrap.delay",
            IDLE,
            ADMISSION,
            START_SKEW,
            NEVER_STARTED,
            EXTERNAL,
        )
        front = "" if self._plan.front is None else self._plan.front.name
        waiting = sum(
            count
            for phase, count in phases.items()
            if names[phase] in before or (front and names[phase].startswith(front))
        )
        share = 0.0
        if self._began:
            todo = self._own * self._initialization.sent_bytes()
            sent = self._network.counters.bytes_sent - self._sent_before
            share = min(1.0, sent / todo) if todo else 1.0
        return Progress(
            phases={names[phase]: count for phase, count in phases.items()},
            checked_in=self._setup.count - waiting,
            formed=self._formed,
            gathered=self._gathered,
            share=share,
        )

    def _rank_failed(self, rank: Rank, error: BaseException) -> None:
        if self._failed:
            return
        self._failed = True
        failed = rank_failed(rank, error)
        if wrong := self._initialization.first_wrong():
            failed = msgspec.structs.replace(failed, what=f"{failed.what}; before that: {wrong}")
        self._link.send(failed)

    def _waiting(self) -> WaitingRanks:
        phases = array("H", (rank.phase for rank in self._ranks))
        peers = array("q", (peer_number(rank.peer) for rank in self._ranks))
        return WaitingRanks(
            first=self._setup.first,
            names=self._trace.names,
            phases=phases.tobytes(),
            peers=peers.tobytes(),
        )

    def _finished(self) -> Finished:
        trace, counters = self._trace, self._network.counters
        now = self._clock.now()
        trace.to_loop()
        if self._setup.record:
            self._series.sample()
        process_cpu_s = cpu_s() - self._cpu_before
        cpu = dict(zip(trace.names, trace.cpu, strict=True))
        cpu["loop"] = process_cpu_s - sum(
            seconds for name, seconds in cpu.items() if name != "loop"
        )
        groups = self._initialization.groups_up()
        skip: tuple[str, ...] = (IDLE, "loop", NEVER_STARTED, EXTERNAL)
        if self._spec.start_skew is None:
            skip = (*skip, START_SKEW)
        return Finished(
            total_s=now - self._started,
            gathers=self._initialization.gathered(self._own),
            groups=groups,
            phases={
                name: wall.tobytes()
                for name, wall in zip(trace.names, trace.wall, strict=True)
                if name not in skip
            },
            totals=self._totals.tobytes(),
            cpu_s=cpu,
            work=Work(
                messages=counters.messages,
                bytes=counters.bytes_sent,
                connections=counters.connects,
                retries=trace.retries + sum(each.retries for each in groups),
                requests=trace.requests + sum(each.requests for each in groups),
                syscalls=counters.syscalls,
                cpu_s=process_cpu_s,
                peak_rss_bytes=peak_rss_bytes(),
            ),
            reads=counters.reads - self._reads,
            writes=counters.writes - self._writes,
            peak_descriptors=self._network.peak_descriptors + 1,
            held_descriptors=self._network.held_descriptors,
            dropped=list(trace.dropped),
            dropped_count=trace.dropped.in_all,
            spans=None if trace.spans is None else spans_of(trace, trace.spans, self._started),
            series=self._series.columns,
            started_at=self._started_at,
        )

    def _counts(self) -> dict[str, float | None]:
        """What it tells of itself over time."""
        return {
            "formed": float(self._formed),
            "done": float(self._gathered),
            "descriptors": float(self._network.held_descriptors),
        }

    def forgot(self, error: UsageError) -> None:
        """Somebody's coroutine was not awaited: the running rank's, if one runs."""
        rank = current_rank(asyncio.get_running_loop())
        if isinstance(rank, Rank):
            self._rank_failed(rank, error)

    def close(self) -> None:
        """Cancel every rank and reset every connection."""
        self._failed = True
        for handle in self._late:
            handle.cancel()
        for task in list(self._tasks):
            task.cancel()
        if self._ticker is not None:
            self._ticker.cancel()
        self._network.close()


def _metered_task(
    loop: asyncio.AbstractEventLoop, coroutine: Any, **kwargs: Any
) -> asyncio.Task[Any]:
    """Tasks that a rank starts (gather, TaskGroup, wait_for) are metered as that rank's."""
    rank = current_rank(loop)
    if rank is not None and not isinstance(coroutine, Metered):
        coroutine = Metered(coroutine, rank)
    return asyncio.Task(coroutine, loop=loop, **kwargs)


async def work(controller: str, process: str, loop_name: str) -> None:
    """Work until told to stop."""
    link = Link(controller, process, loop_name)
    setup = await link.receive()
    if isinstance(setup, Setup):
        await _work(link, process, setup)
    else:  # interrupted before it began
        assert isinstance(setup, Stop)
    await link.close()


async def _work(link: Link, process: str, setup: Setup) -> None:
    worker = _prepare(link, process, setup)
    with forgotten_awaits(lambda error: None if worker is None else worker.forgot(error)):
        while not isinstance(message := await link.receive(), Stop):
            if isinstance(message, Setup):  # a restart: the same ranks, with nothing of before
                if worker is not None:
                    worker.close()
                worker = None
                gc.collect()
                worker = _prepare(link, process, message)
            elif worker is not None:
                worker.handle(message)
    if worker is not None:
        worker.close()


def _prepare(link: Link, process: str, setup: Setup) -> Worker | None:
    """A worker that is ready to start; None if there cannot be one, which the controller hears."""
    try:
        worker = Worker(link, setup)
    except UsageError as error:
        link.send(Broken(kind="usage", what=str(error)))
        return None
    except (EmucollError, OSError) as error:
        link.send(Broken(kind="harness", what=f"{process} could not start: {error}"))
        return None
    link.send(Prepared())
    return worker


if __name__ == "__main__":
    run_loop(lambda loop_name: work(sys.argv[1], sys.argv[2], loop_name), is_server=False)
