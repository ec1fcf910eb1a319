"""A real NCCL root: NVIDIA's own library, which starts a root thread without any GPU or driver.

For a process of its own, since the root lives in the process that asked for the unique id, and
ends with it. What NCCL 2.18.3 to 2.32.3 do to that process:

- With `NCCL_DEBUG` at INFO, the library logs to the C library's stdout, which no data should share.
  (`NCCL_DEBUG_FILE=/dev/stderr` is no way out: it truncates a stderr that is a file.)
- The root thread raises the soft limit of open files to the hard one, for the whole process. It
  needs few itself: it holds the listener and one connection at a time.
- It costs little memory (15 MiB resident, Python included), though the library has 400 MB.

Holds true: one root per `unique_id`, for one formation; its thread ends when all ranks have
checked in, or at the first one it dislikes. Must not know the ranks, nor who waits for the id.
"""

import ctypes
import ctypes.util
import importlib.metadata
import os
from pathlib import Path
from typing import Any

from emucoll.errors import HarnessError, UsageError
from emucoll.wire.nccl import DEFAULT_COMM_MAGIC, UNIQUE_ID_BYTES, UniqueId

_SONAME = "libnccl.so.2"
_WHEELS = ("nvidia-nccl-cu12", "nvidia-nccl-cu13")
_WHEEL_FILE = f"nvidia/nccl/lib/{_SONAME}"
_SUCCESS = 0
_INVALID_USAGE = 5
_NO_INTERFACE = "no socket interface"
"""What releases up to 2.23 say, and call it an internal error."""


def find_library(path: str | None = None) -> Path:
    """Where libnccl is: at `path`, else in NVIDIA's wheel, else where the dynamic linker looks.

    The result may be the bare name `libnccl.so.2`, if only the dynamic linker knows the rest.
    Imports neither torch nor anything of NVIDIA's. Raises UsageError if there is none.
    """
    if path is not None:
        if not Path(path).is_file():
            raise UsageError(
                f"there is no libnccl at {path}: "
                f"{'it is a folder' if Path(path).is_dir() else 'no such file'}. "
                "`pip install nvidia-nccl-cu12` (or `pip install 'emucoll[interop]'`) gets one, "
                "which --root libnccl then finds"
            )
        return Path(path)
    found = _in_wheels() or _in_library_path()
    if found is not None:
        return found
    name = ctypes.util.find_library("nccl")
    if name is not None:
        return Path(name)
    raise UsageError(
        f"a real root needs {_SONAME}, and this machine has none. "
        "Get it with `pip install nvidia-nccl-cu12` (or `pip install 'emucoll[interop]'`), "
        "or give the path of one"
    )


def _in_wheels() -> Path | None:
    for wheel in _WHEELS:
        try:
            distribution = importlib.metadata.distribution(wheel)
        except importlib.metadata.PackageNotFoundError:
            continue
        path = Path(str(distribution.locate_file(_WHEEL_FILE)))
        if path.is_file():
            return path
    return None


def _in_library_path() -> Path | None:
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    candidates = (Path(folder) / _SONAME for folder in folders if folder)
    return next((path for path in candidates if path.is_file()), None)


class LibncclRoot:
    """libnccl, loaded into this process, as a maker of roots.

    `library` is what `find_library` returned; `interface` is the exact name of the network
    interface whose first address (IPv4 before IPv6, as a rule) the roots listen on. Sets
    `NCCL_SOCKET_IFNAME` in this process's environment. Other variables are the user's:
    `NCCL_SOCKET_FAMILY` (AF_INET or AF_INET6) chooses the family, but NCCL passes over the IPv6
    loopback address ::1 always.

    Raises UsageError if the file can't be loaded or isn't libnccl.
    """

    def __init__(self, library: Path, interface: str = "lo") -> None:
        os.environ["NCCL_SOCKET_IFNAME"] = f"={interface}"  # without = it would be a prefix
        self._library = library
        self._interface = interface
        try:
            self._nccl = ctypes.CDLL(str(library))
        except OSError as error:
            raise UsageError(f"{library} can't be loaded as libnccl: {error}") from error
        self._get_version = self._function("ncclGetVersion")
        self._get_unique_id = self._function("ncclGetUniqueId")
        self._get_error_string = self._function("ncclGetErrorString")
        self._get_error_string.restype = ctypes.c_char_p

    def version(self) -> int:
        """`ncclGetVersion`'s number, such as 22809 for 2.28.9."""
        version = ctypes.c_int()
        self._check("ncclGetVersion", self._get_version(ctypes.byref(version)))
        return version.value

    def unique_id(self) -> UniqueId:
        """Start another root thread; returns the id that its ranks need.

        Raises UsageError if the interface has no usable address, or if `NCCL_COMM_ID` makes NCCL
        leave the root to a rank; HarnessError if the library fails otherwise.
        """
        buffer = ctypes.create_string_buffer(UNIQUE_ID_BYTES)
        self._check("ncclGetUniqueId", self._get_unique_id(buffer))
        unique_id = UniqueId.unpack(buffer.raw)
        # 2.18 draws a magic all the same.
        if unique_id.magic == DEFAULT_COMM_MAGIC or os.environ.get("NCCL_COMM_ID"):
            raise UsageError(
                "NCCL_COMM_ID is set, in the environment or in an nccl.conf: libnccl then starts "
                f"no root, but expects one at {unique_id.root}. Unset it"
            )
        return unique_id

    def _function(self, name: str) -> Any:
        try:
            return getattr(self._nccl, name)
        except AttributeError:
            raise UsageError(f"{self._library} is not libnccl: it has no {name}") from None

    def _check(self, what: str, result: int) -> None:
        if result == _SUCCESS:
            return
        text = self._get_error_string(result).decode(errors="replace")
        detail = self._last_error()
        message = f"{what} of {self._library} failed: {text}" + (f": {detail}" if detail else "")
        if result == _INVALID_USAGE or _NO_INTERFACE in detail.lower():
            family = os.environ.get("NCCL_SOCKET_FAMILY")
            only = f" of family {family} (NCCL_SOCKET_FAMILY)" if family else ""
            raise UsageError(
                f"{message}. Has interface {self._interface} an address{only} other than ::1?"
            )
        raise HarnessError(message)

    def _last_error(self) -> str:
        """What NCCL last warned of; empty before 2.13, which can't tell."""
        last_error = getattr(self._nccl, "ncclGetLastError", None)
        if last_error is None:
            return ""
        last_error.restype = ctypes.c_char_p
        return str(last_error(None).decode(errors="replace"))
