"""Logs of invented jobs, written in NCCL's forms, and what is made of them."""

from harness.analysis.init_log import InitLog
from harness.analysis.init_phases import describe
from harness.external.nccl_log import LogReader
from harness.results.schema import LogCommunicator, LogPhase


def log_of(*sources: str) -> InitLog:
    """Each source a file's text."""
    log = InitLog()
    for number, text in enumerate(sources):
        reader = LogReader()
        for line in text.split("\n"):
            for record in reader.feed(line):
                log.add(number, record)
    return log


def described(*sources: str) -> list[LogCommunicator]:
    """The communicators in those texts."""
    return describe(log_of(*sources).finish())


def the_one(*sources: str) -> LogCommunicator:
    """The only communicator in those texts."""
    found = described(*sources)
    assert len(found) == 1, found
    return found[0]


def phase(communicator: LogCommunicator, name: str) -> LogPhase:
    """The phase called `name`."""
    return next(each for each in communicator.phases if each.name == name)


def says(communicator: LogCommunicator, *words: str) -> bool:
    """Does one finding hold all of `words`?"""
    return any(all(word in finding for word in words) for finding in communicator.findings)


def start(prefix: str, rank: int, nranks: int, comm_id: str, comm: str = "", more: str = "") -> str:
    """An Init START of 2.23 and later; `more` replaces the devices."""
    devices = more or f"cudaDev {rank % 8} nvmlDev {rank % 8} busId {rank + 16:x}000"
    return (
        f"{prefix} NCCL INFO ncclCommInitRankConfig comm {comm or f'0x7a{rank:03x}'} rank {rank} "
        f"nranks {nranks} {devices} commId {comm_id} - Init START\n"
    )


def complete(
    prefix: str, rank: int, nranks: int, comm_id: str, comm: str = "", more: str = ""
) -> str:
    """The COMPLETE of `start`."""
    return start(prefix, rank, nranks, comm_id, comm, more).replace("START", "COMPLETE")


def bootstrap(prefix: str, total: str, parts: str) -> str:
    """`parts`: create, send, recv, ring and delay, as printed."""
    names = ("create", "send", "recv", "ring", "delay")
    inside = ", ".join(f"{n} {t}" for n, t in zip(names, parts.split(), strict=True))
    return f"{prefix} NCCL INFO Bootstrap timings total {total} ({inside})\n"


def init(prefix: str, rank: int, nranks: int, total: str, parts: str) -> str:
    """`parts`: kernels, alloc, bootstrap, allgathers, topo, graphs, connections and rest; without
    alloc and function, as 2.22 prints them, where there are seven.
    """
    names = ["kernels", "alloc", "bootstrap", "allgathers", "topo", "graphs", "connections", "rest"]
    times = parts.split()
    if len(times) == 7:
        names.remove("alloc")
    inside = ", ".join(f"{n} {t}" for n, t in zip(names, times, strict=True))
    function = " - ncclCommInitRankConfig" if len(times) == 8 else ""
    return (
        f"{prefix} NCCL INFO Init timings{function}: rank {rank} nranks {nranks} total {total} "
        f"({inside})\n"
    )
