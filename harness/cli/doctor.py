"""`emucoll doctor`: does this run fit this machine, limit by limit, and what would it take?"""

from typing import Any

import click

from emucoll.errors import UsageError
from harness.cli.options import complain, failed_document, finish, make_spec, spec_options
from harness.control.loops import LOOP
from harness.engine.loopback import lay_out, past_deadline
from harness.engine.refuse import refuse_impossible, refuse_missing_worker
from harness.preflight.arithmetic import Layout
from harness.report.doctor import render_doctor
from harness.report.failure import render_failure
from harness.results.environment import read_environment
from harness.results.schema import DoctorResult, Estimate, Limit
from harness.spec import Spec


@click.command("doctor")
@spec_options
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on stdout (schema emucoll.doctor/1)."
)
def doctor(as_json: bool, **options: Any) -> None:
    """Check this machine's limits for a run, without running it. Takes the flags of `run`."""
    spec: Spec | None = None
    try:
        spec = make_spec(options)
        refuse_impossible(spec)
        layout = lay_out(spec)
        refuse_missing_worker(spec, layout)
    except UsageError as error:
        failed = failed_document(error, spec, 2)
        if not as_json:
            complain(render_failure(failed))
        document = DoctorResult(spec=spec, ok=False, error=failed.error, fits=None)
        finish(document, "", as_json, 2)
    result = _result(spec, layout)
    finish(result, render_doctor(result, layout), as_json, 0 if layout.fits else 2)


def _result(spec: Spec, layout: Layout) -> DoctorResult:
    estimates, too_long = layout.estimates, past_deadline(spec, layout)
    limits = [
        Limit(
            name=limit.name,
            have=limit.have,
            need=limit.need,
            because=limit.because,
            remedy=limit.remedy,
            fits=None if limit.have is None else limit.ok,
            severity=limit.severity,
        )
        for limit in layout.limits
    ]
    because = (
        f"start {estimates.start_s:.1f} s + formation {estimates.formation_s:.1f} s + AllGather "
        f"{estimates.allgather_s:.1f} s; between {estimates.low_s:.0f} and {estimates.high_s:.0f} s"
    )
    return DoctorResult(
        kind="projected",
        spec=spec,
        environment=read_environment(LOOP),
        seed=spec.seed,
        ok=layout.fits,
        warnings=[] if too_long is None else [too_long],
        fits=layout.fits,
        limits=limits,
        estimate=Estimate(
            workers=layout.workers,
            start_window=layout.window,
            transfers=estimates.transfers,
            bytes=estimates.moved_bytes,
            low_s=estimates.low_s,
            high_s=estimates.high_s,
            seconds=estimates.start_s + estimates.formation_s + estimates.allgather_s,
            memory_bytes=estimates.memory_bytes,
            because=because,
        ),
    )
