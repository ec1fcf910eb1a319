"""What the processes of a run do, sample by sample: py-spy on each of them, folded by role.

Runs that are sampled are runs of their own: nothing else is measured in them. Short ones are
brought up again and again, on the same servers, until there is enough to see.
"""

import math
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from harness.engine.calibrate import RunFailed, Silent
from harness.engine.loopback import run
from harness.profiling.spec import ProfileSpec
from harness.results.samples import Sampled
from harness.results.schema import RunWarning

EVERY_S = 0.005
"""Between two samples of a process."""
ENOUGH_S = 3.0
"""Of a run, to be sampled."""
MOST_BRING_UPS = 16
PATIENCE_S = 20.0
"""For py-spy to begin, and to end."""
_LINE = re.compile(r"(.*) (\d+)")
_IMPORTING = ("<frozen importlib", "_run_module_code")
_BETWEEN = re.compile(r"(^|;)_(work|prepare) \(harness/control/worker\.py:\d+\)$|^$")
"""Collecting what an earlier bring-up left."""
_STARTED = b"Sampling process"


class NotSampled(Exception):
    """Why not, and what to do."""


class Sampler:
    """Samples all processes of one run."""

    def __init__(self) -> None:
        """Nothing yet. Raises NotSampled where py-spy is missing."""
        beside = Path(sys.executable).parent
        found = shutil.which("py-spy", path=f"{beside}{os.pathsep}{os.environ.get('PATH', '')}")
        if found is None:
            raise NotSampled("py-spy is missing: pip install py-spy")
        self._program = found
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._folder = tempfile.TemporaryDirectory(prefix="emucoll-")

    def __enter__(self) -> "Sampler":
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """Whatever came of it, nothing is left."""
        for process in self._running.values():
            if process.poll() is None:
                process.kill()
            process.wait()
        self._folder.cleanup()

    def attach(self, pids: Mapping[str, int]) -> None:
        """Sample these processes, by name, until they end; returns when all are being sampled, or
        cannot be.
        """
        for name, pid in {**pids, "controller": os.getpid()}.items():
            with self._file(name, "said").open("wb") as said:
                self._running[name] = subprocess.Popen(
                    [
                        *(self._program, "record", "--pid", str(pid), "--format", "raw"),
                        *("--function", "--nonblocking", "--rate", str(round(1 / EVERY_S))),
                        *("--duration", "86400", "--output", str(self._file(name, "raw"))),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=said,
                    stderr=said,
                )
        until = time.monotonic() + PATIENCE_S
        while time.monotonic() < until:
            if all(self._began_or_ended(name) for name in self._running):
                return
            time.sleep(0.005)

    def _began_or_ended(self, name: str) -> bool:
        ended = self._running[name].poll() is not None
        return ended or _STARTED in self._file(name, "said").read_bytes()

    def collect(self) -> dict[str, Counter[str]]:
        """By role, how often which stack was seen; call it when the run is over. Raises NotSampled
        where nothing could be seen at all.
        """
        self._running["controller"].send_signal(2)  # it would go on for as long as we do
        found: dict[str, Counter[str]] = {}
        for name, process in self._running.items():
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
            raw = self._file(name, "raw")
            if raw.exists():
                role = "rank" if name.startswith("worker") else name
                found.setdefault(role, Counter()).update(folded(raw.read_text(errors="replace")))
        if not any(found.values()):
            raise NotSampled(self._why_not())
        return found

    def _why_not(self) -> str:
        said = self._file("worker 0", "said")
        words = said.read_text(errors="replace") if said.exists() else ""
        if "ermission" in words:
            return (
                "py-spy may not look into other processes here: run as root, give the container "
                "CAP_SYS_PTRACE, or set kernel.yama.ptrace_scope to 0"
            )
        last = words.strip().splitlines()[-1:] or ["it said nothing"]
        return f"py-spy saw nothing: {last[0]}"

    def _file(self, name: str, kind: str) -> Path:
        return Path(self._folder.name) / f"{name}.{kind}"


def folded(raw: str) -> Counter[str]:
    """py-spy's raw form: a stack from its outermost function on, joined by `;`, and its count. What
    a process does before and between bring-ups is left out.
    """
    counts: Counter[str] = Counter()
    for line in raw.splitlines():
        match = _LINE.fullmatch(line)
        if match is not None and _is_of_a_run(match[1]):
            counts[match[1]] += int(match[2])
    return counts


def _is_of_a_run(stack: str) -> bool:
    return not any(each in stack for each in _IMPORTING) and not _BETWEEN.search(stack)


def sample(
    spec: ProfileSpec,
    totals_s: Mapping[int, float],
    progress: Callable[[str, float], None],
) -> tuple[list[Sampled], list[RunWarning]]:
    """One sampled run of each size; `totals_s` says how long one takes. Raises RunFailed."""
    found: list[Sampled] = []
    for number, n in enumerate(spec.n):
        progress(f"samples: {n} ranks", number / len(spec.n))
        bring_ups = min(MOST_BRING_UPS, math.ceil(ENOUGH_S / max(totals_s[n], 1e-3)))
        of_run = msgspec.structs.replace(spec.run_of(n), restarts=bring_ups - 1)
        try:
            with Sampler() as sampler:
                result = run(of_run, Silent(), sampler.attach)
                if not result.ok:
                    raise RunFailed(result)
                by_role = sampler.collect()
        except NotSampled as error:
            text = f"no function was seen at {n} ranks, so none is named: {error}"
            return found, [RunWarning(code="not-sampled", text=text)]
        found += [_sampled(role, n, bring_ups, counts) for role, counts in by_role.items()]
    return found, []


def _sampled(role: str, n: int, bring_ups: int, counts: Counter[str]) -> Sampled:
    stacks = counts.most_common()
    return Sampled(
        role=role,
        n=n,
        bring_ups=bring_ups,
        every_s=EVERY_S,
        stacks=[stack.split(";") for stack, _ in stacks],
        counts=[count for _, count in stacks],
    )
