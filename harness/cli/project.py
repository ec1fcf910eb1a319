"""`emucoll project`: how long plans would take on a cluster, and how sure that is."""

import os
from typing import Any

import click

from emucoll.errors import EmucollError, HarnessError, Undecided, UsageError
from emucoll.loading import look_in
from harness.cli.options import COUNTS, NAMES, complain, failed_document, finish
from harness.projection.spec import ProjectSpec
from harness.report.failure import render_failure
from harness.report.progress import Progress


@click.command("project")
@click.option("--plan", type=NAMES, required=True, metavar="P,…", help="See emucoll plans.")
@click.option("-np", "--nranks", "n", type=COUNTS, required=True, metavar="N,…", help="Ranks.")
@click.option("--cluster", required=True, metavar="NAME|FILE", help="What it would run on.")
@click.option(
    "--rank-order",
    default="host",
    metavar="host|rack|random|FILE",
    help="Which rank is on which host: filled one by one, dealt within a rack, shuffled, or a "
    "file with the number of each rank's host [host].",
)
@click.option(
    "--channels", type=int, metavar="C", help="Channels, each of which a ring check walks [2]."
)
@click.option(
    "--draws",
    type=int,
    default=100,
    metavar="D",
    help="Of the cluster's uncertain values, for the interval; 0: none [100].",
)
@click.option(
    "--validation",
    multiple=True,
    metavar="FILE",
    help="A result of emucoll validate, for parts of your own (repeatable).",
)
@click.option("--seed", type=int, default=1, metavar="S", help="Of what is drawn [1].")
@click.option("--out", metavar="DIR", help="Keep the result and a picture over n here.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on stdout (emucoll.project/1)."
)
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def project(as_json: bool, quiet: bool, **options: Any) -> None:
    """Project the time of whole initializations onto a cluster, phase by phase, with an interval.

    Exit codes: 0 ok, 2 usage, 4 the model of a part was never checked against a run.
    """
    from harness.projection.engine import project as make
    from harness.report.project import render_project
    from harness.report.project_picture import draw_projection
    from harness.results.projection import ProjectResult
    from harness.results.storage import PROJECTION_FILE, check_writable, save_with_picture

    look_in(os.getcwd())
    spec: ProjectSpec | None = None
    progress = Progress(enabled=not quiet)
    try:
        spec = ProjectSpec(**options)
        if spec.out is not None:
            check_writable(spec.out)
        result = make(spec, lambda stage, share: progress.step(stage, share, "", None))
        if spec.out is not None:
            save_with_picture(result, draw_projection(result), spec.out, PROJECTION_FILE)
    except (UsageError, HarnessError, Undecided) as error:
        progress.close()
        code = _exit_code(error)
        failed = failed_document(error, None, code)
        if not as_json:
            complain(render_failure(failed))
        document = ProjectResult(
            spec=spec,
            seed=None if spec is None else spec.seed,
            ok=False,
            error=failed.error,
        )
        finish(document, "", as_json, code)
    progress.close()
    finish(result, render_project(result), as_json, 0)


def _exit_code(error: EmucollError) -> int:
    if isinstance(error, Undecided):
        return 4
    return 2 if isinstance(error, UsageError) else 3
