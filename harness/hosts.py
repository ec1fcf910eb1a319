"""Hosts: what the emulation costs on one machine, as `emucoll calibrate` measured it.

A host is a profile (`profiles/hosts/NAME.toml`): the values that were measured, each with how, and
the machine that they were measured on. Knows the file's form, both ways; measures nothing.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import NamedTuple

from emucoll.errors import UsageError
from harness.profile import Kind, Profile, Value, names, names_in, read_file
from harness.results.environment import Environment
from harness.suggest import nearest
from harness.units import format_time

FOLDER = "hosts"
DEFAULT = "local"
"""The name of this machine's, unless another is given."""
WRITTEN_TO = Path("profiles") / FOLDER
"""Under the current folder: where `emucoll calibrate` writes to, and what is found first."""
OPTIONAL = {"machine.cpu_model", "root.check_in_libnccl"}
_MEASURED: dict[str, Kind] = {
    "cpu.connect": "time",
    "cpu.accept": "time",
    "cpu.message": "time",
    "cpu.contention": "time",
    "cpu.byte": "time",
    "cpu.cut_through": "time",
    "cpu.cut_through_block": "time",
    "cpu.cut_through_byte": "time",
    "cpu.peer": "time",
    "cpu.rank": "time",
    "store.request": "time",
    "root.check_in": "time",
    "root.check_in_libnccl": "time",
    "cores.used_forming": "share",
    "cores.used_gathering": "share",
    "loop.ring_check": "time",
    "loop.ring_check_bitmap": "time",
    "loop.same_process": "time",
    "loop.duplicate_gpu": "time",
    "loop.node_numbering": "time",
}
LAYOUT: dict[str, Kind] = {
    "machine.cpu_model": "text",
    "machine.cores": "count",
    "machine.kernel": "text",
    "machine.python": "text",
    "machine.loop": "text",
    "machine.emucoll": "text",
    **_MEASURED,
}


class HostMachine(NamedTuple):
    """What was calibrated. `cpu_model` None: the machine does not tell."""

    cpu_model: str | None
    cores: int
    kernel: str
    python: str
    loop: str
    """The event loop of workers and servers."""
    emucoll: str
    """Its version."""


@dataclass(frozen=True)
class Host:
    """A machine and its costs."""

    profile: Profile

    @property
    def machine(self) -> HostMachine:
        """What was calibrated."""
        values = self.profile.values
        model = values.get("machine.cpu_model")
        return HostMachine(
            cpu_model=None if model is None else model.words,
            cores=int(values["machine.cores"].value),
            kernel=values["machine.kernel"].words,
            python=values["machine.python"].words,
            loop=values["machine.loop"].words,
            emucoll=values["machine.emucoll"].words,
        )

    @property
    def measured(self) -> dict[str, Value]:
        """By dotted key what was measured, in the order of `emucoll calibrate`."""
        values = self.profile.values
        return {key: values[key] for key in _MEASURED if key in values}

    def value(self, key: str) -> Value:
        """One of its values. Raises UsageError where this host was calibrated without it."""
        try:
            return self.profile.values[key]
        except KeyError:
            raise UsageError(
                f"{self.profile.name}: {key} was not measured; {_how_to_make(self.profile.name)} "
                "says what it lacked"
            ) from None

    def seconds(self, key: str) -> float:
        """The value alone."""
        return self.value(key).value

    def differs_from(self, environment: Environment) -> str | None:
        """In which the machine differs from the one of `environment`, as a sentence; None where
        they are the same.
        """
        there, here = self.machine, machine_of(environment)
        differences = [
            f"{what} {one or 'unknown'} there, {other or 'unknown'} here"
            for what, one, other in (
                ("CPU", there.cpu_model, here.cpu_model),
                ("cores", there.cores, here.cores),
                ("kernel", there.kernel, here.kernel),
                ("event loop", there.loop, here.loop),
            )
            if one != other
        ]
        if not differences:
            return None
        return f"{self.profile.name} was calibrated on another machine: {'; '.join(differences)}"


def machine_of(environment: Environment) -> HostMachine:
    """The machine that an environment describes."""
    model = environment.cpu_model
    return HostMachine(
        cpu_model=None if model is None else _one_line(model),
        cores=environment.cores,
        kernel=_one_line(environment.kernel),
        python=environment.python,
        loop=environment.loop,
        emucoll=environment.version,
    )


def find_host(name: str | None) -> Host:
    """The host of that name, or of a file; None: this machine, as it was calibrated last. The
    current folder's come before those that emucoll brings along. Raises UsageError, which names
    the command that makes one.
    """
    called = DEFAULT if name is None else name
    if called in names_in(WRITTEN_TO):
        return read_host(str(WRITTEN_TO / f"{called}.toml"), called)
    if called in names(FOLDER):
        shipped = files("profiles").joinpath(FOLDER, f"{called}.toml")
        return Host(read_file(shipped, called, LAYOUT, OPTIONAL))
    if os.path.isfile(called):
        return read_host(called, called)
    raise _none_such(name)


def read_host(file: str, name: str) -> Host:
    """The host in that file; errors call it `name`. Raises UsageError."""
    return Host(read_file(Path(file), name, LAYOUT, OPTIONAL))


def _is_path(name: str) -> bool:
    """Is it meant as a path, and not as a name?"""
    return "/" in name or name.endswith(".toml")


def _none_such(name: str | None) -> UsageError:
    if name is None:
        return UsageError(
            f"this machine is not calibrated: there is no {WRITTEN_TO / DEFAULT}.toml under the "
            f"current folder; {_how_to_make(DEFAULT)} measures it and makes one"
        )
    if _is_path(name):
        return UsageError(f"there is no host {name!r}: {_how_to_make(name)} makes one")
    known = {*names_in(WRITTEN_TO), *names(FOLDER)}
    return UsageError(
        f"there is no host {name!r}, neither {WRITTEN_TO / name}.toml under the current folder nor "
        f"one that emucoll brings along {nearest(name, known)}; {_how_to_make(name)} makes one"
    )


def _how_to_make(name: str) -> str:
    flag = "" if name == DEFAULT else f" --out {name}" if _is_path(name) else f" --name {name}"
    return f"`emucoll calibrate{flag}`"


# -- writing


def as_toml(text: str, machine: HostMachine, measured: Mapping[str, Value]) -> str:
    """The file of a host: `text` says what it is, `measured` has its values by dotted key."""
    source = {"source": "the machine itself, before the first repeat"}
    lines = [f"text = {_quoted(text)}", "", "[machine]"]
    for name, told in machine._asdict().items():
        if told is not None:
            lines.append(_line(name, {"value": told, **source}))
    section = ""
    for key, value in measured.items():
        before, _, name = key.partition(".")
        if before != section:
            section = before
            lines += ["", f"[{section}]"]
        write = format_time if LAYOUT[key] == "time" else _rounded
        numbers = {"value": value.value, "low": value.low, "high": value.high}
        parts: dict[str, str | float] = {part: write(each) for part, each in numbers.items()}
        lines.append(_line(name, {**parts, "source": value.why}))
    return "\n".join(lines) + "\n"


def _rounded(number: float) -> float:
    return float(f"{number:.6g}")


def _line(name: str, parts: Mapping[str, str | float]) -> str:
    inside = ", ".join(
        f"{part} = {_quoted(each) if isinstance(each, str) else each}"
        for part, each in parts.items()
    )
    return f"{name} = {{ {inside} }}"


def _quoted(text: str) -> str:
    """A string of TOML's: JSON's, where no character needs an escape that only JSON has."""
    return json.dumps(_one_line(text), ensure_ascii=False)


def _one_line(text: str) -> str:
    """`text` without what is not printable, which no machine's name needs."""
    return "".join(each if each.isprintable() else "?" for each in text)
