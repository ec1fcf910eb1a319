"""`emucoll export`: an AllGather for another simulator, or a run for Perfetto's UI."""

import sys
from pathlib import Path
from typing import Any

import click

from emucoll.collectives.schedule import rounds_run
from emucoll.errors import UsageError
from emucoll.loading import find_schedule
from emucoll.sim.goal import goal
from harness.cli.options import RANKS, SIZE, complain, emit, failed_document, finish
from harness.names import refuse_unknown
from harness.report.failure import printable, render_failure
from harness.results.schema import ExportResult

_OF_GOAL = ("nranks", "allgather", "record_bytes", "steps", "out")
_OF_PERFETTO = ("directory", "ranks")
_FLAGS = {"nranks": "-np", "directory": "--from"}
"""Of options that are called otherwise here."""


@click.command("export")
@click.option("--goal", "as_goal", is_flag=True, help="An AllGather as GOAL, for LogGOPSim.")
@click.option("--perfetto", metavar="FILE", help="A run as a trace, for ui.perfetto.dev.")
@click.option("-np", "--nranks", "nranks", type=int, metavar="N", help="With --goal: ranks.")
@click.option("--allgather", metavar="A", help="With --goal: which AllGather [ring].")
@click.option(
    "--record-bytes", type=SIZE, metavar="B", help="With --goal: bytes a rank contributes [120]."
)
@click.option("--steps", type=int, metavar="S", help="With --goal: only the first S steps.")
@click.option("--out", metavar="FILE", help="With --goal: write there instead of stdout.")
@click.option(
    "--from", "directory", metavar="DIR", help="With --perfetto: what emucoll run --out kept."
)
@click.option(
    "--ranks",
    type=RANKS,
    metavar="LIST",
    help="With --perfetto: which ranks, as in 0,7,100-103 [rank 0, the slowest, the median, the "
    "fastest, the leaders of the first hosts].",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON document (emucoll.export/1).")
def export(as_json: bool, **options: Any) -> None:
    """Write an AllGather's messages and what each waits for, for another simulator to play; or what
    ranks and servers of a run did over time, to look at in Perfetto's UI.
    """
    try:
        if refuse_mixed(options) == "goal":
            result = _export_goal(as_json, **{name: options[name] for name in _OF_GOAL})
            text = ""
        else:
            result = _export_run(options["perfetto"], options["directory"], options["ranks"])
            text = _render(result)
    except UsageError as error:
        failed = failed_document(error, None, 2)
        if not as_json:
            complain(render_failure(failed))
        finish(ExportResult(ok=False, error=failed.error), "", as_json, 2)
    finish(result, text, as_json, 0)


def refuse_mixed(options: dict[str, Any]) -> str:
    """Which of the two it is. Raises UsageError for none, both, and flags of the other."""
    as_goal, perfetto = options["as_goal"], options["perfetto"]
    if not as_goal and perfetto is None:
        raise UsageError("export: as what? give --goal, or --perfetto FILE --from DIR")
    if as_goal and perfetto is not None:
        raise UsageError("export: --goal and --perfetto: give one of the two")
    form, other, wrong = (
        ("goal", "--perfetto", _OF_PERFETTO) if as_goal else ("perfetto", "--goal", _OF_GOAL)
    )
    for name in wrong:
        if options[name] is not None:
            flag = _FLAGS.get(name, f"--{name.replace('_', '-')}")
            raise UsageError(f"export --{form}: {flag} is of {other}; leave it out")
    needed = "nranks" if as_goal else "directory"
    if options[needed] is None:
        what = "-np N" if as_goal else "--from DIR, the directory that emucoll run --out wrote"
        raise UsageError(f"export --{form}: add {what}")
    return form


def _export_goal(
    as_json: bool,
    nranks: int,
    allgather: str | None,
    record_bytes: int | None,
    steps: int | None,
    out: str | None,
) -> ExportResult:
    """Raises UsageError."""
    for flag, value in (("-np", nranks), ("--steps", steps)):
        if value is not None and value < 1:
            raise UsageError(f"{flag} is {value}: expected at least 1")
    allgather = "ring" if allgather is None else allgather
    record_bytes = 120 if record_bytes is None else record_bytes
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


def _export_run(file: str, directory: str, asked: tuple[int, ...] | None) -> ExportResult:
    """Raises UsageError."""
    from harness.analysis.notable import name_ranks
    from harness.report.perfetto import perfetto
    from harness.results.recorded import load_recorded, refuse_ranks
    from harness.results.schema import ExportedRank
    from harness.results.storage import check_file_writable, save_file

    run = load_recorded(directory)
    refuse_ranks(run, asked or ())
    names = name_ranks(run.ranks, run.totals, run.spec.ranks_per_host, asked)
    check_file_writable(file, "--perfetto")
    trace = perfetto(run.result, run.recording, names)
    save_file(trace.data, file)
    return ExportResult(
        ok=True,
        kind=run.result.kind,
        spec=run.result.spec,
        environment=run.result.environment,
        seed=run.result.seed,
        file=file,
        form="perfetto",
        nranks=run.result.nranks,
        ranks=[
            ExportedRank(rank=rank, name=name, spans=trace.spans[rank])
            for rank, name in names.items()
        ],
        counters=trace.counters,
    )


def _render(result: ExportResult) -> str:
    """What is in the trace, a line each."""
    lines = [f"{each.name}: {each.spans} spans" for each in result.ranks]
    lines += [f"{process}: {', '.join(names)}" for process, names in result.counters.items()]
    lines.append(
        f"# {len(result.ranks)} of {result.nranks} ranks in {printable(result.file or '')}"
    )
    lines.append("# open it in https://ui.perfetto.dev")
    return "".join(f"{line}\n" for line in lines)
