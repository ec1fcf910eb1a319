"""`emucoll report`: one HTML page about what a run or a profile left in a directory."""

import os

import click

from emucoll.errors import UsageError
from emucoll.loading import look_in
from harness.cli.options import complain, failed_document, finish
from harness.report.failure import printable, render_failure
from harness.results.report import ReportResult


@click.command("report")
@click.argument("directory", metavar="DIR")
@click.option("--out", metavar="FILE", help="Write the page there [DIR/report.html].")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on stdout (emucoll.report/1)."
)
def report(directory: str, out: str | None, as_json: bool) -> None:
    """Write a page about what emucoll run --out DIR or emucoll profile --out DIR kept, to be opened
    in a browser: the verdict, phases, what each rank did when, servers, work.

    Exit codes: 0 ok, 2 nothing there that a page could be about.
    """
    from harness.report.html.page import write_report

    look_in(os.getcwd())  # for plans of the user's own
    try:
        result = write_report(directory, out)
    except UsageError as error:
        failed = failed_document(error, None, 2)
        if not as_json:
            complain(render_failure(failed))
        finish(ReportResult(ok=False, error=failed.error), "", as_json, 2)
    finish(result, _render(result), as_json, 0)


def _render(result: ReportResult) -> str:
    lines = [f"# shows {', '.join(result.sections)}"]
    for each in result.missing:
        lines.append(printable(f"# MISSING {each.what}: {each.why}; {each.next}"))
    lines += [printable(f"# beside it: {file}") for file in result.beside]
    lines.append(printable(f"# Report: {result.file}, {(result.bytes or 0) / 1e6:.1f} MB"))
    return "".join(f"{line}\n" for line in lines)
