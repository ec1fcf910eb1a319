"""Messages, bytes, connections and requests are what the protocols say, exactly, in every world."""

from itertools import cycle, islice

import pytest

from emucoll.collectives import ALLGATHERS
from emucoll.formation import FORMATIONS
from emucoll.p2p import OPENING_BYTES
from emucoll.plans.steps import one_allgather
from emucoll.wire.nccl import HELLO_BYTES
from tests.agreement.measure import Counts, expected, form, gather, measure
from tests.worlds import Sent, World

CASES = [(1, 28), (2, 0), (3, 1), (5, 120), (8, 2320), (15, 28), (64, 120), (257, 28)]
"""Ranks and bytes of a record."""


MOST = max(len(FORMATIONS), len(ALLGATHERS))
PAIRS = list(islice(zip(cycle(FORMATIONS), cycle(ALLGATHERS), strict=False), MOST))
"""What is sent while the ring forms does not depend on what follows: every name once is enough."""


@pytest.mark.parametrize(("formation", "allgather"), PAIRS)
@pytest.mark.parametrize(("n", "record_bytes"), CASES)
async def test_every_count_is_the_formula(
    world: World, formation: str, allgather: str, n: int, record_bytes: int
) -> None:
    counts = await measure(world, formation, allgather, n, record_bytes)
    assert counts == expected(formation, allgather, n, record_bytes)


@pytest.mark.parametrize(
    ("n", "nroots"), [(1, 1), (2, 2), (3, 2), (8, 8), (15, 4), (64, 3), (257, 1), (257, 16)]
)
async def test_every_count_with_several_roots(world: World, n: int, nroots: int) -> None:
    counts = await measure(world, "nccl-multiroot", "ring-pipelined", n, 28, nroots)
    assert counts == expected("nccl-multiroot", "ring-pipelined", n, 28, nroots)


def test_the_formula_by_hand() -> None:
    """Three ranks: NCCL's ring, 28-byte records, counted on paper."""
    assert expected("nccl-root", "ring", 3, 28) == Counts(
        forming=Sent(9, 3 * (12 + 4 + 176 + 12), 6),
        gathering=Sent(12, 6 * (4 + 28), 0),
        server=Sent(6, 3 * (12 + 4 + 128), 3),
        requests=0,
        served=0,
    )
    assert expected("nccl-root-2.22", "ring", 3, 28) == Counts(
        forming=Sent(9, 3 * (12 + 4 + 64 + 12), 6),
        gathering=Sent(12, 6 * (4 + 28), 0),
        server=Sent(6, 3 * (12 + 4 + 28), 3),
        requests=0,
        served=0,
    )
    assert expected("nccl-multiroot", "ring", 3, 28, 2) == Counts(
        forming=Sent(9 + 4, 3 * (12 + 4 + 176 + 12) + 2 * (12 + 4 + 176), 6 + 2),
        gathering=Sent(12, 6 * (4 + 28), 0),
        server=Sent(6, 3 * (12 + 4 + 128), 3),
        requests=0,
        served=0,
    )
    key = len("/bootstrapAddr-agreement-0")
    assert expected("tcpstore", "ring-pipelined", 3, 28) == Counts(
        forming=Sent(18, 3 * (5 + 5 + 17 + key + 28 + 17 + key + 9 + key + 12), 6),
        gathering=Sent(6, 6 * 28, 0),
        server=Sent(9, 3 * (4 + 1 + 36), 0),
        requests=15,
        served=15,
    )


@pytest.mark.parametrize("allgather", ALLGATHERS)
@pytest.mark.parametrize("record_bytes", [0, 1, 28, 5000, 1 << 20])
async def test_a_schedules_traffic_is_what_is_sent(
    world: World, allgather: str, record_bytes: int
) -> None:
    n = 5
    formed = await form(world, FORMATIONS["tcpstore"], n)
    before = world.sent(formed.ranks_network)
    wrong = await gather(formed, allgather, record_bytes)
    after = world.sent(formed.ranks_network)
    schedule = ALLGATHERS[allgather]
    steps = one_allgather(FORMATIONS["tcpstore"], schedule, record_bytes, n).gathers
    traffics = [
        step.schedule.traffic(n, step.schedule.rounds(n), step.record_bytes) for step in steps
    ]
    opened = after.connections - before.connections
    assert opened == (n * len(schedule.peers(n)) if record_bytes else 0)
    messages = sum(traffic.messages for traffic in traffics)
    sent_bytes = sum(traffic.sent_bytes for traffic in traffics)
    assert after.messages - before.messages == n * messages + 2 * opened
    assert after.bytes - before.bytes == n * sent_bytes + (HELLO_BYTES + OPENING_BYTES) * opened
    assert all(traffic.blocks == n - 1 for traffic in traffics)
    assert wrong.count == 0
