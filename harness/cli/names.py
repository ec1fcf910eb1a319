"""`emucoll formations` and `emucoll allgathers`: what there is, by name."""

from collections.abc import Iterable
from typing import Protocol

import click

from emucoll.collectives import ALLGATHERS
from emucoll.formation import FORMATIONS
from harness.cli.options import finish
from harness.results.schema import Name, NamesResult


class _Named(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...


@click.command("formations")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on stdout (schema emucoll.names/1)."
)
def formations(as_json: bool) -> None:
    """List the ways in which a ring can form."""
    _list(FORMATIONS.values(), as_json)


@click.command("allgathers")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on stdout (schema emucoll.names/1)."
)
def allgathers(as_json: bool) -> None:
    """List the AllGathers."""
    _list(ALLGATHERS.values(), as_json)


def _list(named: Iterable[_Named], as_json: bool) -> None:
    names = [Name(name=each.name, text=each.text) for each in named]
    width = max(len(name.name) for name in names)
    text = "".join(f"{name.name:<{width}}  {name.text}\n" for name in names)
    finish(NamesResult(ok=True, names=names), text, as_json, 0)
