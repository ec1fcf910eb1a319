"""`emucoll ett`: how much of a job's time trains, and what would raise it."""

import os
from typing import Any

import click

from emucoll.errors import Undecided, UsageError
from emucoll.loading import look_in
from harness.cli.options import (
    BANDWIDTH,
    COUNTS,
    NAMES,
    SIZE,
    TIME,
    TIME_OR_AUTO,
    complain,
    failed_document,
    finish,
)
from harness.report.failure import render_failure
from harness.results.schema import EttResult
from harness.training.spec import EttSpec


@click.command("ett")
@click.option("-n", "n", type=COUNTS, default=(), metavar="N,…", help="GPUs [the profile's].")
@click.option("--profile", metavar="NAME|FILE", help="A training job: failures, times, storage.")
@click.option(
    "--failures-per-1000-node-days", type=float, metavar="R", help="How often nodes fail [0]."
)
@click.option("--gpus-per-node", type=int, metavar="G", help="GPUs that fail together [8].")
@click.option(
    "--checkpoint-write", type=TIME, metavar="T", help="How long a write stops the work [0]."
)
@click.option(
    "--checkpoint-size", type=SIZE, metavar="B", help="Instead of that: all ranks' bytes together."
)
@click.option(
    "--storage-bandwidth",
    type=BANDWIDTH,
    metavar="B/s",
    help="What the storage takes, sustained, as in 2TB/s; with --checkpoint-size.",
)
@click.option(
    "--checkpoint-interval",
    type=TIME_OR_AUTO,
    metavar="T|auto",
    help="Work between two writes [auto: the best].",
)
@click.option("--detection", type=TIME, metavar="T", help="Until a failure is noticed [0].")
@click.option("--restart", type=TIME, metavar="T", help="From there to initialization [0].")
@click.option("--init", "init", type=TIME, metavar="T", help="Initialization [0].")
@click.option("--plan", type=NAMES, default=(), metavar="P,…", help="Or that of these plans,")
@click.option("--cluster", metavar="NAME", help="on this cluster.")
@click.option(
    "--isolation",
    type=int,
    metavar="REPLICAS",
    help="A failure takes out one replica of so many [it stops all].",
)
@click.option(
    "--stall", type=TIME, metavar="T", help="With isolation: how long the others wait [0]."
)
@click.option(
    "--confined-share",
    type=float,
    metavar="S",
    help="With isolation: of all failures, those that stay within a replica [1].",
)
@click.option("--job-length", type=TIME, metavar="T", help="Of the job, for GPU-hours [720h].")
@click.option(
    "--monte-carlo",
    type=int,
    default=100_000,
    metavar="N",
    help="Failures to play beside the closed form, 0 for none [100000].",
)
@click.option("--seed", type=int, default=1, metavar="S", help="Of what is drawn [1].")
@click.option("--out", metavar="DIR", help="Keep the result and a picture over n here.")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on stdout (schema emucoll.ett/1)."
)
def ett(as_json: bool, **options: Any) -> None:
    """Effective training time: the share of a job's time that makes progress, and what a faster
    initialization, a faster checkpoint or isolation of failures would be worth.

    What neither a flag nor the profile gives is 0. Nothing is run.
    """
    # numpy and the model: only for who calculates.
    from harness.engine.ett import calculate, curves_of
    from harness.report.ett import render_ett
    from harness.report.ett_picture import draw
    from harness.results.storage import check_writable, save_with_picture

    look_in(os.getcwd())  # for plans of the user's own
    spec: EttSpec | None = None
    try:
        spec = make_ett_spec(options)
        if spec.out is not None:
            check_writable(spec.out)
        result = calculate(spec)
        if spec.out is not None:
            save_with_picture(result, draw(result, curves_of(spec)), spec.out)
    except (UsageError, Undecided) as error:
        code = 4 if isinstance(error, Undecided) else 2
        failed = failed_document(error, None, code)
        if not as_json:
            complain(render_failure(failed))
        seed = None if spec is None else spec.seed
        finish(EttResult(spec=spec, seed=seed, ok=False, error=failed.error), "", as_json, code)
    finish(result, render_ett(result), as_json, 0)


def make_ett_spec(options: dict[str, Any]) -> EttSpec:
    """The spec that the options say, unchecked."""
    values = dict(options)
    interval = values.pop("checkpoint_interval")
    for name in ("checkpoint_write", "detection", "restart", "init", "stall", "job_length"):
        values[f"{name}_s"] = values.pop(name)
    return EttSpec(
        checkpoint_size_bytes=values.pop("checkpoint_size"),
        checkpoint_interval_s=None if interval == "auto" else interval,
        best_interval=interval == "auto",
        **values,
    )
