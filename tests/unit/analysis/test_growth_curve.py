import pytest

from harness.analysis.growth_curve import curve


@pytest.mark.parametrize(
    ("law", "at"),
    [
        ("n²", lambda n: 3 + 2 * n**2),
        ("n", lambda n: 5 + n),
        ("constant", lambda n: 7.0),
        ("none fits", lambda n: n**1.5),
    ],
)
def test_a_line_goes_through_both_ends_in_the_shape_of_its_law(law: str, at: object) -> None:
    assert callable(at)
    line = curve(law, (64, at(64)), (4096, at(4096)))
    assert line is not None
    sizes, values = line
    assert (sizes[0], sizes[-1]) == pytest.approx((64, 4096))
    assert values == pytest.approx([at(n) for n in sizes])


@pytest.mark.parametrize(
    ("largest", "target"), [((64, 1.0), (64, 1.0)), ((64, 0.0), (128, 1.0)), ((64, 1.0), (128, 0))]
)
def test_no_line_where_none_leads(largest: tuple[int, float], target: tuple[int, float]) -> None:
    assert curve("n", largest, target) is None
