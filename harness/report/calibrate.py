"""What a machine costs as text: `#` lines in the manner of the run's table. Each line that does not
begin with `#` is one value.

Shows what the result holds and computes nothing.
"""

from harness.engine.costs import COSTS
from harness.report.failure import printable
from harness.report.table import align, joined, of_environment, wrapped
from harness.results.calibration import CalibratedValue, CalibrateResult

_SCALES = (("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


def render_calibrate(result: CalibrateResult) -> str:
    """All of it, for stdout; ends with a newline."""
    blocks = [
        _head(result),
        _values(result.values),
        [line for each in result.warnings for line in wrapped(f"WARNING {each.code}: {each.text}")],
        wrapped(
            "What this cannot tell: these are costs of emucoll's ranks, in Python, on this "
            "machine's loopback; NCCL's own are others."
        ),
        wrapped(f"Result: {printable(result.file or '')}"),
    ]
    return joined(blocks)


def _head(result: CalibrateResult) -> list[str]:
    lines = ["# what the emulation costs on this machine: measured"]
    if result.environment is not None:
        lines += wrapped(of_environment(result.environment))
    if result.spec is not None:
        times = "once" if result.spec.repeat == 1 else f"{result.spec.repeat} times, in turns"
        lines += wrapped(
            f"measured {times}; value: the median, low and high: the smallest and the largest"
        )
    return lines


def _values(values: list[CalibratedValue]) -> list[str]:
    head = ("# name", "value", "low", "high", "unit", "how")
    rows: list[tuple[str, ...]] = [head]
    for each in values:
        unit, scale = _scaled(each)
        numbers = (f"{number / scale:.4g}" for number in (each.value, each.low, each.high))
        how = COSTS[each.name].how if each.name in COSTS else ""
        rows.append((f"  {each.name}", *numbers, unit, how))
    # The last columns are text: flush left, as their headings.
    unit_width, how_width = (max(len(row[column]) for row in rows) for column in (4, 5))
    return align(
        [(*row[:4], row[4].ljust(unit_width), row[5].ljust(how_width)) for row in rows], indent=""
    )


def _scaled(each: CalibratedValue) -> tuple[str, float]:
    """The unit that suits a value's size, and what to divide by."""
    per = each.unit.removeprefix("s")
    if not per.startswith("/"):
        return each.unit, 1.0
    name, scale = next((pair for pair in _SCALES if each.value >= pair[1]), _SCALES[-1])
    return f"{name}{per}", scale
