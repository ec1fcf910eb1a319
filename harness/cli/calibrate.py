"""`emucoll calibrate`: what the emulation costs on this machine."""

from typing import Any, NoReturn

import click

from emucoll.errors import HarnessError, UsageError
from harness.cli.options import complain, failed_document, finish
from harness.report.failure import render_failure
from harness.report.progress import Progress
from harness.results.calibration import CalibrateResult, CalibrateSpec
from harness.results.schema import RunResult


@click.command("calibrate")
@click.option(
    "--name", default="local", metavar="NAME", help="What to call this machine's costs [local]."
)
@click.option(
    "--repeat", type=int, default=5, metavar="K", help="How often everything is measured [5]."
)
@click.option("--out", metavar="FILE", help="Write there [profiles/hosts/NAME.toml].")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON document on stdout (schema emucoll.calibrate/1).",
)
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def calibrate(as_json: bool, quiet: bool, **options: Any) -> None:
    """Measure what connections, messages, bytes, ranks, servers and local loops cost on this
    machine, with at most 1,024 ranks, and write it to a file. About a minute.
    """
    # Engines: only for who measures.
    from harness.engine.calibrate import RunFailed
    from harness.engine.calibrate import calibrate as measure
    from harness.report.calibrate import render_calibrate

    spec = CalibrateSpec(**options)
    progress = Progress(enabled=not quiet)
    try:
        result = measure(spec, progress)
    except RunFailed as error:
        progress.close()
        _fail(spec, error.result, as_json, error.result.exit_code)
    except (UsageError, HarnessError) as error:
        code = 2 if isinstance(error, UsageError) else 3
        progress.close()
        _fail(spec, failed_document(error, None, code), as_json, code)
    progress.close()
    finish(result, render_calibrate(result), as_json, 0)


def _fail(spec: CalibrateSpec, failed: RunResult, as_json: bool, exit_code: int) -> NoReturn:
    if not as_json:
        complain(render_failure(failed))
    document = CalibrateResult(
        spec=spec, environment=failed.environment, ok=False, error=failed.error
    )
    finish(document, "", as_json, exit_code)
