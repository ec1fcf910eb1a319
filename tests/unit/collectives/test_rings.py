"""The rings' schedule, simulated: everybody gets everything once, and sends only what it has."""

import numpy as np
import pytest

from emucoll.collectives import ALLGATHERS
from emucoll.collectives.rings import RING, RING_PIPELINED
from emucoll.collectives.schedule import Line, Part, Schedule

EACH = pytest.mark.parametrize("schedule", ALLGATHERS.values(), ids=ALLGATHERS)


def neighbour(rank: int, line: Line, n: int) -> int:
    return (rank + line.value) % n


@EACH
@pytest.mark.parametrize("n", range(1, 18))
def test_everybody_gets_every_block_once_and_forwards_only_what_it_has(
    schedule: Schedule, n: int
) -> None:
    has = [{rank} for rank in range(n)]
    for step in range(schedule.rounds(n)):
        for exchange in schedule.exchanges(n, step):
            under_way = {}
            for transfer in exchange:
                for rank in range(n):
                    block = transfer.sent_block(rank, n)
                    if transfer.part is Part.DATA:
                        assert block in has[rank], "it sends what it has not got"
                    to = neighbour(rank, transfer.to, n)
                    under_way[to, transfer.to, transfer.part] = block
            for transfer in exchange:
                for rank in range(n):
                    block = transfer.received_block(rank, n)
                    sent = under_way.pop((rank, transfer.to, transfer.part))
                    assert sent == block, "it expects another block than it is sent"
                    assert neighbour(neighbour(rank, transfer.source, n), transfer.to, n) == rank
                    if transfer.part is Part.DATA:
                        assert block not in has[rank], "it got it before"
                        has[rank].add(block)
            assert not under_way
    assert has == [set(range(n))] * n


@EACH
@pytest.mark.parametrize("n", [1, 2, 17, 1000])
def test_an_int_and_an_array_of_ranks_agree(schedule: Schedule, n: int) -> None:
    ranks = np.arange(n, dtype=np.int64)
    for step in {0, 1, n // 2, n - 2} & set(range(schedule.rounds(n))):
        for exchange in schedule.exchanges(n, step):
            for transfer in exchange:
                sent = [transfer.sent_block(rank, n) for rank in range(n)]
                received = [transfer.received_block(rank, n) for rank in range(n)]
                assert transfer.sent_block(ranks, n).tolist() == sent
                assert transfer.received_block(ranks, n).tolist() == received


@EACH
@pytest.mark.parametrize("record_bytes", [0, 1, 28])
def test_traffic_is_what_the_exchanges_add_up_to(schedule: Schedule, record_bytes: int) -> None:
    n = 9
    for rounds in range(schedule.rounds(n) + 1):
        transfers = [
            transfer
            for step in range(rounds)
            for exchange in schedule.exchanges(n, step)
            for transfer in exchange
        ]
        headers = sum(transfer.part is Part.HEADER for transfer in transfers)
        blocks = sum(transfer.part is Part.DATA for transfer in transfers)
        traffic = schedule.traffic(n, rounds, record_bytes)
        assert traffic.blocks == blocks
        assert traffic.messages == headers + (blocks if record_bytes else 0)
        assert traffic.sent_bytes == 4 * headers + record_bytes * blocks


def test_the_ring_announces_sizes_before_data_and_the_pipelined_one_does_not() -> None:
    header, data = RING.exchanges(5, 2)
    assert [transfer.part for transfer in header] == [Part.HEADER]
    assert [transfer.part for transfer in data] == [Part.DATA]
    assert RING_PIPELINED.exchanges(5, 2) == (data,)
    assert (data[0].sent_block(1, 5), data[0].received_block(1, 5)) == (4, 3)
    for name, schedule in ALLGATHERS.items():
        assert schedule.name == name
        assert schedule.rounds(1) == 0
        assert schedule.rounds(98_304) == 98_303
