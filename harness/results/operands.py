"""What `emucoll compare` is given: told by content, never by name.

A JSON document of emucoll is a result, a directory with a result.json is the run in it, any other
file is text, perhaps an NCCL log, and any other directory holds such files. Logs are read as
streams. What cannot be read or has no place here is a UsageError. Compares nothing.
"""

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import msgspec

from emucoll.errors import UsageError
from harness.results.codec import from_json
from harness.results.schema import RunResult
from harness.results.storage import RESULT_FILE

LINE_BYTES = 8192
"""NCCL's lines have 1,024 bytes at most, its launchers' prefixes less. Longer ones are cut."""
RESULT_BYTES = 64 * 2**20
"""No result comes near it: what is longer and begins with a brace is a log."""
_PACKED = {b"\x1f\x8b": "gzip -d", b"BZh": "bzip2 -d", b"\xfd7z": "xz -d", b"(\xb5/": "zstd -d"}


@dataclass(frozen=True, slots=True)
class Given:
    """The operands in order: the run, if the first one is one, and the files of the logs."""

    run: RunResult | None
    run_name: str | None
    logs: list[Path]
    names: list[str]
    """The logs' operands as given."""


def tell(names: list[str]) -> Given:
    """Sort the operands by content. Raises UsageError."""
    run: RunResult | None = None
    run_name = None
    logs: dict[str, Path] = {}
    log_names = []
    for number, name in enumerate(names):
        path = Path(name)
        result = _result_in(path)
        if result is None:
            log_names.append(name)
            for file in _files(path):
                logs.setdefault(os.path.realpath(file), file)
        elif number == 0:
            run, run_name = result, name
        else:
            raise _two_results(name, run_name)
    if run is not None and not logs:
        raise UsageError(
            f"{run_name!r} is a run, and nothing is there to compare it with\nexpected emucoll "
            "compare RESULT LOG…, the logs being NCCL's with NCCL_DEBUG=INFO"
        )
    return Given(run, run_name, list(logs.values()), log_names)


def lines_of(path: Path) -> Iterator[str]:
    """The lines of a text file, with their ends. Raises UsageError."""
    try:
        with path.open("rb") as file:
            begin = file.peek(4)[:4]
            for magic, command in _PACKED.items():
                if begin.startswith(magic):
                    raise UsageError(f"{str(path)!r} is compressed: {command} it first")
            yield from _lines(file)
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error


def _lines(file: BinaryIO) -> Iterator[str]:
    while line := file.readline(LINE_BYTES):
        yield line.decode("utf-8", errors="replace")


def _result_in(path: Path) -> RunResult | None:
    """The run that a file or directory holds; None if it holds none."""
    try:
        file = path / RESULT_FILE if path.is_dir() else path
        if not file.is_file() and (file is not path or file.exists()):
            return None  # a pipe can be read only once, as a log
        with file.open("rb") as stream:
            begin = stream.read(64).lstrip()
            if not begin.startswith(b"{"):
                return None
            data = begin + stream.read(RESULT_BYTES)
    except FileNotFoundError:
        raise UsageError(_missing(path)) from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"cannot read {str(path)!r}: {reason}") from error
    try:
        schema = msgspec.json.decode(data, type=_Tagged).schema
    except (msgspec.DecodeError, UnicodeDecodeError):
        if _BEGINS.match(data):
            what = f"{str(path)!r} begins as a document of emucoll, and is cut or broken"
            raise UsageError(what) from None
        return None  # a log may begin with a brace
    if schema != RunResult.schema:
        raise UsageError(
            f"{str(path)!r} is a document of {schema}\nthere is no comparing with it yet; expected "
            f"{RunResult.schema}, which emucoll run --out DIR or --json writes"
        )
    try:
        return from_json(data)
    except UsageError as error:
        raise UsageError(f"{str(file)!r}: {error}") from error


_BEGINS = re.compile(rb'\{\s*"schema"\s*:\s*"emucoll\.')


class _Tagged(msgspec.Struct):
    schema: str


def _missing(path: Path) -> str:
    name = str(path)
    text = f"there is no file or directory {name!r}"
    if "/" not in name and "." not in name:
        text += "\nif a git revision is meant: comparing revisions is not there yet"
    return text


def _two_results(name: str, run_name: str | None) -> UsageError:
    if run_name is None:
        return UsageError(
            f"{name!r} is a run and comes after logs\nput it first: emucoll compare RESULT LOG…"
        )
    return UsageError(
        f"{run_name!r} and {name!r} are both runs\ncomparing runs with each other is not there "
        "yet; expected emucoll compare RESULT LOG…"
    )


def _files(path: Path) -> list[Path]:
    """The log files of an operand: itself, or what its directory holds, hidden ones excepted."""
    if not path.is_dir():
        return [path]
    try:
        found = sorted(
            file
            for file in path.rglob("*")
            if file.is_file() and not any(p.startswith(".") for p in file.relative_to(path).parts)
        )
    except OSError as error:
        raise UsageError(f"cannot read {str(path)!r}: {error.strerror}") from error
    if not found:
        raise UsageError(f"the directory {str(path)!r} holds no file")
    return found
