"""Entry point of the command line: how a command ends that cannot end by itself.

Whatever happens, `--json` gives one document, and the exit code is one of the design's. The
commands are imported inside, since that takes long enough for a Ctrl-C.
"""

import contextlib
import io
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

INTERRUPTED = 130


def main() -> None:
    """Run the command that `sys.argv` holds; always ends by SystemExit."""
    _open_standard_streams()
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup, or a shell's &: as it was
            signal.signal(number, _interrupt)
    try:
        _run()
    except KeyboardInterrupt:
        _fail("interrupted while no process of a run was there", INTERRUPTED, "run it again")


def _run() -> None:
    import click

    from emucoll.errors import EmucollError, UsageError
    from harness.cli.commands import commands
    from harness.cli.options import complain

    try:
        commands.main(prog_name="emucoll", standalone_mode=False)
    except click.exceptions.Exit as leave:
        raise SystemExit(leave.exit_code) from None
    except click.Abort:  # what click makes of a KeyboardInterrupt
        raise KeyboardInterrupt from None
    except click.ClickException as error:
        if "--json" not in sys.argv:
            shown = io.StringIO()
            with contextlib.redirect_stderr(shown):
                error.show()
            complain(shown.getvalue())
            raise SystemExit(2) from None
        _fail(error.format_message(), 2, "see emucoll --help")
    except EmucollError as error:
        _fail(str(error), 2 if isinstance(error, UsageError) else 3)


def _fail(what: str, exit_code: int, next: str | None = None) -> NoReturn:
    """End with an error that no command has told."""
    from harness.cli.options import complain, finish
    from harness.report.failure import render_failure
    from harness.results.schema import AnyResult, DoctorResult, NamesResult, failure

    failed = failure(what, exit_code=exit_code, next=next)
    as_json = "--json" in sys.argv
    if not as_json:
        complain(render_failure(failed))
    command = " ".join(sys.argv[1:2])
    document: AnyResult = failed
    if command == "doctor":
        document = DoctorResult(ok=False, error=failed.error)
    elif command in ("formations", "allgathers"):
        document = NamesResult(ok=False, error=failed.error)
    finish(document, "", as_json, exit_code)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Ctrl-C or SIGTERM outside a run: the first one counts."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _open_standard_streams() -> None:
    """Give a closed stdin, stdout or stderr to /dev/null: the next socket would take its number,
    and what is printed would go to a peer.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", encoding="utf-8", closefd=False)  # noqa: SIM115


if __name__ == "__main__":
    main()
