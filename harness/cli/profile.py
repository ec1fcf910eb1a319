"""`emucoll profile`: what will dominate at the target, found at sizes that fit here."""

import os
from typing import Any

import click

from emucoll.errors import HarnessError, UsageError
from emucoll.loading import look_in
from harness.cli.options import COUNTS, SIZE, TIME, complain, failed_document, finish
from harness.profiling.spec import STEPS, ProfileSpec
from harness.report.failure import render_failure
from harness.report.progress import Progress


@click.command("profile")
@click.option("-np", "--nranks", "n", type=COUNTS, required=True, metavar="N,…",
              help="Sizes that are run here, five at least.")  # fmt: skip
@click.option("--target", type=int, required=True, metavar="N", help="The size that it is about.")
@click.option("--plan", metavar="P", help="A whole initialization (see emucoll plans).")
@click.option("--formation", metavar="F", help="Or how the ring forms [tcpstore],")
@click.option("--allgather", metavar="A", help="an AllGather [ring-pipelined],")
@click.option("--record-bytes", type=SIZE, metavar="B", help="and what a rank contributes [28].")
@click.option("--channels", type=int, metavar="C", help="Channels, each of which a ring check "
              "walks [2].")  # fmt: skip
@click.option("--roots", type=int, metavar="R", help="Roots [one per 128 ranks].")
@click.option("--cluster", default="h100-roce-98k", metavar="NAME|FILE",
              help="What the target would run on [h100-roce-98k].")  # fmt: skip
@click.option("--repeat", type=int, default=3, metavar="K", help="Runs of each size [3].")
@click.option("--steps", type=int, default=STEPS, metavar="S",
              help=f"Of each AllGather, in runs here [{STEPS}].")  # fmt: skip
@click.option("--seed", type=int, default=1, metavar="S", help="Of what is drawn [1].")
@click.option("--deadline", "deadline_s", type=TIME, default="600s", metavar="T",
              help="Of each run [600s].")  # fmt: skip
@click.option(
    "--sample/--no-sample",
    default=True,
    help="See by samples which functions take the CPU, in one run more of each size [yes].",
)
@click.option("--out", metavar="DIR", help="Keep the result here.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on stdout (emucoll.profile/1)."
)
@click.option("--quiet", is_flag=True, help="No progress on stderr.")
def profile(as_json: bool, quiet: bool, **options: Any) -> None:
    """Run a plan at several sizes, see how what it takes grows, and name what will dominate at the
    target.

    Exit codes: 0 ok, 1 a run's rank failed, 2 usage, 3 a run failed, 4 there is no verdict.
    """
    from harness.engine.calibrate import RunFailed
    from harness.profiling.engine import profile as make
    from harness.report.html.page import write_report
    from harness.report.profile import render_profile
    from harness.results.codec import to_json
    from harness.results.profile import ProfileResult
    from harness.results.schema import RunError
    from harness.results.storage import RESULT_FILE, check_writable, save_file

    look_in(os.getcwd())
    spec: ProfileSpec | None = None
    progress = Progress(enabled=not quiet)
    error: RunError | None = None
    code = 2
    try:
        spec = ProfileSpec(**options)
        if spec.out is not None:
            check_writable(spec.out)
        result = make(spec, lambda stage, share: progress.step("profile", share, stage, None))
        if spec.out is not None:
            save_file(to_json(result), os.path.join(spec.out, RESULT_FILE))
            write_report(spec.out)
    except (UsageError, HarnessError) as failure:
        code = 2 if isinstance(failure, UsageError) else 3
        error = failed_document(failure, None, code).error
    except RunFailed as failure:
        code, error = failure.result.exit_code, failure.result.error
    progress.close()
    if error is not None:
        failed = ProfileResult(spec=spec, ok=False, error=error)
        if not as_json:
            complain(render_failure(failed))
        finish(failed, "", as_json, code)
    finish(result, render_profile(result), as_json, 0 if result.ok else 4)
