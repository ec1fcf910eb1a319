"""`emucoll doctor` as text: a line a limit, then what does not fit and what to do, then the
estimate.
"""

from harness.preflight.arithmetic import Layout, refusal
from harness.report.table import align, wrapped
from harness.results.schema import DoctorResult


def render_doctor(result: DoctorResult, layout: Layout) -> str:
    """The whole report, plain text."""
    window = (
        "all ranks start together"
        if layout.window is None
        else f"{layout.window} in formation at once per worker"
    )
    lines = [f"# {layout.nranks} ranks on {layout.workers} workers; {window}", "#"]
    rows = [("limit", "have", "need", "")]
    for limit in layout.limits:
        verdict = (
            "ok"
            if limit.ok
            else "REFUSED"
            if limit.refuses
            else "warning"
            if limit.severity == "warn"
            else "note"
        )
        have = "unknown" if limit.have is None else f"{limit.have:,.0f}"
        unit = f" {limit.unit}" if limit.unit else ""
        rows.append((limit.name, f"{have}{unit}", f"{limit.need:,.0f}{unit}", verdict))
    lines += align(rows)
    for limit in layout.limits:
        if not limit.ok and not limit.refuses:
            lines += ["#", f"# {limit.name}: {limit.because}", f"#   remedy: {limit.remedy}"]
    lines.append("#")
    if not layout.fits:
        lines += [f"# {line}" for line in refusal(layout).splitlines()]
        return "".join(f"{line}\n" for line in lines)
    assert result.estimate is not None
    estimate = result.estimate
    lines += [
        f"# projected, not measured: {estimate.because}",
        f"# {estimate.transfers:,} blocks delivered, {estimate.bytes:,} bytes moved, "
        f"{(estimate.memory_bytes or 0) / 2**30:.1f} GiB of memory",
        f"# It fits; with the same flags -np {layout.largest_that_fits} is the most that would.",
    ]
    for warning in result.warnings:
        lines += wrapped(f"WARNING {warning.code}: {warning.text}")
    return "".join(f"{line}\n" for line in lines)
