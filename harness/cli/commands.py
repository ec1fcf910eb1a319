"""The command line's tree, and how a command ends that cannot end by itself.

Thin: each command lives in a file of its own and knows no other.
"""

import contextlib
import importlib
import io
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import click

from emucoll import __version__
from emucoll.errors import EmucollError, UsageError
from harness.cli.options import complain, finish, stdout_lost
from harness.report.failure import render_failure
from harness.results.calibration import CalibrateResult
from harness.results.codec import AnyResult
from harness.results.profile import ProfileResult
from harness.results.projection import ProjectResult
from harness.results.report import ReportResult
from harness.results.schema import (
    CompareResult,
    DoctorResult,
    EttResult,
    ExportResult,
    NamesResult,
    failure,
)
from harness.results.validation import ValidateResult

_FILES = {
    **{
        name: name
        for name in (
            *("run", "doctor", "compare", "calibrate", "validate", "project", "profile"),
            *("report", "ett", "export"),
        )
    },
    **dict.fromkeys(("formations", "allgathers", "plans"), "names"),
}
"""In which file of this folder each command is, in the order in which help shows them."""


class _Commands(click.Group):
    """Loads the command that is asked for, and no other: half a second of imports."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.commands = {name: click.Command(name) for name in _FILES}  # what may be meant

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_FILES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _FILES:
            return None
        module = importlib.import_module(f"harness.cli.{_FILES[cmd_name]}")
        command: click.Command = getattr(module, cmd_name)
        return command


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
@click.version_option(__version__, prog_name="emucoll")
def commands() -> None:
    """Emulate the initialization of 100,000-rank collectives on CPUs, over real sockets."""


_DOCUMENTS: dict[str, Callable[..., AnyResult]] = {
    "doctor": DoctorResult,
    "compare": CompareResult,
    "calibrate": CalibrateResult,
    "validate": ValidateResult,
    "project": ProjectResult,
    "profile": ProfileResult,
    "report": ReportResult,
    "ett": EttResult,
    "export": ExportResult,
    "formations": NamesResult,
    "allgathers": NamesResult,
    "plans": NamesResult,
}
"""What each command but `run` prints with `--json`, also when it fails."""


def run_command() -> None:
    """Run what `sys.argv` says. Ends by SystemExit, or KeyboardInterrupt outside a run."""
    try:
        commands.main(prog_name="emucoll", standalone_mode=False)
    except click.exceptions.Exit as leave:
        raise SystemExit(leave.exit_code) from None
    except click.Abort:  # what click makes of a KeyboardInterrupt
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        if "--json" in sys.argv:
            fail(error.format_message(), 2, "see emucoll --help")
        shown = io.StringIO()
        with contextlib.redirect_stderr(shown):
            error.show()
        complain(shown.getvalue())
        raise SystemExit(2) from None
    except EmucollError as error:
        fail(str(error), 2 if isinstance(error, UsageError) else 3)


def fail(what: str, exit_code: int, next: str | None = None) -> NoReturn:
    """End with an error that the command itself could not tell."""
    failed = failure(what, exit_code=exit_code, next=next)
    as_json = "--json" in sys.argv
    if not as_json or stdout_lost():
        complain(render_failure(failed))
    document: AnyResult = failed
    kind = _DOCUMENTS.get("".join(sys.argv[1:2]))
    if kind is not None:
        document = kind(ok=False, error=failed.error)
    finish(document, "", as_json, exit_code)
