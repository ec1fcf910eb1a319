"""`emucoll run`: bring up n ranks over real TCP, form the ring, run the AllGather, verify every
byte.
"""

import sys
from typing import Any

import click

from emucoll.errors import HarnessError, UsageError
from harness.cli.options import complain, failed_document, finish, make_spec, spec_options
from harness.engine.loopback import run as run_loopback
from harness.engine.virtual import run as run_virtual
from harness.report.failure import render_failure
from harness.report.progress import Progress
from harness.report.table import render
from harness.spec import Spec


@click.command("run")
@spec_options
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on stdout (schema emucoll.run/1)."
)
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def run(as_json: bool, quiet: bool, **options: Any) -> None:
    """Run ranks for real on this machine, or in virtual time.

    Exit codes: 0 ok, 1 wrong data or a rank raised, 2 usage or refused, 3 the harness failed, 130
    interrupted.
    """
    spec: Spec | None = None
    progress = Progress(enabled=not quiet)
    try:
        spec = make_spec(options)
        result = run_virtual(spec) if spec.world == "virtual" else run_loopback(spec, progress)
    except (UsageError, HarnessError) as error:
        code = 2 if isinstance(error, UsageError) else 3
        failed = failed_document(error, spec, code)
        progress.close()
        if not as_json:
            complain(render_failure(failed))
        finish(failed, "", as_json, code)
    progress.close()
    if result.error is not None and not as_json and not sys.stdout.isatty():
        complain(render_failure(result))  # on a terminal the table, which ends with it, is enough
    finish(result, render(result), as_json, result.exit_code)
