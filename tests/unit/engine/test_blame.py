"""Who holds a run up, told from whom every rank waits for."""

import pytest

from emucoll.spans import NO_PEER, PEER_ALL, PEER_ROOT, PEER_STORE
from harness.engine.diagnose import Wait, blame

RING = "bootstrap.ring"
KEY = "bootstrap.get_key"
BARRIER = "bootstrap.barrier"
NEVER = "never-started"


def waits(*each: tuple[str, int]) -> list[Wait]:
    """Rank r is in that phase and waits for that peer."""
    return [Wait(rank, phase, peer, rank % 2) for rank, (phase, peer) in enumerate(each)]


def test_nobody_waits() -> None:
    assert blame([]) is None
    assert blame(waits(("loop", NO_PEER), ("loop", NO_PEER))) is None


def test_everybody_at_the_barrier_blames_no_rank() -> None:
    assert blame(waits(*[(BARRIER, PEER_ALL)] * 5)) is None


@pytest.mark.parametrize("silent", range(6))
def test_a_rank_that_never_started(silent: int) -> None:
    """Rank r waits for the key of r + 1, or has formed; who is linked to the dead one does not."""
    n = 6
    ranks = [(BARRIER, PEER_ALL)] * n
    ranks[silent] = (NEVER, NO_PEER)
    ranks[silent - 1] = (KEY, silent)
    ranks[(silent + 1) % n] = ("bootstrap.accept", silent)
    culprit = blame(waits(*ranks))
    assert culprit is not None
    assert (culprit.rank, culprit.phase) == (silent, NEVER)


def test_a_rank_that_never_started_and_that_nobody_waits_for() -> None:
    culprit = blame(waits((BARRIER, PEER_ALL), (NEVER, NO_PEER), (BARRIER, PEER_ALL)))
    assert culprit is not None
    assert culprit.rank == 1


def test_a_long_chain_ends_at_its_last() -> None:
    chain = [(KEY, rank + 1) for rank in range(999)]
    culprit = blame(waits(*chain, ("bootstrap.create_store", PEER_STORE)))
    assert culprit is not None
    assert (culprit.rank, culprit.peer) == (999, PEER_STORE)


def test_a_rank_that_waits_for_the_root() -> None:
    culprit = blame(
        waits(("bootstrap.recv", 1), ("bootstrap.send", PEER_ROOT), (BARRIER, PEER_ALL))
    )
    assert culprit is not None
    assert culprit.rank == 1


def test_a_rank_that_never_started_goes_before_one_that_is_more_waited_for() -> None:
    culprit = blame(
        waits(
            ("bootstrap.recv", 3), ("bootstrap.recv", 3), ("bootstrap.recv", 4),
            ("bootstrap.send", PEER_ROOT), (NEVER, NO_PEER),
        )
    )  # fmt: skip
    assert culprit is not None
    assert culprit.rank == 4


def test_who_is_at_the_barrier_is_not_to_blame() -> None:
    """Rank 2 has formed, and is still waited for; rank 3 is stuck in work of its own."""
    culprit = blame(
        waits(("bootstrap.connect", 2), (KEY, 3), (BARRIER, PEER_ALL), ("bootstrap", NO_PEER))
    )
    assert culprit is not None
    assert culprit.rank == 3


def test_a_circle_names_one_of_it() -> None:
    culprit = blame(waits(("loop", NO_PEER), ("x", 2), ("x", 3), ("x", 1)))
    assert culprit is not None
    assert culprit.rank in (1, 2, 3)


def test_in_a_circle_the_most_waited_for() -> None:
    culprit = blame(waits(("x", 1), ("x", 2), ("x", 0), ("x", 1), ("x", 1)))
    assert culprit is not None
    assert culprit.rank == 1


def test_a_slow_rank_of_a_gather_is_waited_for_and_waits_for_nobody() -> None:
    ranks = [(RING, (rank - 1) % 6) for rank in range(6)]
    ranks[4] = (RING, NO_PEER)
    culprit = blame(waits(*ranks))
    assert culprit is not None
    assert culprit.rank == 4


def test_a_rank_that_connects_to_itself() -> None:
    assert blame(waits((KEY, 0))) is None


def test_a_peer_of_a_worker_that_did_not_answer() -> None:
    """Rank 7 is not among those who told."""
    culprit = blame(waits((KEY, 1), (KEY, 7)))
    assert culprit is not None
    assert (culprit.rank, culprit.peer) == (1, 7)


def test_a_rank_that_keeps_everybody_from_a_root_that_collects() -> None:
    """Nobody waits for it by name."""
    ranks = [("bootstrap.recv", PEER_ALL)] * 6
    ranks[4] = ("bootstrap.create", NO_PEER)
    culprit = blame(waits(*ranks))
    assert culprit is not None
    assert culprit.rank == 4


def test_a_stagger_that_takes_too_long_ends_at_its_last() -> None:
    ranks = [("bootstrap.recv", PEER_ALL)] * 3 + [("bootstrap.delay", NO_PEER)] * 3
    culprit = blame(waits(*ranks))
    assert culprit is not None
    assert culprit.rank == 5
