"""One knob, fitted at the smallest size, and what is left over at the others."""

import pytest

from harness.profile import Value
from harness.projection.simulate import Times
from harness.validation.published import Line, carried, contradictions, rows_of

SIZES = (8192, 32768, 98304)


def published(*totals: float) -> dict[str, Value]:
    return {
        f"nccl.{n}": Value(total, total, total, "somebody", "somebody")
        for n, total in zip(SIZES, totals, strict=True)
    }


def line(per_rank: float, high: float = 60.0) -> Line:
    """A total of so much a rank, to which the knob adds itself."""
    low = {n: per_rank * n for n in SIZES}
    return Line(low, {n: total + high for n, total in low.items()}, 0.0, high)


def test_what_the_model_has_is_left_with_no_residual() -> None:
    exact = published(*(3.0 + 1e-3 * n for n in SIZES))
    draws = [line(each) for each in (0.9e-3, 1e-3, 1.1e-3)]
    rows = rows_of("nccl", exact, line(1e-3), draws)
    assert [row.knob_value_s for row in rows] == pytest.approx([3.0] * 3)
    assert [row.residual for row in rows] == pytest.approx([0.0] * 3, abs=1e-12)
    assert all(row.inside for row in rows)
    assert [row.fitted for row in rows] == [True, False, False]
    assert rows[0].low_s == pytest.approx(rows[0].high_s)  # every draw has a knob of its own
    assert rows[2].low_s < rows[2].published_s < rows[2].high_s


def test_a_miss_is_a_miss() -> None:
    rows = rows_of("nccl", published(11.2, 40.0, 300.0), line(1e-3), [line(1e-3)] * 3)
    assert [row.inside for row in rows] == [True, False, False]
    assert rows[2].residual == pytest.approx((98.304 + 11.2 - 8.192) / 300.0 - 1)


def test_a_knob_stays_within_its_range() -> None:
    (row, *_) = rows_of("nccl", published(1.0, 2.0, 3.0), line(1e-3), [line(1e-3)])
    assert (row.knob_value_s, row.projected_s) == (0.0, pytest.approx(8.192))


def test_the_published_loop_over_pairs_contradicts_a_published_total() -> None:
    (text,) = contradictions()
    assert "44.9 s at 98304 ranks, more than all of ncclx (24 s)" in text


def test_parts_change_as_they_did_at_few_ranks() -> None:
    within = {"bootstrap": None, "bootstrap.ring": "bootstrap", "rest": None}
    base = Times(3.0, {"bootstrap": 2.0, "bootstrap.ring": 1.5, "rest": 1.0}, within)
    changed = Times(4.0, {"bootstrap": 3.5, "bootstrap.ring": 3.0, "rest": 1.0}, within)
    large = Times(33.0, {"bootstrap": 20.0, "bootstrap.ring": 18.0, "rest": 10.0}, within)
    # The ring twice as long: 36 + 2 + 10 in the mean, of which the total was 33 / 30.
    assert carried(large, base, changed) == pytest.approx(48.0 * 33 / 30)
