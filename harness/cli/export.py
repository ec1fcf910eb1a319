"""`emucoll export --goal`: an AllGather for another simulator."""

import sys
from pathlib import Path
from typing import Any

import click

from emucoll.collectives.schedule import rounds_run
from emucoll.errors import UsageError
from emucoll.loading import find_schedule
from emucoll.sim.goal import goal
from harness.cli.options import SIZE, complain, emit, failed_document, finish
from harness.names import refuse_unknown
from harness.report.failure import render_failure
from harness.results.schema import ExportResult


@click.command("export")
@click.option("--goal", "as_goal", is_flag=True, help="As GOAL, which LogGOPSim plays.")
@click.option("-np", "--nranks", "nranks", type=int, required=True, metavar="N", help="Ranks.")
@click.option("--allgather", default="ring", metavar="A", help="Which AllGather [ring].")
@click.option(
    "--record-bytes", type=SIZE, default=120, metavar="B", help="Bytes a rank contributes [120]."
)
@click.option("--steps", type=int, metavar="S", help="Only the first S steps.")
@click.option("--out", metavar="FILE", help="Write there instead of stdout.")
@click.option(
    "--json", "as_json", is_flag=True, help="With --out: one JSON document (emucoll.export/1)."
)
def export(as_json: bool, **options: Any) -> None:
    """Write an AllGather's messages and what each waits for, for another simulator to play."""
    try:
        result = _export(as_json=as_json, **options)
    except UsageError as error:
        failed = failed_document(error, None, 2)
        if not as_json:
            complain(render_failure(failed))
        finish(ExportResult(ok=False, error=failed.error), "", as_json, 2)
    finish(result, "", as_json, 0)


def _export(
    as_goal: bool,
    nranks: int,
    allgather: str,
    record_bytes: int,
    steps: int | None,
    out: str | None,
    as_json: bool,
) -> ExportResult:
    """Raises UsageError."""
    if not as_goal:
        raise UsageError("export: as what? --goal is the form there is")
    for flag, value in (("-np", nranks), ("--steps", steps)):
        if value is not None and value < 1:
            raise UsageError(f"{flag} is {value}: expected at least 1")
    refuse_unknown("AllGather", allgather)
    if as_json and out is None:
        raise UsageError("--json and the schedule both want stdout: add --out FILE")
    schedule = find_schedule(allgather)
    rounds = rounds_run(schedule, nranks, steps)
    lines = goal(schedule, nranks, rounds, record_bytes)
    first = next(lines)
    if out is None:
        emit(first.encode())
        for line in lines:
            emit(line.encode())
        sys.stdout.flush()
    else:
        try:
            with Path(out).open("w", encoding="ascii") as file:
                file.write(first)
                file.writelines(lines)
        except OSError as error:
            raise UsageError(f"--out {out}: {error.strerror}") from None
    traffic = schedule.traffic(nranks, rounds, record_bytes)
    return ExportResult(
        ok=True,
        file=out,
        form="goal",
        nranks=nranks,
        allgather=allgather,
        steps=rounds,
        messages=nranks * traffic.messages,
        bytes=nranks * traffic.sent_bytes,
    )
