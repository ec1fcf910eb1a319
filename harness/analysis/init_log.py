"""From records of NCCL logs to communicators: which rank did what, in which initialization.

Bootstrap timings carry no rank and no communicator, Init timings no communicator: the thread that
wrote them joins them to its Init START and COMPLETE. A communicator is told by its commId; one that
was split, shrunk or grown by its parent, the parent's count of children and its color.

Holds true: nothing is guessed. An initialization whose communicator no line names stays apart,
unless exactly one communicator of its size lacks its rank (`Member.adopted`). A line that stands
in two files counts once. A rank that comes again is another generation: a job that was restarted.

Must not know lines, files or statistics. Memory is a few hundred bytes per rank and communicator.
"""

from dataclasses import dataclass, field
from typing import TypeAlias

from harness.external.nccl_log import (
    BootstrapTimings,
    InitLine,
    InitTimings,
    Origin,
    Record,
    Topology,
    Version,
    Warn,
)

KEPT_WARNINGS = 100
"""WARN lines that are kept; the others are counted."""

Key: TypeAlias = tuple[object, ...]
Process: TypeAlias = tuple[int, str, str, int]
"""Source, tag, host, process id: two nodes may have one host name, and one process id."""


@dataclass(slots=True, eq=False)
class Member:
    """One rank's initialization, as far as the logs show it. Times in seconds."""

    rank: int
    nranks: int
    host: str = ""
    pid: int = 0
    comm: str | None = None
    function: str | None = None
    cuda_dev: int | None = None
    nvml_dev: int | None = None
    started: bool = False
    completed: bool = False
    init: InitTimings | None = None
    bootstrap: BootstrapTimings | None = None
    adopted: bool = False
    """No line names its communicator: it is the only one that this rank can belong to."""
    home: "Communicator | None" = None
    children: list[str] = field(default_factory=list)
    """Splits of it, in order: 2.23 prints no count."""

    @property
    def done(self) -> bool:
        """Did its initialization end? Timings are printed after it only."""
        return self.completed or self.init is not None


@dataclass(slots=True, eq=False)
class Communicator:
    """The ranks of one communicator that the logs show.

    `nranks` None: only Bootstrap timings whose rank no line tells, numbered as they came.
    """

    key: Key
    nranks: int | None
    comm_id: str | None = None
    parent: "Communicator | None" = None
    is_child: bool = False
    color: int | None = None
    child_count: int | None = None
    generation: int = 0
    members: dict[int, Member] = field(default_factory=dict)
    nodes: set[int] = field(default_factory=set)

    @property
    def named(self) -> bool:
        """Does a line say which communicator it is?"""
        return self.key[0] != "unnamed"


@dataclass(slots=True)
class Complaint:
    """A WARN. `after_init`: every initialization that its process had begun was complete."""

    origin: Origin
    where: str | None
    text: str
    after_init: bool


@dataclass(slots=True)
class _Thread:
    current: Member | None = None
    waiting: BootstrapTimings | None = None
    """Bootstrap timings whose START was lost: the COMPLETE that follows says whose they are."""
    shared: bool = False
    """Threads of several processes bear this name: host, process and thread id are equal."""


@dataclass(slots=True)
class _Process:
    version: str | None = None
    by_pointer: dict[str, Member] = field(default_factory=dict)


class InitLog:
    """All sources together: `add` records in each source's order, then call `finish` once."""

    def __init__(self) -> None:
        self.complaints: list[Complaint] = []
        self.complaint_count = 0
        self._groups: dict[Key, list[Communicator]] = {}
        self._threads: dict[tuple[int, Origin], _Thread] = {}
        self._processes: dict[Process, _Process] = {}
        self._loose_versions: dict[str, int] = {}
        self._strays: list[tuple[Origin, BootstrapTimings]] = []
        self.shared_threads = 0
        """Names that threads of several processes bear; known after `finish`."""

    def add(self, source: int, record: Record) -> None:
        """One record of `source`, which is any number that tells sources apart."""
        match record:
            case InitLine():
                self._init_line(source, record)
            case InitTimings():
                self._init_timings(source, record)
            case BootstrapTimings():
                self._bootstrap_timings(source, record)
            case Topology():
                member = self._process(source, record.origin).by_pointer.get(record.comm)
                if member is not None and member.home is not None and member.rank == record.rank:
                    member.home.nodes.add(record.nodes)
            case Version():
                self._version(source, record)
            case Warn():
                self._warn(source, record)

    def finish(self) -> list[Communicator]:
        """Every communicator: the named ones first, each kind in the order of the logs."""
        for (_, origin), thread in self._threads.items():
            self.shared_threads += thread.shared
            if thread.waiting is not None:
                self._strays.append((origin, thread.waiting))
        self._threads.clear()
        self._adopt()
        found = [each for group in self._groups.values() for each in group if each.members]
        if self._strays:
            found.append(self._without_rank())
        return sorted(found, key=lambda each: (each.nranks is None, not each.named, each.is_child))

    def versions(self) -> dict[str, int]:
        """How many processes wrote that they are of a version."""
        seen: dict[str, int] = {}
        for process in self._processes.values():
            if process.version is not None:
                seen[process.version] = seen.get(process.version, 0) + 1
        # Up to 2.22 rank 0 prints the line to stdout, without a prefix, and again to its own file.
        seen |= {name: n for name, n in self._loose_versions.items() if name not in seen}
        kept: dict[str, int] = {}
        for name in sorted(seen, key=lambda each: -seen[each]):
            # A torn line ends within its version, or goes on with another line's text.
            alike = next((k for k in kept if k.startswith(name) or name.startswith(k)), name)
            kept[alike] = kept.get(alike, 0) + seen[name]
        return kept

    # -- records

    def _version(self, source: int, record: Version) -> None:
        name = f"{record.library} {record.version}"
        if record.origin is None:
            self._loose_versions[name] = self._loose_versions.get(name, 0) + 1
        else:
            self._process(source, record.origin).version = name

    def _warn(self, source: int, record: Warn) -> None:
        self.complaint_count += 1
        if len(self.complaints) >= KEPT_WARNINGS:
            return
        members = self._process(source, record.origin).by_pointer.values()
        after = bool(members) and all(member.done for member in members)
        self.complaints.append(Complaint(record.origin, record.where, record.text, after))

    def _init_line(self, source: int, line: InitLine) -> None:
        if line.rank >= line.nranks:
            return
        thread = self._thread(source, line.origin)
        member = self._member(source, line)
        if line.stage == "START":
            self._stray(line.origin, thread)
            before = thread.current
            if before is not None and before is not member and before.home is member.home:
                # One thread cannot begin a second rank of a communicator before the first is done.
                thread.shared = thread.shared or not before.done
            member.started = True
        elif line.stage == "COMPLETE":
            member.completed = True
            before = thread.current
            open_before = before is not None and before is not member and not before.done
            if before is not None and open_before and not member.started:
                # Lines between the two are lost, and its bootstrap may be this one's.
                thread.waiting = None
                if before.bootstrap is not None:
                    self._strays.append((line.origin, before.bootstrap))
                    before.bootstrap = None
            # With its START lost, nothing else has begun in this thread since its bootstrap.
            if thread.waiting is not None and member.bootstrap is None and not member.started:
                member.bootstrap, thread.waiting = thread.waiting, None
        thread.current = member

    def _init_timings(self, source: int, times: InitTimings) -> None:
        if times.rank >= times.nranks:
            return
        thread = self._thread(source, times.origin)
        member = thread.current
        same = member is not None and (member.rank, member.nranks) == (times.rank, times.nranks)
        if member is None or not same or not _fits(member.init, times):
            member = self._of_process(source, times) or self._unnamed(source, times)
            thread.current = member
        if member.init is None or not member.init.whole:
            member.init = times
        member.function = member.function or times.function
        if thread.waiting is not None and member.bootstrap is None:
            member.bootstrap, thread.waiting = thread.waiting, None

    def _bootstrap_timings(self, source: int, times: BootstrapTimings) -> None:
        thread = self._thread(source, times.origin)
        member = thread.current
        if thread.shared:
            self._strays.append((times.origin, times))
            return
        if member is not None and member.bootstrap is not None:
            if member.bootstrap == times:
                return  # the line stands there twice
            if not member.bootstrap.whole and _fits(member.bootstrap, times):
                member.bootstrap = times
                return
        if member is not None and member.bootstrap is None and not member.done:
            member.bootstrap = times
            return
        if thread.waiting is not None and _fits(thread.waiting, times):
            thread.waiting = times
            return
        self._stray(times.origin, thread)
        thread.waiting = times

    # -- who it is

    def _thread(self, source: int, origin: Origin) -> _Thread:
        return self._threads.setdefault((source, origin), _Thread())

    def _process(self, source: int, origin: Origin) -> _Process:
        name = (source, origin.tag, origin.host, origin.pid)
        return self._processes.setdefault(name, _Process())

    def _stray(self, origin: Origin, thread: _Thread) -> None:
        if thread.waiting is not None:
            self._strays.append((origin, thread.waiting))
            thread.waiting = None

    def _member(self, source: int, line: InitLine) -> Member:
        process = self._process(source, line.origin)
        known = process.by_pointer.get(line.comm)
        if known is not None and not _may_be(known, line):
            known = None  # an address that another communicator had before
        # A torn line says no more than this; and when a communicator grows, START and COMPLETE are
        # of different forms.
        told = line.stage is None or (line.stage == "COMPLETE" and known and known.started)
        if known is not None and told:
            return self._learn(known, line)
        key = self._key(process, line)
        home = None if known is None else known.home
        if known is not None and home is not None and key is not None and not home.named:
            # What a torn line began is named now.
            del home.members[known.rank]
            return self._settle(known, key, process, line)
        member = Member(rank=line.rank, nranks=line.nranks)
        return self._settle(member, key or ("unnamed", line.nranks), process, line)

    def _settle(self, member: Member, key: Key, process: _Process, line: InitLine) -> Member:
        self._learn(member, line)
        home = self._home(key, member)
        if (there := home.members.get(member.rank)) is not None:
            member = self._learn(there, line)
        else:
            member.home = home
            home.members[member.rank] = member
        if home.comm_id is None and line.parent is None:
            home.comm_id = line.comm_id
        if line.parent is not None:
            parent = process.by_pointer.get(line.parent)
            home.is_child = True
            home.parent = home.parent or (None if parent is None else parent.home)
            home.color, home.child_count = line.color, line.child_count
        process.by_pointer[line.comm] = member
        return member

    def _key(self, process: _Process, line: InitLine) -> Key | None:
        """What tells a communicator from all others; None: the line does not say."""
        if line.parent is None:
            return None if line.comm_id is None else ("id", line.comm_id, line.nranks)
        count = line.child_count
        parent = process.by_pointer.get(line.parent)
        home = None if parent is None else parent.home
        if parent is not None and count is None:
            if line.comm not in parent.children:
                parent.children.append(line.comm)
            count = parent.children.index(line.comm)
        above = None if home is None else (home.key, home.generation)
        return ("child", above, count, line.color, line.nranks)

    def _home(self, key: Key, member: Member) -> Communicator:
        """The first generation in which this rank is missing, or is this very one."""
        group = self._groups.setdefault(key, [])
        for each in group:
            there = each.members.get(member.rank)
            if there is None or _is_same(there, member):
                return each
        group.append(Communicator(key=key, nranks=member.nranks, generation=len(group)))
        return group[-1]

    def _learn(self, member: Member, line: InitLine) -> Member:
        member.host, member.pid, member.comm = line.origin.host, line.origin.pid, line.comm
        member.function = line.function or member.function
        member.cuda_dev = member.cuda_dev if line.cuda_dev is None else line.cuda_dev
        member.nvml_dev = member.nvml_dev if line.nvml_dev is None else line.nvml_dev
        return member

    def _of_process(self, source: int, times: InitTimings) -> Member | None:
        """The one rank of this process that these times can be of, whatever thread wrote them."""
        members = self._process(source, times.origin).by_pointer.values()
        fitting = [
            member
            for member in members
            if (member.rank, member.nranks) == (times.rank, times.nranks) and member.init is None
        ]
        return fitting[0] if len(fitting) == 1 else None

    def _unnamed(self, source: int, times: InitTimings) -> Member:
        """A rank whose timings alone are there."""
        key = ("unnamed", times.nranks)
        member = Member(rank=times.rank, nranks=times.nranks, function=times.function)
        member.host, member.pid, member.init = times.origin.host, times.origin.pid, times
        for each in self._groups.get(key, ()):  # a line that stands in two files
            there = each.members.get(times.rank)
            if there is not None and there.init == times:
                return there
        member.home = self._home(key, member)
        member.home.members[member.rank] = member
        return member

    # -- at the end

    def _adopt(self) -> None:
        """Give unnamed ranks to the communicator that they must belong to, if one must be it."""
        sizes: dict[int, list[Communicator]] = {}
        for group in self._groups.values():
            for each in group:
                if each.named and each.nranks is not None:
                    sizes.setdefault(each.nranks, []).append(each)
        for key, group in self._groups.items():
            named = sizes.get(group[0].nranks or 0, [])
            if key[0] != "unnamed" or len(named) != 1:
                continue
            for rank in dict.fromkeys(rank for each in group for rank in each.members):
                homes = [each for each in group if rank in each.members]
                if len(homes) == 1 and _take(named[0], homes[0].members[rank]):
                    del homes[0].members[rank]

    def _without_rank(self) -> Communicator:
        home = Communicator(key=("unnamed",), nranks=None)
        for number, (origin, times) in enumerate(self._strays):
            member = Member(rank=number, nranks=0, host=origin.host, pid=origin.pid)
            member.bootstrap, member.home = times, home
            home.members[number] = member
        return home


def _may_be(known: Member, line: InitLine) -> bool:
    """Can `line`, of the same process and address, be of the communicator that is known there?"""
    if (known.rank, known.nranks) != (line.rank, line.nranks):
        return False
    there = None if known.home is None else known.home.comm_id
    return there is None or line.comm_id is None or there == line.comm_id


def _is_same(there: Member, member: Member) -> bool:
    """Is it the same initialization of the same process?"""
    if there.comm is None or member.comm is None:
        return False
    return (there.host, there.pid, there.comm) == (member.host, member.pid, member.comm)


def _take(home: Communicator, member: Member) -> bool:
    """Make `member` one of `home`, if its rank or its times are missing there."""
    there = home.members.get(member.rank)
    if there is None:
        home.members[member.rank], member.home, member.adopted = member, home, True
        return True
    if not _completes(there, member):
        return False
    there.init, there.adopted = member.init, True
    there.bootstrap = there.bootstrap or member.bootstrap
    return True


def _completes(there: Member, member: Member) -> bool:
    """Are `member`'s times those that `there`, of the same process, lacks?"""
    same = (there.host, there.pid) == (member.host, member.pid)
    return same and there.init is None and member.comm is None


def _fits(
    there: InitTimings | BootstrapTimings | None, times: InitTimings | BootstrapTimings
) -> bool:
    """Can `times` be what was torn in `there`, or is it the same line once more?"""
    if there is None or there == times:
        return True
    if there.whole or (there.total is not None and there.total != times.total):
        return False
    return there.parts.items() <= times.parts.items()
