"""Times and sizes as people write them on the command line, in seconds and bytes.

Exact where the text is: `50us` is the float nearest to 50/1,000,000, `64KiB` is 65,536 and never
65,535.999. What is negative, infinite, fractional bytes or not a number is a UsageError that says
what would be accepted. Knows no flag and prints nothing.
"""

import re
from fractions import Fraction

from emucoll.errors import UsageError
from harness.skew import LateRanks, NormalSkew, StartSkew, UniformSkew

MOST_RANKS_NAMED = 10_000

TIME_UNITS: dict[str, Fraction] = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "min": Fraction(60),
    "h": Fraction(3600),
}
"""Seconds in one of each."""

SIZE_UNITS: dict[str, Fraction] = {
    "B": Fraction(1),
    "kB": Fraction(10**3),
    "MB": Fraction(10**6),
    "GB": Fraction(10**9),
    "TB": Fraction(10**12),
    "KiB": Fraction(2**10),
    "MiB": Fraction(2**20),
    "GiB": Fraction(2**30),
    "TiB": Fraction(2**40),
}
"""Bytes in one of each."""

_LATE_RANK = re.compile(r"(?P<rank>\d{1,10})=(?P<time>.+)", re.ASCII)
_LARGEST_SIZE = 2**63 - 1
# The lengths are bounded because the exact value of 1e999999999 would not fit this machine.
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<number>(?:\d{1,40}\.?\d{0,40}|\.\d{1,40})(?:e[+-]?\d{1,3})?)"
    r"\s*(?P<unit>[A-Za-zµμ]*)",
    re.ASCII | re.IGNORECASE,
)


def parse_time(text: str) -> float:
    """Seconds in `text`: `50us`, `5ms`, `10s`, `5min`, `1h`; a bare number is seconds.

    Raises UsageError.
    """
    expected = "a time such as 50us, 5ms, 10s, 5min or 1h (a bare number is seconds)"
    number, unit = _split(text, expected)
    unit = unit.replace("µ", "u").replace("μ", "u") or "s"
    if unit not in TIME_UNITS:
        raise UsageError(
            f"{text!r}: no unit {unit!r}, expected {expected}; units are {', '.join(TIME_UNITS)}"
        )
    try:
        return float(number * TIME_UNITS[unit])
    except OverflowError:
        raise UsageError(f"{text!r} is too long: expected {expected}") from None


def format_time(seconds: float) -> str:
    """A text that `parse_time` reads as `seconds`, to six digits, with the unit that suits it."""
    units = ("s", "ms", "us", "ns")
    unit = next((each for each in units if seconds >= TIME_UNITS[each]), "ns")
    return f"{seconds / float(TIME_UNITS[unit]):.6g}{unit}"


def parse_hop_delay(text: str) -> tuple[float, float | None]:
    """`5ms` or `5ms,intra-host=500us`: seconds between hosts, and within one if that differs.

    Raises UsageError.
    """
    between, *rest = (part.strip() for part in text.split(","))
    within: float | None = None
    for part in rest:
        name, _, value = part.partition("=")
        if name.strip() != "intra-host" or not value or within is not None:
            raise UsageError(f"{text!r}: expected a time, or one as in 5ms,intra-host=500us")
        within = parse_time(value)
    return parse_time(between), within


def parse_start_skew(text: str) -> StartSkew:
    """`uniform:5s`, `normal:2s:500ms` (mean, standard deviation) or `ranks:7=20s,9=1s`.

    Raises UsageError.
    """
    kind, _, rest = text.partition(":")
    values = [part.strip() for part in rest.split(":")]
    if kind == "uniform" and len(values) == 1 and values[0]:
        return UniformSkew(high_s=parse_time(values[0]))
    if kind == "normal" and len(values) == 2:
        mean, deviation = values
        return NormalSkew(mean_s=parse_time(mean), deviation_s=parse_time(deviation))
    pairs = [_LATE_RANK.fullmatch(part.strip()) for part in rest.split(",")]
    found = [match for match in pairs if match is not None]
    if kind != "ranks" or len(found) < len(pairs):
        raise UsageError(
            f"{text!r}: expected uniform:T, normal:MEAN:DEVIATION or ranks:RANK=T,…, as in "
            "uniform:5s, normal:2s:500ms or ranks:7=20s,9=1s"
        )
    late_s = {int(match["rank"]): parse_time(match["time"]) for match in found}
    if len(late_s) < len(found):
        raise UsageError(f"{text!r}: a rank is named twice")
    return LateRanks(late_s=late_s)


_RANKS = re.compile(r"(?P<first>\d{1,9})(?:-(?P<last>\d{1,9}))?", re.ASCII)


def parse_ranks(text: str) -> tuple[int, ...]:
    """`3,7-9`: ranks in ascending order. Raises UsageError."""
    ranks: list[int] = []
    for part in text.split(","):
        match = _RANKS.fullmatch(part.strip())
        if match is None:
            raise UsageError(f"{text!r}: expected ranks and ranges of them, as in 3,7-9")
        first = int(match["first"])
        last = first if match["last"] is None else int(match["last"])
        if last < first or last - first >= MOST_RANKS_NAMED:
            raise UsageError(f"{text!r}: {part} is no range of at most {MOST_RANKS_NAMED} ranks")
        ranks += range(first, last + 1)
    if len(set(ranks)) < len(ranks):
        twice = next(rank for rank in ranks if ranks.count(rank) > 1)
        raise UsageError(f"{text!r}: rank {twice} is named twice")
    return tuple(sorted(ranks))


def parse_size(text: str) -> int:
    """Bytes in `text`: `28`, `64KiB`, `1MiB`, `4GB`, `1.5kB`; kB, MB … are powers of 1,000.

    Raises UsageError.
    """
    expected = "a size such as 28, 64KiB, 1MiB or 4GB (a bare number is bytes)"
    number, unit = _split(text, expected)
    unit = "kB" if unit == "KB" else unit or "B"
    if unit not in SIZE_UNITS:
        raise UsageError(
            f"{text!r}: no unit {unit!r}, expected {expected}; units are {', '.join(SIZE_UNITS)}"
        )
    size = number * SIZE_UNITS[unit]
    if size.denominator != 1:
        raise UsageError(
            f"{text!r} is {float(size):g} bytes, not a whole number of them: expected {expected}"
        )
    if size > _LARGEST_SIZE:
        raise UsageError(f"{text!r} is more than {_LARGEST_SIZE} bytes: expected {expected}")
    return size.numerator


def parse_bandwidth(text: str) -> int:
    """Bytes per second in `text`: `2TB/s`, `500GB/s`. Raises UsageError."""
    size, slash, per = text.rpartition("/")
    if not slash or per.strip() != "s":
        raise UsageError(f"{text!r}: expected bytes a second, as in 2TB/s or 500GB/s")
    return parse_size(size)


def parse_counts(text: str) -> tuple[int, ...]:
    """`8192,98304`: whole numbers in their order. Raises UsageError."""
    parts = [part.strip() for part in text.split(",")]
    if not all(re.fullmatch(r"[+-]?\d{1,18}", part, re.ASCII) for part in parts):
        raise UsageError(f"{text!r}: expected whole numbers, as in 16384,98304")
    counts = tuple(map(int, parts))
    if len(set(counts)) < len(counts):
        twice = next(count for count in counts if counts.count(count) > 1)
        raise UsageError(f"{text!r}: {twice} is named twice")
    return counts


def parse_names(text: str) -> tuple[str, ...]:
    """`ncclx,nccl-2.30.7`: names in their order. Raises UsageError."""
    names = tuple(name.strip() for name in text.split(","))
    if not all(names):
        raise UsageError(f"{text!r}: expected names, as in ncclx,nccl-2.30.7")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UsageError(f"{text!r}: {twice} is named twice")
    return names


def parse_time_or_auto(text: str) -> float | str:
    """A time, or `auto`. Raises UsageError."""
    return "auto" if text.strip() == "auto" else parse_time(text)


def _split(text: str, expected: str) -> tuple[Fraction, str]:
    """The number, exactly, and the unit as written."""
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise UsageError(f"{text!r} is not {expected}")
    number = Fraction(match["number"])
    if match["sign"] == "-" and number:
        raise UsageError(f"{text!r} is negative: expected {expected}")
    return number, match["unit"]
