"""recording.npz of a run's directory: when each rank was in which phase and whom it waited for, and
what servers and workers did over time.

Arrays only, no object among them. Times are seconds since the start. Calculates nothing.
"""

import io
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from emucoll.errors import UsageError
from harness.results.storage import RECORDING_FILE

_SERIES = "series."
_COLUMNS = ("rank", "phase", "peer", "begin", "end")


@dataclass(frozen=True)
class Recording:
    """All spans of all ranks, in the order of their ends within each worker; spans nest. The arrays
    have one entry a span.
    """

    names: list[str]
    """Of phases."""
    rank: npt.NDArray[np.int32]
    phase: npt.NDArray[np.uint16]
    """Indices into `names`."""
    peer: npt.NDArray[np.int32]
    """Whom it may have waited for there: a rank, or a constant of `emucoll.spans`."""
    begin: npt.NDArray[np.float64]
    end: npt.NDArray[np.float64]
    series: dict[str, dict[str, npt.NDArray[np.float64]]] = field(default_factory=dict)
    """By process (`root`, `store`, `worker 0` …) and column (`t`, `cpu_s`, …) one value a sample.
    What a process cannot tell is not there.
    """


def packed_recording(recording: Recording) -> bytes:
    """As the file holds it."""
    packed = io.BytesIO()
    arrays = {name: getattr(recording, name) for name in _COLUMNS}
    for process, columns in recording.series.items():
        arrays |= {f"{_SERIES}{process}.{name}": values for name, values in columns.items()}
    np.savez(packed, names=np.array(recording.names, dtype=np.str_), **arrays)
    return packed.getvalue()


def load_recording(directory: str) -> Recording | None:
    """What a run has left there; None where there is none. Raises UsageError for what is
    damaged.
    """
    path = Path(directory) / RECORDING_FILE
    if not path.exists():
        return None
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as packed:
            series: dict[str, dict[str, npt.NDArray[np.float64]]] = {}
            for key in packed.files:
                if key.startswith(_SERIES):
                    process, _, name = key.removeprefix(_SERIES).rpartition(".")
                    series.setdefault(process, {})[name] = packed[key]
            columns = {name: packed[name] for name in _COLUMNS}
            return Recording([str(name) for name in packed["names"]], **columns, series=series)
    except Exception as error:  # zipfile, zlib and numpy have a dozen kinds for a damaged archive
        raise UsageError(f"cannot read {path}: {error}") from error
