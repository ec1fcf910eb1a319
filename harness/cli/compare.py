"""`emucoll compare`: logs of real jobs beside an emulated run."""

import sys

import click

from emucoll.errors import UsageError
from harness.cli.options import complain, failed_document, finish
from harness.report.failure import render_failure
from harness.results.schema import CompareResult

UNDECIDED = 4


@click.command("compare")
@click.argument("operands", nargs=-1, required=True, metavar="[RESULT] LOG…")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="One JSON document on stdout (schema emucoll.compare/1).",
)
def compare(operands: tuple[str, ...], as_json: bool) -> None:
    """Lay logs of real jobs (NCCL_DEBUG=INFO) beside an emulated run, phase by phase.

    RESULT is what `run` kept with --out, its directory, or its --json document. A LOG is a file, or
    a directory of files. What each is, its content tells. Without RESULT the logs are described.

    Exit codes: 0 ok, 2 usage, 4 nothing to compare: no timings in the logs, or none of this n.
    """
    # numpy and the analysis: only for who compares.
    from harness.engine.compare import compare as compare_operands
    from harness.report.compare import render_compare
    from harness.results.operands import tell

    try:
        result = compare_operands(tell(list(operands)))
    except UsageError as error:
        failed = failed_document(error, None, 2)
        if not as_json:
            complain(render_failure(failed))
        finish(CompareResult(ok=False, error=failed.error), "", as_json, 2)
    if result.error is not None and not as_json and not sys.stdout.isatty():
        complain(render_failure(result))  # on a terminal the text, which ends with it, is enough
    code = 0 if result.error is None else UNDECIDED
    finish(result, render_compare(result), as_json, code)
