"""`emucoll validate`: the model beside runs that it did not see."""

import os
from typing import Any

import click

from emucoll.errors import HarnessError, UsageError
from emucoll.loading import look_in
from harness.cli.options import NAMES, complain, failed_document, finish
from harness.report.failure import render_failure
from harness.report.progress import Progress
from harness.validation.spec import REGIMES, ValidateSpec


@click.command("validate")
@click.option(
    "--regime",
    type=NAMES,
    default=REGIMES,
    metavar="R,…",
    help="emulation: ranks share these cores; latency-bound: messages are late [both].",
)
@click.option("--formation", type=NAMES, default=(), metavar="F,…", help="Which formations [all].")
@click.option("--allgather", type=NAMES, default=(), metavar="A,…", help="Which AllGathers [all].")
@click.option("--repeat", type=int, default=5, metavar="K", help="How often all is run [5].")
@click.option(
    "--calibration",
    metavar="NAME|FILE",
    help="Costs that emucoll calibrate measured before [measured in turns with the runs].",
)
@click.option(
    "--published",
    is_flag=True,
    help="Instead of runs: what others published beside what the model says.",
)
@click.option("--out", metavar="FILE", help="Keep the result there.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on stdout (emucoll.validate/1)."
)
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def validate(as_json: bool, quiet: bool, **options: Any) -> None:
    """Check the model: calibrate this machine with few ranks, run more of them, and lay what was
    predicted beside what was measured.

    Exit codes: 0 ok, 2 usage, 3 a run failed, 4 the machine was too busy to tell.
    """
    from harness.engine.calibrate import RunFailed
    from harness.report.validate import render_validate
    from harness.results.codec import to_json
    from harness.results.schema import RunError
    from harness.results.storage import check_file_writable, save_file
    from harness.results.validation import ValidateResult
    from harness.validation.engine import validate as check_model

    look_in(os.getcwd())
    spec: ValidateSpec | None = None
    progress = Progress(enabled=not quiet)
    error: RunError | None = None
    code = 2
    try:
        spec = ValidateSpec(**options)
        if spec.out is not None:
            check_file_writable(spec.out)
        result = check_model(spec, progress)
        if spec.out is not None:
            save_file(to_json(result), spec.out)
    except (UsageError, HarnessError) as failure:
        code = 2 if isinstance(failure, UsageError) else 3
        error = failed_document(failure, None, code).error
    except RunFailed as failure:
        code, error = failure.result.exit_code, failure.result.error
    progress.close()
    if error is not None:
        failed = ValidateResult(spec=spec, ok=False, error=error)
        if not as_json:
            complain(render_failure(failed))
        finish(failed, "", as_json, code)
    finish(result, render_validate(result), as_json, 4 if result.decided is False else 0)
