"""Whether a schedule brings every rank every block: what verification cannot see, as each byte is
compared with what it should be and not with what was promised.

All ranks follow the same formulas, so one rank's offsets stand for all. Pure.
"""

from collections.abc import Iterator

from emucoll.collectives.schedule import NEXT, PREV, Part, Schedule, Traffic, Transfer

MOST_CHECKED = 1 << 17
"""Rounds that are gone through."""


def mistakes(schedule: Schedule, n: int, record_bytes: int) -> Iterator[str]:
    """What is wrong with it for `n` ranks, the first first."""
    rounds = schedule.rounds(n)
    if not isinstance(rounds, int) or rounds < 0:
        yield f"rounds({n}) is {rounds!r}: expected 0 or more"
        return
    if rounds > MOST_CHECKED or n == 1:
        return
    lines = (NEXT, PREV, *schedule.peers(n))
    held = [{0} for _ in range(max(1, schedule.lanes))]
    blocks = messages = sent_bytes = 0
    for step in range(rounds):
        exchanges = schedule.exchanges(n, step)
        if not isinstance(exchanges, tuple) or not all(
            isinstance(each, tuple) and all(isinstance(one, Transfer) for one in each)
            for each in exchanges
        ):
            yield f"exchanges({n}, {step}) is {exchanges!r}: expected a tuple of tuples of Transfer"
            return
        if schedule.flow == "cut-through":
            one = (Transfer(NEXT, -step, -step - 1),)
            if exchanges != (one,):
                yield (
                    f"step {step} is not the one-way ring's: what is cut through sends block "
                    "rank - step to rank + 1, bare, and nothing else"
                )
                return
        for exchange in exchanges:
            came: list[tuple[int, int]] = []
            for transfer in exchange:
                for mistake in _transfer(transfer, n, lines, len(held)):
                    yield f"step {step}: {mistake}"
                    return
                size = 4 if transfer.part is Part.HEADER else record_bytes * transfer.blocks
                messages, sent_bytes = messages + (size > 0), sent_bytes + size
                if transfer.part is Part.HEADER:
                    continue
                lane = transfer.lane
                for i in range(transfer.blocks):
                    if (transfer.sends + i) % n not in held[lane]:
                        yield (
                            f"step {step} sends block rank + {(transfer.sends + i) % n}, which the "
                            "rank has not received before"
                        )
                        return
                    came.append((lane, (transfer.receives + i) % n))
                blocks += transfer.blocks
            for lane, block in came:
                held[lane].add(block)
    everything = set().union(*held)
    if len(everything) < n:
        first = next(block for block in range(n) if block not in everything)
        yield (
            f"after {rounds} steps a rank of {n} lacks {n - len(everything)} blocks, the first of "
            f"them rank + {first}'s"
        )
    expected = Traffic(messages, sent_bytes, blocks)
    if (said := schedule.traffic(n, rounds, record_bytes)) != expected:
        yield f"traffic({n}, {rounds}, {record_bytes}) is {said!r}: its exchanges say {expected}"
    if (reach := schedule.reach(n, rounds)) and min(n, 1 + sum(reach)) < n:
        yield f"reach({n}, {rounds}) is {reach!r}: all {n} blocks come"


def _transfer(transfer: Transfer, n: int, lines: tuple[int, ...], lanes: int) -> Iterator[str]:
    """What is wrong with one."""
    if transfer.to not in lines:
        yield f"it sends on line {transfer.to}, which is neither the ring's nor one of peers({n})"
    if not 0 <= transfer.lane < lanes:
        yield f"a transfer has lane {transfer.lane}, and there are {lanes}"
    if (transfer.source + transfer.sends - transfer.receives) % n:
        yield (
            f"a rank receives block rank + {transfer.receives}, and rank + {transfer.source} sends "
            f"rank + {transfer.source + transfer.sends}"
        )
