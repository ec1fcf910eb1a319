"""Samples: what py-spy writes, and what it sees of a real run."""

import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from harness.profiling import sampling
from harness.profiling.functions import hottest, own_counts, own_times
from harness.profiling.sampling import NotSampled, Sampler, folded
from harness.results.samples import Sampled, Samples, load_samples, save_samples

RAW = """\
main (a.py:1);serve (b.py:2);read (b.py:9) 12
main (a.py:1);serve (b.py:2) 3
<module> (x.py:1);_call_with_frames_removed (<frozen importlib._bootstrap>:241) 9
main (a.py:1);_work (harness/control/worker.py:440) 5
 7
not a line
"""


def test_what_a_run_does_not_do_is_left_out() -> None:
    assert folded(RAW) == {
        "main (a.py:1);serve (b.py:2);read (b.py:9)": 12,
        "main (a.py:1);serve (b.py:2)": 3,
    }


def sampled(role: str, n: int, counts: Mapping[str, int], bring_ups: int = 1) -> Sampled:
    return Sampled(
        role=role,
        n=n,
        bring_ups=bring_ups,
        every_s=0.01,
        stacks=[stack.split(";") for stack in counts],
        counts=list(counts.values()),
    )


def test_own_time_is_of_one_rank_in_one_bring_up() -> None:
    few = sampled("rank", 10, {"a (x.py:1);b (x.py:2)": 40, "a (x.py:1)": 4}, bring_ups=4)
    many = sampled("rank", 20, {"a (x.py:1);b (x.py:2)": 160, "c (x.py:9);b (x.py:2)": 40})
    own = own_times([few, many])
    assert set(own) == {("rank", "b (x.py:2)")}  # a is not seen at the largest size
    assert own["rank", "b (x.py:2)"].seconds == {10: 0.01, 20: pytest.approx(0.1)}
    assert own["rank", "b (x.py:2)"].off[20] == pytest.approx(200**-0.5)


def test_the_hottest_is_of_the_file_where_it_was_seen() -> None:
    few = sampled("store", 10, {"serve (s.py:1);scan (u.py:5);zip (z.py:1)": 5, "poll (p.py:1)": 9})
    assert hottest([few], "store", "u.py") == "scan (u.py:5)"
    assert hottest([few], "store", "nowhere.py") == "poll (p.py:1)"
    assert hottest([few], "root", None) is None
    assert own_counts(few)["zip (z.py:1)"] == 5


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    assert load_samples(str(tmp_path)) is None
    samples = Samples(sampled=[sampled("root", 7, {"a (x.py:1)": 1})])
    save_samples(samples, str(tmp_path))
    assert load_samples(str(tmp_path)) == samples


def test_py_spy_sees_a_busy_process(monkeypatch: pytest.MonkeyPatch) -> None:
    code = "def burn():\n while True: pass\nprint(1, flush=True)\nburn()"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as busy:
        assert busy.stdout is not None
        busy.stdout.readline()
        with Sampler() as sampler:
            sampler.attach({"worker 0": busy.pid})
            until = time.process_time() + 0.0
            while time.process_time() - until < 0.3:
                pass
            busy.kill()
            found = sampler.collect()
    assert any("burn" in stack for stack in found["rank"])
    assert set(found) <= {"rank", "controller"}


def test_without_py_spy_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(sampling.sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NotSampled, match="pip install py-spy"):
        Sampler()


def test_where_it_may_not_look_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fake = tmp_path / "py-spy"
    fake.write_text("#!/bin/sh\necho 'Error: Permission Denied: Try running again'\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sampling.sys, "executable", str(tmp_path / "python"))
    with Sampler() as sampler:
        sampler.attach({"worker 0": os.getpid()})
        with pytest.raises(NotSampled, match="CAP_SYS_PTRACE"):
            sampler.collect()
