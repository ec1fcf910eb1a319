"""A schedule in GOAL, the language of LogGOPSim (Hoefler, Schneider, Lumsdaine, LSAP 2010), so that
others can play it.

A rank's operations are in the order of `emucoll.collectives.driver`: in an exchange it sends, then
receives, each after the one before; lanes are chains of their own. Pure.
"""

from collections.abc import Iterator

from emucoll.collectives.rings import HEADER_BYTES
from emucoll.collectives.schedule import NEXT, PREV, Line, Part, Schedule
from emucoll.errors import UsageError

_TAGS = {NEXT: 1, PREV: 2}
"""Of a line: of two ranks both lead to the same one."""


def goal(schedule: Schedule, n: int, rounds: int, record_bytes: int) -> Iterator[str]:
    """The lines of a schedule of `n` ranks. Raises UsageError for one that connects to peers, or is
    cut through: GOAL has neither connections nor parts of messages.
    """
    if schedule.peers(n) or schedule.flow != "lockstep":
        raise UsageError(f"{schedule.name} is no ring in lockstep: GOAL cannot say what it does")
    yield f"num_ranks {n}\n"
    operations = list(_operations(schedule, n, rounds, record_bytes))
    for rank in range(n):
        yield f"\nrank {rank} {{\n"
        last: dict[int, int] = {}
        for number, (kind, line, size, lane) in enumerate(operations, 1):
            way = "to" if kind == "send" else "from"
            # What comes from rank + line was sent there on the line that leads here.
            tag = _TAGS[line if kind == "send" else -line]
            yield f"l{number}: {kind} {size}b {way} {(rank + line) % n} tag {tag}\n"
            if lane in last:
                yield f"l{number} requires l{last[lane]}\n"
            last[lane] = number
        yield "}\n"


def _operations(
    schedule: Schedule, n: int, rounds: int, record_bytes: int
) -> Iterator[tuple[str, Line, int, int]]:
    """What a rank does: kind, line, bytes and lane. The same for all ranks."""
    for step in range(rounds):
        for exchange in schedule.exchanges(n, step):
            sizes = [
                HEADER_BYTES if each.part is Part.HEADER else record_bytes * each.blocks
                for each in exchange
            ]
            sent = [(each, size) for each, size in zip(exchange, sizes, strict=True) if size]
            for each, size in sent:
                yield "send", each.to, size, each.lane
            for each, size in sent:
                yield "recv", each.source, size, each.lane
