"""What `emucoll run` says to flags that it refuses, by its own parser and checks, in this process:
a command for each would take a second.
"""

import click

from emucoll.errors import UsageError
from harness.cli.options import make_spec
from harness.cli.run import run
from harness.engine.refuse import refuse_impossible
from harness.engine.virtual import refuse_impossible_there


def refusal(*flags: object) -> str:
    """The error's text; fails if the flags are taken."""
    try:
        options = run.make_context("run", [*map(str, flags)]).params
        spec = make_spec({name: options[name] for name in options.keys() - {"as_json", "quiet"}})
        if spec.world == "virtual":
            refuse_impossible_there(spec)
        refuse_impossible(spec)
    except click.ClickException as error:
        return error.format_message()
    except UsageError as error:
        return str(error)
    raise AssertionError(f"{flags} are taken")
