"""Local work: what it costs is what it does, and compiled code does the same."""

from typing import Any

import numpy as np
import pytest

from emucoll.errors import UsageError
from emucoll.plans.local import (
    NODE_NUMBERING,
    RING_CHECK_BITMAP,
    RING_CHECK_NESTED,
    Data,
    Extent,
    LocalWork,
    compiled,
    duplicate_gpu,
    same_process,
)

WORKS = [
    RING_CHECK_NESTED,
    RING_CHECK_BITMAP,
    NODE_NUMBERING,
    same_process(104),
    duplicate_gpu(144),
]
BY_NAME = {"ids": lambda work: work.code.__name__}
EXTENTS = [Extent(1, 8, 2), Extent(2, 8, 2), Extent(15, 8, 2), Extent(64, 8, 1), Extent(130, 7, 2)]


class Counted:
    """An array that counts how often what is compared in the innermost loop is read."""

    def __init__(self, array: Any, column: int | None = None) -> None:
        self._array = array
        self._column = column
        self.reads = 0

    def __len__(self) -> int:
        return len(self._array)

    def __getitem__(self, at: Any) -> Any:
        self.reads += self._column is None or at[1] == self._column
        return self._array[at]

    def __setitem__(self, at: Any, value: Any) -> None:
        self._array[at] = value


def counted(work: LocalWork, extent: Extent) -> int:
    """Innermost iterations, as reads of the array that they look at."""
    data = list(work.data(extent))
    n, first = extent.nranks, 0
    if work is RING_CHECK_NESTED:  # the walk reads each successor once, the search each place
        data[0], data[1] = walked, searched = Counted(data[0]), Counted(data[1])
        work.code(*data, 0)
        return walked.reads + searched.reads
    if work is RING_CHECK_BITMAP:
        data[0], data[2] = walked, words = Counted(data[0]), Counted(data[2])
        work.code(*data, 0)
        return walked.reads + words.reads - n  # marking reads the word that it changes
    if work is NODE_NUMBERING:
        data[1] = nodes = Counted(data[1])
        work.code(*data, 0)
        return nodes.reads
    data[0] = peers = Counted(data[0], column=first)  # every comparison begins with two hosts
    work.code(*data, 0)
    return peers.reads // 2


@pytest.mark.parametrize("extent", EXTENTS, ids=str)
@pytest.mark.parametrize("work", WORKS, **BY_NAME)
def test_its_cost_is_what_it_does(work: LocalWork, extent: Extent) -> None:
    assert counted(work, extent) == work.iterations(extent)


@pytest.mark.parametrize("work", WORKS, **BY_NAME)
def test_compiled_it_does_what_it_does_as_python(work: LocalWork) -> None:
    """It finds no fault, and leaves the same behind."""
    for extent in EXTENTS:
        for rank in {0, extent.nranks // 2, extent.nranks - 1}:
            machine, python = work.data(extent), work.data(extent)
            work.run(machine, rank, extent)
            assert work.code(*python, rank) == 0
            for one, other in zip(machine, python, strict=True):
                np.testing.assert_array_equal(one, other)


def broken(work: LocalWork, extent: Extent) -> Data:
    """Data with a fault that the loop is there to find."""
    data = work.data(extent)
    if work in (RING_CHECK_NESTED, RING_CHECK_BITMAP):
        data[0][1] = 3  # rank 2 is left out of the ring
    elif work is NODE_NUMBERING:
        data[0][:] = 0  # fewer nodes than there are hosts
    else:
        data[0][7] = data[0][3]  # two ranks of one process, on one GPU
    return data


@pytest.mark.parametrize("work", WORKS, **BY_NAME)
def test_it_finds_what_it_looks_for(work: LocalWork) -> None:
    extent = Extent(24, 8, 2)
    with pytest.raises(ValueError, match="found fault"):
        work.run(broken(work, extent), 5, extent)


def test_node_numbering_numbers_nodes() -> None:
    extent = Extent(20, 8, 1)
    data = NODE_NUMBERING.data(extent)
    NODE_NUMBERING.run(data, 0, extent)
    assert data[1].tolist() == [0, 8, 16]
    assert data[2].tolist() == [rank // 8 for rank in range(20)]


def _not_for_numba(array: Any, rank: int) -> int:
    return len({"no": such}["no"])  # type: ignore[name-defined]  # noqa: F821


def test_code_that_cannot_be_compiled_is_the_users_to_mend() -> None:
    work = LocalWork("mine", "", lambda _: 1, lambda _: (np.zeros(1),), _not_for_numba)
    with pytest.raises(UsageError, match="local work mine: numba cannot compile it"):
        compiled(work)
