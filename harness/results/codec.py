"""The documents of every command, to JSON and back. A document says by its `schema` what it is."""

from typing import TypeAlias, TypeVar

import msgspec

from emucoll.errors import UsageError
from harness.results.calibration import CalibrateResult
from harness.results.profile import ProfileResult
from harness.results.projection import ProjectResult
from harness.results.report import ReportResult
from harness.results.schema import (
    CompareResult,
    DoctorResult,
    EttResult,
    ExportResult,
    NamesResult,
    RunResult,
)
from harness.results.validation import ValidateResult

AnyResult: TypeAlias = (
    RunResult
    | DoctorResult
    | NamesResult
    | CompareResult
    | EttResult
    | ExportResult
    | CalibrateResult
    | ProfileResult
    | ProjectResult
    | ReportResult
    | ValidateResult
)
_Result = TypeVar(
    "_Result",
    RunResult,
    DoctorResult,
    NamesResult,
    CompareResult,
    EttResult,
    ExportResult,
    CalibrateResult,
    ProfileResult,
    ProjectResult,
    ReportResult,
    ValidateResult,
)


def to_json(result: AnyResult) -> bytes:
    """One JSON document, indented, with a newline at its end."""
    try:
        encoded = msgspec.json.encode(result)
    except UnicodeEncodeError:  # a name on the command line that is not UTF-8
        encoded = msgspec.json.encode(_utf8(msgspec.to_builtins(result)))
    return msgspec.json.format(encoded, indent=2) + b"\n"


def _utf8(value: object) -> object:
    """`value` with what UTF-8 cannot hold spelt out as escapes: a failure is told in any case."""
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, dict):
        return {key: _utf8(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_utf8(item) for item in value]
    return value


def decode(data: bytes, expected: type[_Result]) -> _Result:
    """The document in `data`.

    Raises UsageError if it is not JSON, of another schema, or lacks what that requires.
    """
    try:
        result = msgspec.json.decode(data, type=AnyResult)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"not a result of emucoll: {error}") from error
    if not isinstance(result, expected):
        raise UsageError(f"this is a result of {result.schema}, not of {expected.schema}")
    return result


def from_json(data: bytes) -> RunResult:
    """The run in `data`. Raises UsageError."""
    return decode(data, RunResult)
