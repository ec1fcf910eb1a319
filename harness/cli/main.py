"""`emucoll`: the command line. Thin: each command lives in a file of its own and knows no other."""

import sys

import click

from emucoll import __version__
from harness.cli.doctor import doctor
from harness.cli.names import allgathers, formations
from harness.cli.options import emit
from harness.cli.run import run
from harness.results.schema import failure, to_json


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="emucoll")
def commands() -> None:
    """Emulate the initialization of 100,000-rank collectives on CPUs, over real sockets."""


for command in (run, doctor, formations, allgathers):
    commands.add_command(command)


def main() -> None:
    """Entry point: with `--json`, a usage error is one document too."""
    arguments = sys.argv[1:]
    try:
        commands.main(args=arguments, standalone_mode=False)
    except click.exceptions.Exit as leave:
        raise SystemExit(leave.exit_code) from None
    except click.Abort:
        raise SystemExit(130) from None
    except click.ClickException as error:
        if "--json" in arguments:
            emit(to_json(failure(error.format_message(), exit_code=2, next="see emucoll --help")))
        else:
            error.show()
        raise SystemExit(2) from None


if __name__ == "__main__":
    main()
