"""The command line's tree. Thin: each command lives in a file of its own and knows no other."""

import click

from emucoll import __version__
from harness.cli.doctor import doctor
from harness.cli.names import allgathers, formations
from harness.cli.run import run


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="emucoll")
def commands() -> None:
    """Emulate the initialization of 100,000-rank collectives on CPUs, over real sockets."""


for command in (run, doctor, formations, allgathers):
    commands.add_command(command)
