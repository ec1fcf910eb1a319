"""From what one repeat of a calibration observed to the costs of this machine: arithmetic alone.

Each cost is what is left of a measured CPU time when the costs known before it are taken out, so
that counts times costs give back what was measured.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from emucoll.collectives.schedule import Traffic
from harness.planned import plan_of
from harness.results.schema import Phase, RunResult

RING, ALLGATHER = "bootstrap.ring", "bootstrap.allgather"


class Cost(NamedTuple):
    """A value that a calibration measures."""

    unit: str
    how: str
    """In a few words."""
    source: str
    """In full."""


_LOOP = "the least of five ranks' CPU / iterations, compiled"
COSTS: dict[str, Cost] = {
    "cpu.connect": Cost(
        "s/connection",
        "the side that connects",
        "CPU of a process that connects / connections, TCP over loopback, closing left out",
    ),
    "cpu.accept": Cost(
        "s/connection",
        "the side that accepts",
        "CPU of a process that accepts / connections, a listener for each, closing left out",
    ),
    "cpu.message": Cost(
        "s/message",
        "lockstep ring: write and read",
        "CPU of bootstrap.ring / messages, a write and a read each",
    ),
    "cpu.contention": Cost(
        "s/message",
        "more on a socket used both ways",
        "CPU of bootstrap.ring / messages of a ring both ways, less cpu.message",
    ),
    "cpu.byte": Cost(
        "s/byte",
        "lockstep ring, large records",
        "CPU of bootstrap.ring less messages x cpu.message / bytes",
    ),
    "cpu.cut_through": Cost(
        "s/rank",
        "ring-pipelined, few steps",
        "CPU of bootstrap.ring with few steps, less blocks that enter a worker x "
        "cpu.cut_through_block, less bytes x cpu.cut_through_byte / ranks",
    ),
    "cpu.cut_through_block": Cost(
        "s/block",
        "ring-pipelined, entering a worker",
        "CPU of bootstrap.ring with many steps less that with few, less bytes x "
        "cpu.cut_through_byte / (workers x steps more)",
    ),
    "cpu.cut_through_byte": Cost(
        "s/byte",
        "ring-pipelined",
        "CPU of bootstrap.ring with the larger records less that with the smaller / bytes more",
    ),
    "cpu.peer": Cost(
        "s/message",
        "to a peer, its connection included",
        "CPU of bootstrap.allgather / messages, each on a connection of its own",
    ),
    "cpu.rank": Cost(
        "s/rank",
        "forming, less all of the above",
        "CPU of bootstrap and loop without bootstrap.barrier and bootstrap.ring, less connections "
        "x cpu.connect, accepts x cpu.accept, messages that ranks sent x cpu.message / ranks",
    ),
    "store.request": Cost(
        "s/request",
        "built-in, connections included",
        "CPU of the store's process / requests",
    ),
    "root.check_in": Cost(
        "s/check-in",
        "built-in, connections included",
        "CPU of the root's process / check-ins",
    ),
    "root.check_in_libnccl": Cost(
        "s/check-in",
        "a real libnccl's root",
        "CPU of the process of a real root / check-ins",
    ),
    "cores.used_forming": Cost(
        "share",
        "while the ring formed",
        "CPU of ranks and store while the ring formed / its seconds x cores",
    ),
    "cores.used_gathering": Cost(
        "share",
        "while a lockstep ring ran",
        "CPU of bootstrap.ring / the AllGather's seconds x cores",
    ),
    "loop.ring_check": Cost("s/iteration", "nested loops, to 2.28.6", _LOOP),
    "loop.ring_check_bitmap": Cost("s/iteration", "a bitmap, 2.28.7 on", _LOOP),
    "loop.same_process": Cost("s/iteration", "pairs of peers", _LOOP),
    "loop.duplicate_gpu": Cost("s/iteration", "pairs of peers", _LOOP),
    "loop.node_numbering": Cost("s/iteration", "ranks, each through the nodes", _LOOP),
}
"""In the order in which they are told."""


@dataclass(frozen=True)
class Observed:
    """What one repeat gave."""

    connect_s: float
    accept_s: float
    """Of CPU, for a connection."""
    runs: Mapping[str, RunResult]
    """By what they are for: lockstep, both-ways, bytes, peers, cut-through-few, cut-through,
    cut-through-bytes, formation, root and, where there is one, libnccl.
    """
    iterations_s: Mapping[str, float]
    """By loop."""


def costs_of(observed: Observed) -> dict[str, float]:
    """Every cost that it shows, by name, in the order of `COSTS`."""
    runs = observed.runs
    costs = {"cpu.connect": observed.connect_s, "cpu.accept": observed.accept_s}
    costs |= _lockstep(runs["lockstep"], runs["bytes"])
    both_ways = runs["both-ways"]
    each_s = _cpu_s(both_ways, RING) / _gathered(both_ways).messages
    costs["cpu.contention"] = max(0.0, each_s - costs["cpu.message"])
    peers = runs["peers"]
    costs["cpu.peer"] = _cpu_s(peers, ALLGATHER) / _gathered(peers).messages
    costs |= _cut_through(runs["cut-through-few"], runs["cut-through"], runs["cut-through-bytes"])
    costs |= _formation(runs["formation"], costs)
    costs["root.check_in"] = _check_in_s(runs["root"])
    if "libnccl" in runs:
        costs["root.check_in_libnccl"] = _check_in_s(runs["libnccl"])
    costs["cores.used_gathering"] = _gathering_share(runs["lockstep"])
    costs |= {f"loop.{name}": seconds for name, seconds in observed.iterations_s.items()}
    return {name: costs[name] for name in COSTS if name in costs}


def _lockstep(small: RunResult, large: RunResult) -> dict[str, float]:
    """Of a message, whose 28 bytes are taken for none; of a byte."""
    message_s = _cpu_s(small, RING) / _gathered(small).messages
    moved = _gathered(large)
    byte_s = (_cpu_s(large, RING) - moved.messages * message_s) / moved.sent_bytes
    return {"cpu.message": message_s, "cpu.byte": max(0.0, byte_s)}


def _cut_through(few: RunResult, small: RunResult, large: RunResult) -> dict[str, float]:
    """Of three AllGathers, the second with more steps than the first, the third with larger records
    than the second. A rank reads once for the most part, and forwards: but blocks come one by one
    where they enter a worker.
    """
    few_s, small_s, large_s = (_cpu_s(run, RING) for run in (few, small, large))
    few_bytes, small_bytes, large_bytes = (_gathered(run).sent_bytes for run in (few, small, large))
    byte_s = max(0.0, (large_s - small_s) / (large_bytes - small_bytes))
    more_blocks = _entering(small) - _entering(few)
    more_s = small_s - few_s - (small_bytes - few_bytes) * byte_s
    block_s = max(0.0, more_s / more_blocks)
    rank_s = (few_s - few_bytes * byte_s - _entering(few) * block_s) / _nranks(few)
    return {
        "cpu.cut_through": max(0.0, rank_s),
        "cpu.cut_through_block": block_s,
        "cpu.cut_through_byte": byte_s,
    }


def _entering(run: RunResult) -> int:
    """Blocks that enter a worker."""
    assert run.workers is not None
    return run.workers * (run.allgathers[-1].steps or 0)


def _formation(run: RunResult, costs: Mapping[str, float]) -> dict[str, float]:
    n, work, store = _nranks(run), run.work.ranks, run.work.store
    assert work is not None and store is not None and run.formation is not None
    forming_s = _forming_s(run)
    messages = (work.messages or 0) - _gathered(run).messages
    known_s = (work.connections or 0) * costs["cpu.connect"] + n * costs["cpu.accept"]
    known_s += messages * costs["cpu.message"]
    all_s = forming_s + (store.cpu_s or 0.0)
    return {
        "cpu.rank": max(0.0, (forming_s - known_s) / n),
        "store.request": (store.cpu_s or 0.0) / (store.requests or 1),
        "cores.used_forming": _share(run, all_s, run.formation.seconds or 0.0),
    }


def _forming_s(run: RunResult) -> float:
    """CPU of the ranks while they formed, the event loop's included."""
    outside = _cpu_s(run, "bootstrap.barrier") + _cpu_s(run, RING)
    return _cpu_s(run, "bootstrap") + _cpu_s(run, "loop") - outside


def _check_in_s(run: RunResult) -> float:
    assert run.work.root is not None
    return (run.work.root.cpu_s or 0.0) / _nranks(run)


def _gathering_share(run: RunResult) -> float:
    return _share(run, _cpu_s(run, RING), run.allgathers[0].seconds or 0.0)


def _share(run: RunResult, cpu_s: float, wall_s: float) -> float:
    """Of the cores' time."""
    assert run.environment is not None
    return min(1.0, cpu_s / (wall_s * run.environment.cores)) if wall_s else 0.0


def _gathered(run: RunResult) -> Traffic:
    """What all ranks sent in its last AllGather."""
    assert run.spec is not None
    n, gather = _nranks(run), plan_of(run.spec).gathers[-1]
    rounds = gather.rounds(n, run.spec.steps)
    each = gather.schedule.traffic(n, rounds, gather.record_bytes)
    return Traffic(*(n * count for count in each))


def _nranks(run: RunResult) -> int:
    assert run.nranks is not None
    return run.nranks


def _cpu_s(run: RunResult, name: str) -> float:
    phase = next((each for each in run.phases if each.name == name), Phase(name=name))
    return phase.cpu_s or 0.0


class Range(NamedTuple):
    """Of the repeats."""

    value: float
    """Their median."""
    low: float
    high: float


def over_repeats(repeats: Sequence[Mapping[str, float]]) -> dict[str, Range]:
    """By name, of the costs that all repeats have."""
    ranges = {}
    for name in COSTS:
        if all(name in costs for costs in repeats):
            each = [costs[name] for costs in repeats]
            ranges[name] = Range(statistics.median(each), min(each), max(each))
    return ranges


SPREAD = 0.3
"""Of the median, above which a value's repeats lie far apart."""


def far_apart(ranges: Mapping[str, Range]) -> list[str]:
    """Those whose repeats do."""
    return [
        name for name, each in ranges.items() if each.high - each.low > SPREAD * max(each.value, 0)
    ]
