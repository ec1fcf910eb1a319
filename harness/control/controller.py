"""The controller: starts a run's processes, moves them through the run's life, and hands back what
they reported.

Messages, exits, signals and timers become events of the state machine in `lifecycle`; its
instructions are carried out here. Whatever happens, no process, port or file of the run is left
when `run` returns.
"""

import asyncio
import hmac
import os
import random
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import msgspec
import zmq
import zmq.asyncio

from emucoll.errors import HarnessError
from emucoll.formation.base import count_roots
from emucoll.wire.address import pack_address, unpack_address
from emucoll.wire.nccl import UNIQUE_ID_BYTES, unpack_unique_ids
from harness.control import messages as m
from harness.control.launch import Process, SourceAddresses
from harness.control.lifecycle import (
    DUMP_S,
    GRACE_S,
    AllFormed,
    AllGathered,
    DeadlineReached,
    Do,
    Event,
    Interrupted,
    IsReady,
    Joined,
    Lifecycle,
    Reported,
    Stage,
    TimeUp,
    Trouble,
    Weight,
)
from harness.control.link import MAX_MESSAGE_BYTES
from harness.external.endpoints import external_root, external_servers, external_store
from harness.planned import formation_name, group_roots, plan_of, servers_of
from harness.results.storage import Rendezvous
from harness.spec import ServerKill, Spec, WorkerKill

STOP_S = 5.0
STOP_S_PER_RANK = 2e-4
"""How long processes may take to stop: resetting 98,304 ranks' connections takes about 5 s on two
cores.
"""
REMINDER_S = 1.0
HANDSHAKE_IVL_MS = 10_000
"""A TCP peer that does not speak ZeroMQ is dropped after this long."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the ranks go: contiguous blocks, one a worker."""

    shares: tuple[range, ...]
    window: int | None
    """Ranks in formation at once per worker; None: all together."""


@dataclass(slots=True)
class Lost:
    """A process that ended before it was told to."""

    process: str
    exit_code: int
    last_words: str


@dataclass(frozen=True, slots=True)
class BringUp:
    """What came of the ranks' bring-up before a restart."""

    formation_s: float | None
    finished: list[m.Finished]


@dataclass(slots=True)
class Outcome:
    """What came of a run, as the processes told it; with restarts, of its last bring-up."""

    stage: Stage = Stage.LAUNCHING
    """Where it was when it ended, or failed."""
    trouble: Trouble | None = None
    formation_s: float | None = None
    finished: dict[str, m.Finished] = field(default_factory=dict)
    servers: dict[str, m.ServerReport] = field(default_factory=dict)
    server_versions: dict[str, str] = field(default_factory=dict)
    check_in_bytes: int | None = None
    """What the root takes for a check-in."""
    waiting: dict[str, m.WaitingRanks] = field(default_factory=dict)
    stuck_keys: list[tuple[bytes, int]] = field(default_factory=list)
    """Of our own store, and how many clients wait for each; asked for when a run hangs."""
    progress: dict[str, m.Progress] = field(default_factory=dict)
    pids: dict[str, int] = field(default_factory=dict)
    loop: str | None = None
    strangers: int = 0
    earlier: list[BringUp] = field(default_factory=list)
    """Bring-ups before the last, in their order."""
    killed: list[str] = field(default_factory=list)
    """Processes that did not stop by themselves."""


class Controller:
    """One run of `spec`, placed as `placement`."""

    def __init__(
        self,
        spec: Spec,
        placement: Placement,
        on_progress: Callable[["Controller"], None],
        on_pids: Callable[[dict[str, int]], None],
        on_rendezvous: Callable[[Rendezvous], None] = lambda _: None,
        charges: dict[str, float] | None = None,
        keep_store: bool = True,
    ) -> None:
        """`on_progress` hears of every progress message, and each REMINDER_S that none came,
        `on_pids` when all processes run,
        `on_rendezvous` where external ranks find the others, when these start;
        `charges` are the seconds of local work by phase that ranks do not run but let pass;
        `keep_store`: ranks may keep the connection to the store that a plan's front has opened.
        """
        self._keep_store = keep_store
        self._charges = charges or {}
        self._plan = plan_of(spec)
        self._formation = self._plan.formation
        self.spec = spec
        self.placement = placement
        self.outcome = Outcome()
        self._external_store, self._external_root = external_store(spec), external_root(spec)
        elsewhere = external_servers(spec)
        servers = tuple(name for name in servers_of(spec) if name not in elsewhere)
        workers = [f"worker {index}" for index in range(len(placement.shares))]
        self._workers = workers
        self._servers = servers
        self._nroots = count_roots(self._formation, spec.nranks, spec.roots)
        self.lifecycle = Lifecycle(frozenset(workers), frozenset(servers), spec.restarts)
        self._on_progress = on_progress
        self._on_pids = on_pids
        self._on_rendezvous = on_rendezvous
        self._bind = f"tcp://[{spec.bind}]:*" if ":" in spec.bind else f"tcp://{spec.bind}:*"
        self._token = secrets.token_hex(16)
        self._magic = secrets.randbits(64)
        self._comm = secrets.token_hex(4)
        self._peers: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        self._processes: dict[str, Process] = {}
        self._ready: dict[str, m.ServerReady] = {}
        self._addresses: dict[str, bytes] = {}
        self._done = asyncio.Event()
        self._stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._sources = SourceAddresses(random.Random(secrets.randbits(64)))
        self._source_of: dict[str, str] = {}
        self._interrupts = 0
        self._attempt = 0
        self._checked_in_kill = self._external_kill_at()

    # -- the whole

    async def run(self) -> Outcome:
        """Run to the end, whatever end; what happens inside the run is in the outcome.

        Raises HarnessError when no run can begin.
        """
        with (
            self._signals(),
            zmq.asyncio.Context() as context,
            self._router(context) as self._socket,
        ):
            await self._run()
        return self.outcome

    async def _run(self) -> None:
        deadline = asyncio.get_running_loop().call_later(
            self.spec.deadline_s, self._take, DeadlineReached()
        )
        try:
            self._spawn(self._listen())
            self._spawn(self._remind())
            await self._launch()
            await self._done.wait()
        finally:
            await self._end()
            for timer in (deadline, self._timer):
                if timer is not None:
                    timer.cancel()
            for task in list(self._tasks):
                task.cancel()
            self._sources.release()

    @contextmanager
    def _signals(self) -> Iterator[None]:
        """Ctrl-C and SIGTERM are events of the run; afterwards they are what they were before."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.getsignal(number) for number in numbers}
        before = {
            number: handler for number, handler in before.items() if handler is not signal.SIG_IGN
        }  # nohup, or a shell's &: as it was
        for number in before:
            loop.add_signal_handler(number, self._interrupt)
        try:
            yield
        finally:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

    def _router(self, context: zmq.asyncio.Context) -> zmq.asyncio.Socket:
        router = context.socket(zmq.ROUTER)
        router.linger = 200
        router.handshake_ivl = HANDSHAKE_IVL_MS
        router.maxmsgsize = MAX_MESSAGE_BYTES
        router.sndhwm = router.rcvhwm = 0
        router.ipv6 = "[" in self._bind
        try:
            router.bind(self._bind)
        except zmq.ZMQError as error:
            router.close()
            raise HarnessError(f"the controller cannot listen on {self._bind}: {error}") from None
        return router

    async def _launch(self) -> None:
        endpoint = bytes(self._socket.getsockopt(zmq.LAST_ENDPOINT)).rstrip(b"\0").decode()
        for name in (*self._servers, *self._workers):
            try:
                process = await Process.start(name, endpoint, self._token)
            except HarnessError as error:
                self._take(Trouble(Weight.BROKEN, error))
                return
            self._processes[name] = process
            self.outcome.pids[name] = process.pid
            self._spawn(self._mourn(process))
            if self._stopping:  # interrupted meanwhile: nobody has told this one
                process.kill()
                return
        self._on_pids(self.outcome.pids)

    async def _end(self) -> None:
        """Every process stops, by itself or by SIGKILL."""
        if not self._stopping:
            self._stop_all()
        patience_s = STOP_S + STOP_S_PER_RANK * self.spec.nranks
        processes = list(self._processes.values())
        by_themselves = await asyncio.gather(*(each.stopped(patience_s) for each in processes))
        self.outcome.killed += [
            process.name
            for process, itself in zip(processes, by_themselves, strict=True)
            if not itself
        ]

    def _spawn(self, coroutine: "asyncio._CoroutineLike[None]") -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # -- what comes in

    def _interrupt(self) -> None:
        self._interrupts += 1
        if self._interrupts > 1:
            for process in self._processes.values():
                process.kill()
        self._take(Interrupted())

    async def _mourn(self, process: Process) -> None:
        code = await process.wait()
        if self._stopping:
            await asyncio.sleep(GRACE_S)  # its report may still be on the way
            reported = process.name not in self._servers or process.name in self.outcome.servers
            if reported or self.lifecycle.stage is not Stage.CLOSING:
                return
        lost = Lost(process.name, code, process.last_words())
        self._take(Trouble(Weight.PROCESS_LOST, lost))

    async def _listen(self) -> None:
        while True:
            frames = await self._socket.recv_multipart()
            try:
                peer, data = frames
                message = m.decode(data)
            except (ValueError, msgspec.MsgspecError):
                self.outcome.strangers += 1
                continue
            if isinstance(message, m.Hello):
                self._admit(peer, message)
            elif (name := self._names.get(peer)) is not None:
                self._hear(name, message)
            else:
                self.outcome.strangers += 1

    async def _remind(self) -> None:
        """Ranks that wait tell nothing, and where they wait is to be seen all the same."""
        while True:
            await asyncio.sleep(REMINDER_S)
            if self.outcome.progress:
                self._on_progress(self)

    def _admit(self, peer: bytes, hello: m.Hello) -> None:
        known = hello.process in self._processes and hello.process not in self._peers
        if not hmac.compare_digest(hello.token.encode(), self._token.encode()) or not known:
            self.outcome.strangers += 1
            return
        if hello.protocol != m.PROTOCOL:
            what = (
                f"{hello.process} on {hello.host} speaks protocol {hello.protocol}, "
                f"not {m.PROTOCOL}: install the same emucoll everywhere"
            )
            self._take(Trouble(Weight.BROKEN, HarnessError(what)))
            return
        self._peers[hello.process] = peer
        self._names[peer] = hello.process
        self.outcome.loop = hello.loop
        self._take(Joined(hello.process))

    def _hear(self, name: str, message: m.AnyMessage) -> None:
        match message:
            case m.Prepared():
                self._take(IsReady(name))
            case m.ServerReady():
                self._ready[name] = message
                if message.check_in_bytes is not None:
                    self.outcome.check_in_bytes = message.check_in_bytes
                if message.version:
                    self.outcome.server_versions[name] = message.version
                self._take(IsReady(name))
            case m.Progress():
                self._progress(name, message)
            case m.Formed():
                self._addresses[name] = message.addresses
                self.outcome.formation_s = max(self.outcome.formation_s or 0.0, message.seconds)
                self._take(AllFormed(name))
            case m.Finished():
                self.outcome.finished[name] = message
                self._take(AllGathered(name))
            case m.ServerReport():
                self.outcome.servers[name] = message
                self._take(Reported(name))
            case m.StuckKeys():
                self.outcome.stuck_keys = message.keys
            case m.WaitingRanks():
                self.outcome.waiting[name] = message
                self._take(Reported(name))
            case m.RankFailed():
                self._take(Trouble(RANK_WEIGHTS[message.kind], (name, message)))
            case m.Broken():
                weight = Weight.USAGE if message.kind == "usage" else Weight.BROKEN
                self._take(Trouble(weight, HarnessError(message.what)))
            case _:
                self.outcome.strangers += 1

    def _progress(self, name: str, progress: m.Progress) -> None:
        self.outcome.progress[name] = progress
        checked_in = sum(each.checked_in for each in self.outcome.progress.values())
        if self._checked_in_kill is not None and checked_in >= self._checked_in_kill:
            self._checked_in_kill = None
            for fault in self.spec.inject:
                if isinstance(fault, ServerKill):
                    self._processes[fault.server].kill()
        self._on_progress(self)

    # -- what to do about it

    def _take(self, event: Event) -> None:
        stage = self.lifecycle.stage
        if self.lifecycle.stage not in (Stage.DIAGNOSING, Stage.DONE):
            self.outcome.stage = stage
        for do in self.lifecycle.handle(event):
            self._do(do)
        self.outcome.trouble = self.lifecycle.trouble

    def _do(self, do: Do) -> None:
        match do:
            case Do.SETUP_ALL:
                self._setup_all()
            case Do.RESTART:
                self._restart()
            case Do.START:
                self._start()
            case Do.SEND_RECORDS:
                self._tell_workers(m.Records(addresses=self._published()))
            case Do.BEGIN:
                self._tell_workers(m.Begin())
            case Do.DUMP:
                for server in self._servers:
                    self._tell(server, m.Dump())
                self._tell_workers(m.Dump())
            case Do.WAIT_GRACE:
                self._set_timer(GRACE_S)
            case Do.WAIT_DUMP:
                self._set_timer(DUMP_S)
            case Do.STOP_ALL:
                self._stop_all()
            case Do.CONCLUDE:
                self._done.set()

    def _restart(self) -> None:
        """All ranks again: a new communicator and new roots; the same processes."""
        outcome = self.outcome
        outcome.earlier.append(BringUp(outcome.formation_s, list(outcome.finished.values())))
        outcome.formation_s = None
        outcome.finished, outcome.progress, outcome.waiting = {}, {}, {}
        self._addresses = {}
        self._attempt += 1
        self._magic, self._comm = secrets.randbits(64), secrets.token_hex(4)
        self._setup_all()

    def _set_timer(self, s: float) -> None:
        self._timer = asyncio.get_running_loop().call_later(s, self._take, TimeUp())

    def _tell(self, name: str, message: m.AnyMessage) -> None:
        peer = self._peers.get(name)
        if peer is not None:
            self._socket.send_multipart([peer, m.encode(message)])

    def _tell_workers(self, message: m.AnyMessage) -> None:
        for name in self._workers:
            self._tell(name, message)

    def _stop_all(self) -> None:
        self._stopping = True
        for name in self._processes:
            self._tell(name, m.Stop())
        for name, process in self._processes.items():
            if name not in self._peers:  # it never joined: there is nobody to tell
                process.kill()

    def _setup_all(self) -> None:
        spec = self.spec
        for server in self._servers:
            self._tell(server, self._server_setup(server))
        killed = {fault.worker for fault in spec.inject if isinstance(fault, WorkerKill)}
        for index, (name, share) in enumerate(
            zip(self._workers, self.placement.shares, strict=True)
        ):
            setup = m.Setup(
                spec=spec,
                first=share.start,
                count=len(share),
                source=self._source(name),
                window=self.placement.window,
                magic=self._magic,
                comm=self._comm,
                report_check_ins=self._checked_in_kill is not None,
                kill_at_first_block=index in killed,
                folder=os.getcwd(),
                keep_store=self._keep_store,
                attempt=self._attempt,
                charges=self._charges,
                record=spec.is_recorded,
            )
            self._tell(name, setup)

    def _source(self, name: str) -> str:
        """A process's own address: at a restart the one that it had, TIME_WAIT and all."""
        source = self._source_of.get(name)
        if source is None:
            source = self._source_of[name] = self._sources.take(self.spec.ip)
        return source

    def _server_setup(self, server: str) -> m.ServerSetup:
        spec = self.spec
        real = server == "root" and spec.root.startswith("libnccl")
        kind = "libnccl" if real else server
        if server == "store" and spec.store == "torch":
            kind = "torch"
        _, _, library = spec.root.partition(":")
        kills = any(
            isinstance(fault, ServerKill) and fault.server == server for fault in spec.inject
        )
        formation = self._formation
        # With several roots, the first rank of each checks in with the previous one too.
        check_ins = spec.nranks + (self._nroots if self._nroots > 1 else 0)
        return m.ServerSetup(
            kind=kind,
            nranks=spec.nranks,
            formation=formation_name(spec),
            nroots=self._nroots,
            group_roots=group_roots(spec),
            several_roots=formation.ranks_per_root > 0,
            check_in_bytes=formation.check_in.size,
            windowed=self.placement.window is not None,
            source=self._source(server),
            magic=self._magic,
            library=library or None,
            handshake_s=spec.handshake_s,
            deadline_s=spec.deadline_s,
            hop_delay_s=spec.hop_delay_s,
            record=spec.is_recorded,
            kill_at=(check_ins + 1) // 2 if kills and kind == server else None,
        )

    def _external_kill_at(self) -> int | None:
        """At how many check-ins to kill a server that is not ours, and so cannot end itself at the
        right moment.
        """
        foreign = {
            "root": self.spec.root.startswith("libnccl"),
            "store": self.spec.store == "torch",
        }
        killed = any(
            isinstance(fault, ServerKill) and foreign[fault.server] for fault in self.spec.inject
        )
        return (self.spec.nranks + 1) // 2 if killed else None

    def _start(self) -> None:
        root, store = self._ready.get("root"), self._ready.get("store")
        store_address = None if store is None else store.address
        if self._external_store is not None:
            store_address = pack_address(self._external_store)
        ids, check_in_bytes = b"", None
        if root is not None:
            ids, check_in_bytes = root.address, root.check_in_bytes
        elif self._external_root is not None:
            ids, check_in_bytes = self._external_root.pack(), self._formation.check_in.size
        own = self._nroots * UNIQUE_ID_BYTES
        start = m.Start(
            store=store_address,
            unique_ids=ids[:own],
            group_ids=ids[own:],
            check_in_bytes=check_in_bytes,
        )
        if self.spec.external_ranks:
            self._on_rendezvous(self._rendezvous(start))
        self._tell_workers(start)

    def _rendezvous(self, start: m.Start) -> Rendezvous:
        roots = unpack_unique_ids(start.unique_ids)
        store = None if start.store is None else unpack_address(start.store)
        master = store or roots[0].root
        host = self.spec.ranks_per_host
        common = {
            "WORLD_SIZE": str(self.spec.nranks),
            "MASTER_ADDR": master.host,
            "MASTER_PORT": str(master.port),
        }
        return Rendezvous(
            nranks=self.spec.nranks,
            external_ranks=list(self.spec.external_ranks),
            magic=f"{roots[0].magic if roots else self._magic:#018x}",
            comm=self._comm,
            roots=[str(root.root) for root in roots],
            unique_ids=[root.pack().hex() for root in roots],
            check_in_bytes=start.check_in_bytes,
            store=None if store is None else str(store),
            environment=[
                common
                | {
                    "RANK": str(rank),
                    "LOCAL_RANK": str(rank % host),
                    "LOCAL_WORLD_SIZE": str(min(host, self.spec.nranks - rank // host * host)),
                }
                for rank in self.spec.external_ranks
            ],
        )

    def _published(self) -> bytes | None:
        """The addresses that the workers published, if records hold any."""
        if not any(gather.addresses for gather in self._plan.gathers):
            return None
        return b"".join(self._addresses[name] for name in self._workers)


RANK_WEIGHTS = {
    "closed": Weight.CONNECTION_LOST,
    "network": Weight.NETWORK,
    "protocol": Weight.RANK_RAISED,
    "raised": Weight.RANK_RAISED,
}
