"""The root's bookkeeping: whatever the order, each rank learns its successor once."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.errors import LocalProtocolError, RemoteProtocolError
from emucoll.servers.root_state import CollectingRootState, RootState
from emucoll.wire.address import Address
from emucoll.wire.nccl import CheckIn, check_in_with_previous_root, root_of


def reply_of(rank: int) -> Address:
    return Address("127.0.1.1", rank)


def ring_of(rank: int) -> Address:
    return Address("127.0.2.2", rank)


def check_in(rank: int, nranks: int, nroots: int = 1) -> CheckIn:
    iroot = root_of(rank, nranks, nroots)
    return CheckIn(rank, nranks, iroot, nroots, 0, reply_of(rank), ring_of(rank))


def check_ins(nranks: int, nroots: int) -> list[CheckIn]:
    """Those of all ranks to all roots."""
    own = [check_in(rank, nranks, nroots) for rank in range(nranks)]
    return own + [c for c in map(check_in_with_previous_root, own) if c is not None]


Deliveries = list[tuple[Address, Address]]


def deliver(nranks: int, nroots: int, order: Iterable[CheckIn]) -> Deliveries:
    """Feed the roots of one communicator; returns every delivery of all of them."""
    roots = [RootState(nranks, iroot, nroots) for iroot in range(nroots)]
    due: Deliveries = []
    for c in order:
        due += roots[c.iroot].check_in(c)
    for root in roots:
        assert root.complete
        assert root.received == root.expected
        assert root.finish() == []
        assert not root._ring, "an address was kept that nobody needs"
        assert not root._reply
    return due


def whole_ring(nranks: int) -> Deliveries:
    return sorted((reply_of(rank), ring_of((rank + 1) % nranks)) for rank in range(nranks))


@st.composite
def orders(draw: st.DrawFn) -> tuple[int, int, list[CheckIn]]:
    nranks = draw(st.integers(1, 24))
    nroots = draw(st.integers(1, nranks))
    return nranks, nroots, draw(st.permutations(check_ins(nranks, nroots)))


@given(orders())
def test_every_rank_gets_its_successor_once(case: tuple[int, int, list[CheckIn]]) -> None:
    nranks, nroots, order = case
    assert sorted(deliver(nranks, nroots, order)) == whole_ring(nranks)


@given(orders())
def test_deliveries_come_as_early_as_they_can(case: tuple[int, int, list[CheckIn]]) -> None:
    nranks, nroots, order = case
    if nroots > 1:
        return
    root = RootState(nranks)
    known: set[int] = set()
    for c in order:
        known.add(c.rank)
        due = root.check_in(c)
        previous, following = (c.rank - 1) % nranks, (c.rank + 1) % nranks
        expected = [(previous, c.rank)] * (previous in known - {c.rank})
        expected += [(c.rank, following)] * (following in known)
        assert due == [(reply_of(to), ring_of(about)) for to, about in expected]


def test_one_rank_is_its_own_successor() -> None:
    root = RootState(1)
    assert root.expected == 1
    assert root.check_in(check_in(0, 1)) == [(reply_of(0), ring_of(0))]
    assert root.complete


def test_the_second_of_two_triggers_both() -> None:
    root = RootState(2)
    assert root.check_in(check_in(1, 2)) == []
    assert not root.complete
    assert root.check_in(check_in(0, 2)) == [(reply_of(1), ring_of(0)), (reply_of(0), ring_of(1))]
    assert root.complete


def test_the_predecessor_is_served_before_the_newcomer() -> None:
    root = RootState(3)
    assert root.check_in(check_in(0, 3)) == []
    assert root.check_in(check_in(2, 3)) == [(reply_of(2), ring_of(0))]
    assert root.check_in(check_in(1, 3)) == [(reply_of(0), ring_of(1)), (reply_of(1), ring_of(2))]


def test_one_of_several_roots() -> None:
    """Root 1 of 3 for 10 ranks owns 4, 5 and 6, and is told of 7 as well."""
    root = RootState(10, iroot=1, nroots=3)
    assert root.expected == 4
    extra = check_in_with_previous_root(check_in(7, 10, 3))
    assert extra is not None
    assert root.check_in(check_in(4, 10, 3)) == []
    assert root.check_in(extra) == []
    assert root.check_in(check_in(6, 10, 3)) == [(reply_of(6), ring_of(7))]
    assert root.check_in(check_in(5, 10, 3)) == [
        (reply_of(4), ring_of(5)),
        (reply_of(5), ring_of(6)),
    ]
    assert root.complete


def test_the_last_root_knows_rank_0_as_rank_n() -> None:
    root = RootState(2, iroot=1, nroots=2)
    extra = check_in_with_previous_root(check_in(0, 2, 2))
    assert extra is not None
    assert (extra.rank, extra.iroot) == (2, 1)
    assert root.check_in(extra) == []
    assert root.check_in(check_in(1, 2, 2)) == [(reply_of(1), ring_of(0))]


def test_ranks_in_order_keep_a_handful_of_addresses() -> None:
    """The usual order, thanks to the stagger: a root need not hold what it has forwarded."""
    root = RootState(1000)
    for rank in range(1000):
        root.check_in(check_in(rank, 1000))
        assert len(root._ring) + len(root._reply) <= 2


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"rank": -1}, r"rank -1 .* is not one of 0\.\.3, which root 0 awaits"),
    ({"rank": 4}, r"rank 4 .* is not one of 0\.\.3"),
    ({"nranks": 5}, "of a communicator of 5 ranks, but it is root 0 of 1 of one of 4"),
    ({"rank": 2}, "rank 2 .* has already checked in"),
]
"""By any root of 4 ranks, when rank 2 has checked in."""
REFUSED_SINCE_2_23: list[tuple[dict[str, Any], str]] = [
    ({"nroots": 2}, "takes this for root 0 of 2"),
    ({"iroot": 1}, "takes this for root 1 of 1"),
    ({"offset": 3}, r"offset 3\), which is not emulated"),
]
"""By one that knows of several."""


@pytest.mark.parametrize(("change", "text"), REFUSED + REFUSED_SINCE_2_23)
def test_refusals_change_nothing(change: dict[str, Any], text: str) -> None:
    root = RootState(4)
    root.check_in(check_in(2, 4))
    with pytest.raises(RemoteProtocolError, match=text) as caught:
        root.check_in(check_in(0, 4)._replace(**change))
    assert "NCCL's root quits" in str(caught.value)
    assert root.received == 1
    assert root.check_in(check_in(1, 4)) == [(reply_of(1), ring_of(2))]


def test_the_extra_slot_of_several_roots_is_one_only() -> None:
    root = RootState(10, iroot=1, nroots=3)
    with pytest.raises(RemoteProtocolError, match=r"is not one of 4\.\.7"):
        root.check_in(check_in(4, 10, 3)._replace(rank=8))


def test_a_duplicate_of_a_rank_that_is_done_with_is_noticed() -> None:
    """Where NCCL's own root notices nothing: both of the rank's addresses are already gone."""
    root = RootState(4)
    for rank in (0, 2, 1):
        root.check_in(check_in(rank, 4))
    with pytest.raises(RemoteProtocolError, match="already"):
        root.check_in(check_in(1, 4))


def test_impossible_roots() -> None:
    with pytest.raises(LocalProtocolError):
        RootState(4, iroot=2, nroots=2)


# A root that collects ---------------------------------------------------------------------------


@given(st.integers(1, 24).flatmap(lambda n: st.permutations(range(n))))
def test_a_collecting_root_answers_in_rank_order_at_the_end(order: list[int]) -> None:
    n = len(order)
    root = CollectingRootState(n)
    assert root.expected == n
    for number, rank in enumerate(order):
        assert not root.complete
        assert root.received == number
        assert root.check_in(check_in(rank, n)) == []
    assert root.complete
    assert root.finish() == whole_ring(n)


@pytest.mark.parametrize(("change", "text"), REFUSED)
def test_what_a_collecting_root_refuses_changes_nothing(change: dict[str, Any], text: str) -> None:
    root = CollectingRootState(4)
    root.check_in(check_in(2, 4))
    with pytest.raises(RemoteProtocolError, match=text) as caught:
        root.check_in(check_in(0, 4)._replace(**change))
    assert "NCCL's root quits" in str(caught.value)
    assert root.received == 1
    for rank in (0, 1, 3):
        root.check_in(check_in(rank, 4))
    assert root.finish() == whole_ring(4)
