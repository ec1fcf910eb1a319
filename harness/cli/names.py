"""`emucoll formations`, `allgathers` and `plans`: what there is, by name."""

from collections.abc import Iterable
from typing import Protocol

import click

from emucoll.collectives import ALLGATHERS
from emucoll.formation import FORMATIONS
from emucoll.formation.nccl import NcclRoot
from emucoll.plans import PLANS
from emucoll.plans.nccl import MULTIROOT
from emucoll.plans.steps import Barrier, Gather, Local, Plan
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


@click.command("plans")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON document on stdout (schema emucoll.names/1)."
)
def plans(as_json: bool) -> None:
    """List the whole initializations, with what each does."""
    names = [Name(name=plan.name, text=plan.text, does=_steps(plan)) for plan in PLANS.values()]
    blocks = []
    for name in names:
        blocks.append(f"{name.name}\n  {name.text}\n")
        blocks += [f"    {step}\n" for step in name.does]
    blocks.append(
        f"\n{MULTIROOT} after a name with a root that forwards eagerly: one root per 128 ranks, "
        "unless --roots says how many.\n"
    )
    finish(NamesResult(ok=True, names=names), "".join(blocks), as_json, 0)


def _steps(plan: Plan) -> list[str]:
    """What a plan does, a line each."""
    formation = plan.formation
    lines = [f"formation {formation.name}"]
    if isinstance(formation, NcclRoot):
        lines[0] += f", check-in of {formation.check_in.size} bytes"
    if plan.front is not None:
        lines.insert(0, f"{plan.front.name}: {plan.front.text}")
    if plan.listeners:
        lines.append(f"opens listeners {', '.join(plan.listeners)}")
    for step in plan.steps:
        match step:
            case Gather():
                lines.append(
                    f"{step.phase}: {step.schedule.name}, {step.record_bytes} bytes a rank"
                )
            case Local():
                lines.append(f"{step.phase}: {step.work.text}")
            case Barrier():
                lines.append(f"{step.phase}: a host's ranks, dissemination, a connection a message")
    held = plan.held_descriptors + (plan.front is not None)
    return [*lines, f"keeps {held} descriptors a rank"]


def _list(named: Iterable[_Named], as_json: bool) -> None:
    names = [Name(name=each.name, text=each.text) for each in named]
    width = max(len(name.name) for name in names)
    text = "".join(f"{name.name:<{width}}  {name.text}\n" for name in names)
    finish(NamesResult(ok=True, names=names), text, as_json, 0)
