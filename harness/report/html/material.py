"""What a directory holds that a report can be made of.

Reads and refuses; shows nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np

from emucoll.errors import UsageError
from harness.report.failure import printable
from harness.results.codec import decode
from harness.results.profile import ProfileResult
from harness.results.projection import ProjectResult
from harness.results.recording import Recording, load_recording
from harness.results.samples import Samples, load_samples
from harness.results.schema import EttResult, RunResult
from harness.results.storage import PICTURE_FILE, PROJECTION_FILE, RECORDING_FILE, RESULT_FILE
from harness.spec import INT_MAX

Result: TypeAlias = RunResult | ProfileResult
_MADE_BY = "emucoll run … --out {0} and emucoll profile … --out {0} write one"
_PICTURES = {EttResult.schema: PICTURE_FILE, ProjectResult.schema: PROJECTION_FILE}


@dataclass(frozen=True)
class Material:
    """All of it; None is not there."""

    directory: str
    result: Result
    recording: Recording | None = None
    samples: Samples | None = None

    @property
    def again(self) -> str:
        """The directory, as the text of a command may name it."""
        return printable(self.directory).rstrip("/") or "/"


def load_material(directory: str) -> Material:
    """Raises UsageError for what is not there, is another command's or is damaged."""
    result = _result(directory)
    try:
        recording, samples = load_recording(directory), load_samples(directory)
        if recording is not None:
            nranks = result.nranks if isinstance(result, RunResult) else None
            _check(recording, nranks or INT_MAX, Path(directory) / RECORDING_FILE)
    except UsageError as error:
        raise UsageError(
            f"{error}\n{_MADE_BY.format(printable(directory))}; or remove that file, for a report "
            "without it"
        ) from error
    return Material(directory, result, recording, samples)


def _check(recording: Recording, nranks: int, path: Path) -> None:
    """That its arrays belong together, and to the result. Raises UsageError."""
    columns = (recording.rank, recording.phase, recording.begin, recording.end)
    alike = {each.shape for each in columns} == {recording.rank.shape} and recording.rank.ndim == 1
    if not alike or (
        len(recording.rank)
        and not (
            recording.phase.max() < len(recording.names)
            and 0 <= recording.rank.min() <= recording.rank.max() < nranks
            and np.isfinite(recording.begin).all()
            and np.isfinite(recording.end).all()
        )
    ):
        raise UsageError(f"cannot read {path}: its arrays do not belong together")


class _Tagged(msgspec.Struct):
    schema: str


def _result(directory: str) -> Result:
    path, name = Path(directory), printable(directory)
    made_by = _MADE_BY.format(name)
    try:
        if not path.is_dir():
            what = "is no directory" if path.exists() else "is not there"
            raise UsageError(f"{name} {what}: {made_by}")
        data = (path / RESULT_FILE).read_bytes()
    except FileNotFoundError:
        there = sorted(each.name for each in path.iterdir())
        what = f"it holds {printable(', '.join(there[:8]))}" if there else "it is empty"
        raise UsageError(f"{name} has no {RESULT_FILE} ({what}): {made_by}") from None
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"cannot read {name}/{RESULT_FILE}: {reason}") from None
    try:
        schema = msgspec.json.decode(data, type=_Tagged).schema
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(
            f"{name}/{RESULT_FILE} is cut or is no result of emucoll ({error}): {made_by}"
        ) from None
    if schema in (RunResult.schema, ProfileResult.schema):
        return _decoded(data, schema, name)
    if schema in _PICTURES:
        raise UsageError(
            f"{name} holds {schema}, which has a picture of its own: {name}/{_PICTURES[schema]}"
        )
    raise UsageError(
        f"{name} holds {printable(schema)}: expected {RunResult.schema} or "
        f"{ProfileResult.schema}, as this version's emucoll run --out and profile --out write"
    )


def _decoded(data: bytes, schema: str, name: str) -> Result:
    try:
        if schema == ProfileResult.schema:
            return decode(data, ProfileResult)
        return decode(data, RunResult)
    except UsageError as error:
        raise UsageError(
            f"{name}/{RESULT_FILE} lacks what this version of emucoll writes ({error}): "
            f"{_MADE_BY.format(name)}"
        ) from error
