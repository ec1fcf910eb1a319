"""The steps of an initialization, counted."""

import pytest

from emucoll.collectives import ALLGATHERS
from emucoll.formation import FORMATIONS
from emucoll.plans.steps import MOST_COUNTED, RING, Gather, one_allgather
from emucoll.wire.address import ADDRESS_BYTES


def gathers(allgather: str, n: int) -> tuple[Gather, ...]:
    return one_allgather(FORMATIONS["tcpstore"], ALLGATHERS[allgather], 120, n).gathers


@pytest.mark.parametrize(
    ("allgather", "n", "hops"),
    [
        ("ring", 8, 14),
        ("ring-bidir", 8, 11),
        ("ring-bidir", 9, 12),
        ("ring-bidir-headerless", 8, 4),
        ("ring-pipelined", 8, 7),
        ("bruck", 8, 3),
        ("ring", 1, 0),
    ],
)
def test_hops_are_the_messages_that_wait_for_each_other(allgather: str, n: int, hops: int) -> None:
    assert gathers(allgather, n)[-1].hops(n, None) == hops


def test_hops_of_as_many_ranks_as_there_could_be_are_counted_at_once() -> None:
    n = (1 << 31) - 1
    assert gathers("ring", n)[-1].hops(n, None) == 2 * MOST_COUNTED + (n - 1 - MOST_COUNTED)


def test_a_limit_of_steps_leaves_the_addresses_alone() -> None:
    addresses, bruck = gathers("bruck", 100)
    assert (addresses.rounds(100, 2), bruck.rounds(100, 2), bruck.rounds(100, None)) == (99, 2, 7)
    assert (addresses.addresses, addresses.record_bytes) == (((RING, 0),), ADDRESS_BYTES)
    assert (addresses.hops(100, 2), bruck.hops(100, 2)) == (99, 2)


def test_one_rank_has_no_peers_whose_addresses_it_would_need() -> None:
    [gather] = gathers("bruck", 1)
    assert gather.rounds(1, None) == 0
