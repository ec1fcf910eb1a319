import math
import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.errors import UsageError
from harness.suggest import nearest, unknown
from harness.units import (
    SIZE_UNITS,
    TIME_UNITS,
    parse_bandwidth,
    parse_counts,
    parse_names,
    parse_size,
    parse_time,
    parse_time_or_auto,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("50us", 50e-6),
        ("50µs", 50e-6),
        ("5ms", 0.005),
        ("10s", 10.0),
        ("5min", 300.0),
        ("1h", 3600.0),
        ("3ns", 3e-9),
        ("2.5", 2.5),
        (" 7 s ", 7.0),
        ("1e-3", 0.001),
        ("1E3ms", 1.0),
        (".5min", 30.0),
        ("+4", 4.0),
        ("0", 0.0),
        ("-0", 0.0),
    ],
)
def test_a_time_is_the_nearest_float_to_what_was_written(text: str, seconds: float) -> None:
    assert parse_time(text) == seconds


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("28", 28),
        ("0", 0),
        ("64KiB", 65536),
        ("64 KiB", 65536),
        ("1MiB", 2**20),
        ("4GB", 4 * 10**9),
        ("4GiB", 4 * 2**30),
        ("3kB", 3000),
        ("3KB", 3000),
        ("17B", 17),
        ("1.5KiB", 1536),
        ("0.3kB", 300),
        ("1e6", 10**6),
        ("1TiB", 2**40),
        ("9223372036854775807", 2**63 - 1),
    ],
)
def test_a_size_is_exact(text: str, size_bytes: int) -> None:
    assert parse_size(text) == size_bytes


RUBBISH = [
    "",
    " ",
    "s",
    "ten",
    "nan",
    "inf",
    "-inf",
    "1..2",
    "1 2",
    "5 m s",
    "0x10",
    "1_000",
    "1e9999",
    "1e999999999",
    "٣",
    "1\n2",
    "9" * 100,
    "5ms5",
    "1,5",
]


@pytest.mark.parametrize(
    "text", [*RUBBISH, "5m", "5MS", "5sec", "1KiB", "1d", "-1", "-5ms", "1e999h"]
)
def test_what_is_no_time_is_refused_and_the_text_says_what_would_be_one(text: str) -> None:
    with pytest.raises(UsageError, match="10s"):
        parse_time(text)


@pytest.mark.parametrize(
    "text",
    [
        *RUBBISH,
        "1K",
        "1M",
        "1b",
        "1Kb",
        "64kib",
        "5ms",
        "1.5",
        "0.1KiB",
        "-1",
        "-4GB",
        "1e19",
        "9000000TiB",
    ],
)
def test_what_is_no_size_is_refused_and_the_text_says_what_would_be_one(text: str) -> None:
    with pytest.raises(UsageError, match="64KiB"):
        parse_size(text)


def test_an_unknown_unit_is_named_with_all_there_are() -> None:
    with pytest.raises(UsageError, match=r"'5m': no unit 'm'.*us, ms, s, min, h"):
        parse_time("5m")
    with pytest.raises(UsageError, match=r"'1K': no unit 'K'.*kB.*KiB"):
        parse_size("1K")


def test_a_negative_value_is_called_negative() -> None:
    with pytest.raises(UsageError, match="negative"):
        parse_time("-5ms")
    with pytest.raises(UsageError, match="negative"):
        parse_size("-5")


@given(st.integers(0, 2**63 - 1), st.sampled_from(sorted(SIZE_UNITS)))
def test_a_whole_number_of_any_unit_is_exact_or_too_large(number: int, unit: str) -> None:
    size = number * int(SIZE_UNITS[unit])
    if size < 2**63:
        assert parse_size(f"{number}{unit}") == size
    else:
        with pytest.raises(UsageError, match="more than"):
            parse_size(f"{number}{unit}")


@given(st.integers(0, 10**12), st.sampled_from(sorted(TIME_UNITS)))
def test_a_whole_number_of_any_unit_of_time_is_rounded_once(number: int, unit: str) -> None:
    seconds = TIME_UNITS[unit] * number
    assert parse_time(f"{number}{unit}") == seconds.numerator / seconds.denominator


@given(st.text(max_size=20))
def test_any_text_is_a_value_or_a_usage_error(text: str) -> None:
    for parse in (parse_time, parse_size):
        try:
            value = parse(text)
        except UsageError:
            continue
        assert math.isfinite(value)
        assert value >= 0


NAMES = ["tcpstore", "nccl-root"]


@pytest.mark.parametrize(
    ("name", "near"), [("tcpstor", "tcpstore"), ("TCPStore", "tcpstore"), ("ncclroot", "nccl-root")]
)
def test_the_nearest_name_is_suggested_and_all_are_listed(name: str, near: str) -> None:
    assert nearest(name, NAMES) == f"did you mean '{near}'? (there are: nccl-root, tcpstore)"


def test_nothing_is_suggested_where_nothing_comes_near() -> None:
    assert nearest("zzz", NAMES) == "(there are: nccl-root, tcpstore)"
    assert nearest("zzz", []) == "(there are none)"


def test_what_may_follow_a_name_is_suggested_with_it() -> None:
    assert "'nccl-root+more'?" in nearest("nccl-rot+mor", NAMES, "+more")
    assert nearest("nccl-rot", NAMES, "+more").endswith("tcpstore, some with +more)")


def test_a_name_in_capitals_is_suggested_as_it_is_spelt() -> None:
    assert "'Ring'" in nearest("ring", ["Ring", "Bruck"])


def test_the_error_for_an_unknown_name_says_what_it_was_looked_up_as() -> None:
    error = unknown("formation", "tcpstor", NAMES)
    assert isinstance(error, UsageError)
    assert str(error).startswith("no formation is called 'tcpstor': did you mean 'tcpstore'?")


def test_lists_bandwidths_and_auto() -> None:
    assert parse_counts(" 98304, 8,+16") == (98304, 8, 16)
    assert parse_names("ncclx, nccl-2.30.7") == ("ncclx", "nccl-2.30.7")
    assert parse_bandwidth("2TB/s") == parse_bandwidth("2000GB / s") == 2 * 10**12
    assert (parse_time_or_auto("auto"), parse_time_or_auto("5min")) == ("auto", 300.0)


@pytest.mark.parametrize(
    ("parse", "text", "says"),
    [
        (parse_counts, "8;16", "'8;16': expected whole numbers, as in 16384,98304"),
        (parse_counts, "", "'': expected whole numbers"),
        (parse_counts, "8,8.0", "expected whole numbers"),
        (parse_counts, "8,08", "8 is named twice"),
        (parse_names, "a,", "'a,': expected names"),
        (parse_names, "a,b,a", "a is named twice"),
        (parse_bandwidth, "2TB", "expected bytes a second"),
        (parse_bandwidth, "2TB/min", "expected bytes a second"),
        (parse_bandwidth, "TB/s", "'TB' is not a size"),
        (parse_time_or_auto, "best", "'best' is not a time"),
    ],
)
def test_what_they_do_not_take(parse: Callable[[str], object], text: str, says: str) -> None:
    with pytest.raises(UsageError, match=re.escape(says)):
        parse(text)
