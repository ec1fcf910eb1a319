"""A schedule of one's own that does not do what it should is told before anything runs."""

from dataclasses import dataclass, replace

import pytest

from emucoll.collectives import ALLGATHERS
from emucoll.collectives.rings import RING, RING_BIDIR_HEADERLESS, Ring
from emucoll.collectives.schedule import NEXT, Exchange, Traffic, Transfer
from emucoll.collectives.sound import mistakes


@pytest.mark.parametrize("allgather", ALLGATHERS)
@pytest.mark.parametrize("n", [1, 2, 3, 8, 9, 64, 257, 1000])
@pytest.mark.parametrize("record_bytes", [0, 28])
def test_all_of_ours_are_sound(allgather: str, n: int, record_bytes: int) -> None:
    assert list(mistakes(ALLGATHERS[allgather], n, record_bytes)) == []


@dataclass(frozen=True)
class _Bare(Ring):
    """The ring without sizes, to be spoilt."""

    def exchanges(self, n: int, step: int) -> tuple[Exchange, ...]:
        return ((Transfer(NEXT, -step, -step - 1),),)


class _NotHeld(_Bare):
    def exchanges(self, n: int, step: int) -> tuple[Exchange, ...]:
        return ((Transfer(NEXT, 5, 4),),)


class _Twice(_Bare):
    def exchanges(self, n: int, step: int) -> tuple[Exchange, ...]:
        return ((Transfer(NEXT, 0, -1),),)


class _Half(_Bare):
    def exchanges(self, n: int, step: int) -> tuple[Exchange, ...]:
        return () if step == 3 else super().exchanges(n, step)


class _Short(_Bare):
    def rounds(self, n: int) -> int:
        return n - 3


class _Negative(_Bare):
    def rounds(self, n: int) -> int:
        return -1


class _Traffic(_Bare):
    def traffic(self, n: int, rounds: int, block_bytes: int) -> Traffic:
        return Traffic(1, 1, 1)


class _Reach(_Bare):
    def reach(self, n: int, rounds: int) -> tuple[int, int]:
        return 1, 0


class _Crossed(_Bare):
    def exchanges(self, n: int, step: int) -> tuple[Exchange, ...]:
        return ((Transfer(NEXT, -step, -step - 2),),)


class _Line(_Bare):
    def exchanges(self, n: int, step: int) -> tuple[Exchange, ...]:
        return ((Transfer(2, -step, -step - 2),),)


class _Lists(_Bare):
    def exchanges(self, n: int, step: int) -> tuple[Exchange, ...]:
        return [[Transfer(NEXT, -step, -step - 1)]]  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        (_NotHeld, "step 0 sends block rank + 5, which the rank has not received before"),
        (_Twice, "after 15 steps a rank of 16 lacks 14 blocks, the first of them rank + 1's"),
        (_Half, "step 4 sends block rank + 12, which the rank has not received before"),
        (_Short, "after 13 steps a rank of 16 lacks 2 blocks"),
        (_Negative, "rounds(16) is -1: expected 0 or more"),
        (
            _Traffic,
            "traffic(16, 15, 28) is Traffic(messages=1, sent_bytes=1, blocks=1): its exchanges say",
        ),
        (_Reach, "reach(16, 15) is (1, 0): all 16 blocks come"),
        (_Crossed, "a rank receives block rank + -2, and rank + -1 sends rank + -1"),
        (_Line, "sends on line 2, which is neither the ring's nor one of peers"),
        (_Lists, "expected a tuple of tuples of Transfer"),
    ],
)
def test_what_is_wrong_is_named(kind: type[_Bare], why: str) -> None:
    schedule = kind("mine", "", "bare", "lockstep")
    found = list(mistakes(schedule, 16, 28))
    assert found, "nothing was found"
    assert why in found[0]


def test_what_is_cut_through_runs_one_way() -> None:
    both = replace(RING_BIDIR_HEADERLESS, flow="cut-through")
    assert "is not the one-way ring's" in next(mistakes(both, 8, 28))
    sized = replace(RING, flow="cut-through")
    assert "is not the one-way ring's" in next(mistakes(sized, 8, 28))
