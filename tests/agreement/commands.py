"""The real command, run as users run it."""

import subprocess
import sys
from pathlib import Path

from harness.results.codec import from_json
from harness.results.schema import RunResult

CHECKOUT = Path(__file__).resolve().parents[2]


def emucoll_run(*flags: object, timeout_s: float = 110.0) -> RunResult:
    """`emucoll run FLAGS --json`: the one document on stdout. Its exit code must agree."""
    command = [sys.executable, "-m", "harness.cli.main", "run", *map(str, flags), "--json"]
    with subprocess.Popen(
        command, cwd=CHECKOUT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        try:
            out, progress = process.communicate(timeout=timeout_s)
        except BaseException:
            process.terminate()  # the controller stops its processes
            raise
    assert out, progress.decode()
    result = from_json(out)
    assert result.exit_code == process.returncode, progress.decode()
    return result
