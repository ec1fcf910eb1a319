"""A run's directory: result.json, ranks.npz (each rank's time per phase), recording.npz (see
`harness.results.recording`), pids.json and, where there are external ranks, rendezvous.json. That
of `emucoll ett`: result.json and ett.html. `emucoll report` puts report.html there, and of what was
sampled a flame graph and a speedscope file for each role.

Files appear whole or not at all: they are written beside their place and renamed. result.json comes
last, so where it is, the others belong to it. What the system refuses is a UsageError with its
reason. Runs nothing.
"""

import contextlib
import errno
import io
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from emucoll.errors import UsageError
from harness.results.codec import from_json, to_json
from harness.results.projection import ProjectResult
from harness.results.schema import EttResult, RunResult

RESULT_FILE = "result.json"
RANKS_FILE = "ranks.npz"
RECORDING_FILE = "recording.npz"
SAMPLES_FILE = "samples.json"
PIDS_FILE = "pids.json"
RENDEZVOUS_FILE = "rendezvous.json"
PICTURE_FILE = "ett.html"
PROJECTION_FILE = "projection.html"
REPORT_FILE = "report.html"
ROLES = ("rank", "root", "store", "controller")
"""Whose code may have been sampled; a report has files of each."""
FLAMES, SPEEDSCOPE = ".svg", ".speedscope.json"
"""What follows the role in their names."""
_PICTURES = (
    PICTURE_FILE,
    PROJECTION_FILE,
    REPORT_FILE,
    *(f"{role}{ending}" for role in ROLES for ending in (FLAMES, SPEEDSCOPE)),
)


class Pids(msgspec.Struct, frozen=True, kw_only=True):
    """Process ids of a run; a worker's index is its place in `workers`."""

    controller: int | None = None
    root: int | None = None
    store: int | None = None
    workers: list[int] = []


class Rendezvous(msgspec.Struct, frozen=True, kw_only=True):
    """What an external rank has to know to join the others."""

    nranks: int
    external_ranks: list[int]
    magic: str
    """Of every connection between ranks, hexadecimal."""
    comm: str
    """Name of the communicator, part of its keys in a store."""
    roots: list[str]
    """HOST:PORT of each."""
    unique_ids: list[str]
    """Theirs, 128 bytes in hexadecimal."""
    check_in_bytes: int | None
    """What the roots take for a check-in: 64, 172 or 176; null without a root."""
    store: str | None
    """HOST:PORT; null without one."""
    environment: list[dict[str, str]]
    """For each external rank what launchers set: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE,
    and MASTER_ADDR and MASTER_PORT, of the store or else of the first root.
    """


def check_writable(directory: str | os.PathLike[str]) -> None:
    """Create `directory` with its parents and write to it, so that a run does not end without a
    place for its result. What an earlier run left there is removed: it must not look like this
    one's.
    """
    path = Path(directory)
    probe = path / f".emucoll-{os.getpid()}.tmp"
    try:
        path.mkdir(parents=True, exist_ok=True)
        with probe.open("wb") as file:
            file.write(b"?")
        probe.unlink()
        for name in (
            RESULT_FILE,
            RANKS_FILE,
            RECORDING_FILE,
            SAMPLES_FILE,
            PIDS_FILE,
            RENDEZVOUS_FILE,
            *_PICTURES,
        ):
            (path / name).unlink(missing_ok=True)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the name
        _remove(probe)
        raise UsageError(
            f"cannot write results to {_name(path)}: {_reason(error)}; choose another --out"
        ) from error


def save(
    result: RunResult,
    ranks: Mapping[str, npt.NDArray[np.float64]],
    directory: str | os.PathLike[str],
    recording: bytes | None = None,
) -> None:
    """Write result.json and ranks.npz: per phase an array of seconds whose index is the rank; and
    recording.npz, if there is one.

    Raises UsageError.

    What an earlier run left in `directory` is replaced.
    """
    for phase, times in ranks.items():
        assert times.ndim == 1, (
            f"phase {phase}: expected one time per rank, not the shape {times.shape}"
        )
    path = Path(directory)
    packed = io.BytesIO()
    np.savez(packed, **_named(ranks))
    try:
        path.mkdir(parents=True, exist_ok=True)
        (path / RESULT_FILE).unlink(missing_ok=True)
        if recording is not None:
            _write(path / RECORDING_FILE, recording)
        _write(path / RANKS_FILE, packed.getbuffer())
        _write(path / RESULT_FILE, to_json(result))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write results to {_name(path)}: {_reason(error)}") from error


def save_with_picture(
    result: EttResult | ProjectResult,
    picture: str,
    directory: str | os.PathLike[str],
    name: str = PICTURE_FILE,
) -> None:
    """Write result.json and the picture. Raises UsageError."""
    path = Path(directory)
    try:
        _write(path / name, picture.encode(errors="backslashreplace"))
        _write(path / RESULT_FILE, to_json(result))
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write results to {_name(path)}: {_reason(error)}") from error


def check_file_writable(file: str, flag: str = "--out") -> None:
    """Make the folder of `file` and write there, so that what is measured has a place at its end;
    what is there already stays. Raises UsageError, which names the flag that says where.
    """
    path = Path(file)
    probe = _beside(path)
    try:
        if path.exists() and not path.is_file():  # a device would be replaced, too
            raise OSError(errno.EINVAL, "it is a folder" if path.is_dir() else "it is no file")
        path.parent.mkdir(parents=True, exist_ok=True)
        with probe.open("wb") as opened:
            opened.write(b"?")
        probe.unlink()
    except (OSError, ValueError) as error:
        _remove(probe)
        raise UsageError(
            f"cannot write {_name(path)}: {_reason(error)}; choose another place with {flag}"
        ) from error


def save_file(data: bytes, file: str) -> None:
    """Write one file. Raises UsageError."""
    path = Path(file)
    try:
        _write(path, data)
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write {_name(path)}: {_reason(error)}") from error


def save_pids(pids: Pids, directory: str | os.PathLike[str]) -> None:
    """Write pids.json. Raises UsageError."""
    _save_json(pids, Path(directory) / PIDS_FILE)


def save_rendezvous(rendezvous: Rendezvous, directory: str | os.PathLike[str]) -> None:
    """Write rendezvous.json. Raises UsageError."""
    _save_json(rendezvous, Path(directory) / RENDEZVOUS_FILE)


def remove_rendezvous(directory: str | os.PathLike[str]) -> None:
    """The run is over: nobody can join any more."""
    _remove(Path(directory) / RENDEZVOUS_FILE)


def _save_json(value: msgspec.Struct, path: Path) -> None:
    try:
        _write(path, msgspec.json.format(msgspec.json.encode(value)) + b"\n")
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot write {_name(path)}: {_reason(error)}") from error


def load(directory: str | os.PathLike[str]) -> tuple[RunResult, dict[str, npt.NDArray[np.float64]]]:
    """What `save` wrote. Raises UsageError if it is not there, or not what this version reads."""
    path = Path(directory)
    try:
        result = from_json((path / RESULT_FILE).read_bytes())
        # Opened here: numpy leaves it open where the archive is damaged.
        with (path / RANKS_FILE).open("rb") as file, np.load(file, allow_pickle=False) as packed:
            ranks = {phase: packed[phase] for phase in packed.files}
    except UsageError as error:
        raise UsageError(f"{_name(path / RESULT_FILE)}: {error}") from error
    except Exception as error:  # zipfile, zlib and numpy have a dozen kinds for a damaged archive
        raise UsageError(f"cannot read the results in {_name(path)}: {_reason(error)}") from error
    return result, ranks


def _named(ranks: Mapping[str, npt.NDArray[np.float64]]) -> dict[str, Any]:
    """Keyword arguments for numpy, of a type that it never pickles."""
    assert not {"file", "allow_pickle"} & set(ranks), "numpy takes these names for itself"
    return {phase: np.asarray(times, dtype=np.float64) for phase, times in ranks.items()}


def _write(path: Path, data: bytes | memoryview) -> None:
    """Whole or not at all: a reader never sees half a file, nor does a full disk leave one."""
    temporary = _beside(path)
    try:
        with temporary.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        _remove(temporary)
        raise


def _beside(path: Path) -> Path:
    """Where it is written before it takes its place."""
    return path.parent / f".{path.name}-{os.getpid()}.tmp"


def _remove(path: Path) -> None:
    # That it was never there is no news: the error that led here says more.
    with contextlib.suppress(OSError, ValueError):
        path.unlink(missing_ok=True)


def _name(path: Path) -> str:
    return repr(str(path))


def _reason(error: Exception) -> str:
    return (
        (error.strerror if isinstance(error, OSError) else None)
        or str(error)
        or type(error).__name__
    )
