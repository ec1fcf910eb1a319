"""Who is worth a look."""

import numpy as np

from harness.analysis.notable import name_ranks, natural

TOTALS = np.array([5.0, 1.0, 4.0, 9.0, 2.0, 3.0, 6.0, 7.0, 8.0, 4.5])


def test_without_a_choice() -> None:
    assert name_ranks(range(10), TOTALS, 4, None) == {
        0: "rank 0 (leader of host 0)",
        1: "rank 1 (fastest)",
        3: "rank 3 (slowest)",
        4: "rank 4 (leader of host 1)",
        8: "rank 8 (leader of host 2)",
        9: "rank 9 (median)",
    }


def test_of_a_choice_what_is_known() -> None:
    names = name_ranks(range(10), TOTALS, 1, (7, 3))
    assert list(names.items()) == [(3, "rank 3 (slowest)"), (7, "rank 7")]


def test_ranks_that_ran_elsewhere_are_not_looked_at() -> None:
    ranks = [1, 2, 5, 6, 7]
    names = name_ranks(ranks, np.array([3.0, 1.0, 2.0, 5.0, 4.0]), 2, None)
    assert names == {
        1: "rank 1 (median)",
        2: "rank 2 (fastest, leader of host 1)",
        6: "rank 6 (slowest, leader of host 3)",
    }


def test_one_rank_is_all_of_it() -> None:
    assert name_ranks([0], np.array([1.0]), 8, None) == {
        0: "rank 0 (slowest, median, fastest, leader of host 0)"
    }


def test_numbers_count_as_such() -> None:
    names = ["worker 10", "store", "worker 9", "root", "worker 100"]
    assert sorted(names, key=natural) == ["root", "store", "worker 9", "worker 10", "worker 100"]
