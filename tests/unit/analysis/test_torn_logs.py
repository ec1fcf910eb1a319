"""Whole jobs in one stream: however lines are mixed and torn, no rank gets another one's numbers,
and where none is torn, none is lost.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.analysis.init_phases import describe
from tests.unit.analysis.logs import bootstrap, complete, init, log_of, phase, start

Times = tuple[str, ...]


class Job:
    """Ranks of one communicator on two hosts, one of which arrives late at the bootstrap."""

    def __init__(self, chance: random.Random) -> None:
        self.nranks = chance.choice((4, 8, 16))
        self.late = chance.randrange(self.nranks)
        self.late_s = chance.uniform(0.3, 3.0)
        self.inits: dict[int, Times] = {}
        self.bootstraps: dict[int, Times] = {}
        arrivals = [chance.uniform(0, 0.001) for _ in range(self.nranks)]
        arrivals[self.late] = self.late_s
        self.threads = [self._rank(chance, rank, arrivals) for rank in range(self.nranks)]

    def _rank(self, chance: random.Random, rank: int, arrivals: list[float]) -> list[str]:
        """All leave the AllGather together; recv lasts until the next rank has checked in."""
        total = self.late_s + 0.05 + chance.uniform(0, 0.002) - arrivals[rank]
        following = arrivals[(rank + 1) % self.nranks]
        recv = max(0.0003, following - arrivals[rank]) + chance.uniform(0, 0.0003)
        send, gap = chance.uniform(0.0001, 0.0002), chance.uniform(0.0005, 0.001)
        ring = max(0.0001, total - recv - send - gap - 0.00005)
        waits = tuple(f"{each:.6f}" for each in (total, 0.00005, send, recv, ring, 0.0))
        kernels, alloc = chance.uniform(0.33, 0.36), chance.uniform(0.05, 0.2)
        parts = (kernels, alloc, total, 0.01, chance.uniform(0.1, 0.12), 0.02, 0.11, 0.01)
        times = tuple(f"{each:.2f}" for each in (sum(parts), *parts))
        self.bootstraps[rank], self.inits[rank] = waits, times
        prefix = f"node{rank % 2}:{100 + rank}:{200 + rank} [{rank}]"
        text = f"{prefix} NCCL INFO NCCL version 2.27.3+cuda12.9\n"
        text += start(prefix, rank, self.nranks, "0xabc")
        text += bootstrap(prefix, waits[0], " ".join(waits[1:]))
        text += f"{prefix} NCCL INFO Using network IB\n"
        text += complete(prefix, rank, self.nranks, "0xabc")
        text += init(prefix, rank, self.nranks, times[0], " ".join(times[1:]))
        return text.splitlines()

    def lines(self, chance: random.Random) -> list[str]:
        """Of all threads, each one's in order."""
        threads = [list(thread) for thread in self.threads]
        lines = []
        while threads := [thread for thread in threads if thread]:
            lines.append(chance.choice(threads).pop(0))
        return lines


def torn(chance: random.Random, lines: list[str], at: str | None) -> str:
    """Some lines in two pieces, the second some lines later; half of the first without a newline.
    Most buffers end anywhere; `at` has them end behind this word.
    """
    text, tails = "", list[str]()
    for line in lines:
        while tails and chance.random() < 0.4:
            text += tails.pop(chance.randrange(len(tails))) + "\n"
        if chance.random() < 0.15:
            cut = line.find(at) + len(at) if at and at in line else chance.randrange(1, len(line))
            text += line[:cut] + chance.choice(("", "\n"))
            tails.append(line[cut:])
        else:
            text += line + "\n"
    return text + "\n".join(tails)


# The same jobs each time: among numbers as near to each other as these are, two halves may fit by
# chance once in many thousand logs.
@settings(derandomize=True, max_examples=400)
@given(st.integers(0, 2**32), st.sampled_from((None, "alloc ", "send ", "total ")))
def test_no_rank_gets_another_ones_numbers(seed: int, at: str | None) -> None:
    chance = random.Random(seed)
    job = Job(chance)
    for communicator in log_of(torn(chance, job.lines(chance), at)).finish():
        if communicator.nranks is None:
            continue
        assert communicator.nranks == job.nranks
        for rank, member in communicator.members.items():
            if member.init is not None and member.init.whole:
                times = (member.init.total, *member.init.parts.values())
                assert times == tuple(map(float, job.inits[rank]))
            if member.bootstrap is not None and member.bootstrap.whole:
                waits = (member.bootstrap.total, *member.bootstrap.parts.values())
                assert waits == tuple(map(float, job.bootstraps[rank]))


@given(st.integers(0, 2**32))
def test_none_is_lost_where_none_is_torn_and_the_late_rank_is_found(seed: int) -> None:
    chance = random.Random(seed)
    job = Job(chance)
    (found,) = describe(log_of("\n".join(job.lines(chance))).finish())
    assert (found.nranks, found.seen, found.incomplete) == (job.nranks, job.nranks, 0)
    assert {each.ranks for each in found.phases} == {job.nranks}
    assert [late.rank for late in found.late] == [job.late]
    assert found.late[0].late_s == pytest.approx(job.late_s, abs=0.005)
    assert phase(found, "total").max_s == max(float(times[0]) for times in job.inits.values())


@given(st.integers(0, 2**32))
def test_a_late_rank_is_named_without_its_file(seed: int) -> None:
    chance = random.Random(seed)
    job = Job(chance)
    files = ["\n".join(thread) for rank, thread in enumerate(job.threads) if rank != job.late]
    (found,) = describe(log_of(*files).finish())
    assert [(late.rank, late.seen) for late in found.late] == [(job.late, False)]
