import re
from pathlib import Path

import msgspec
import pytest

from harness.report.failure import render_failure
from harness.report.table import align, render
from harness.results.environment import Environment
from harness.results.schema import (
    AllGather,
    Descriptors,
    Formation,
    Memory,
    Phase,
    RunError,
    RunResult,
    RunWarning,
    Waiting,
    Work,
    WorkByRole,
    WrongBlock,
    bandwidth,
    failure,
)
from harness.spec import RankFault, Spec

GOLDEN = Path(__file__).parent / "golden"

ENVIRONMENT = Environment(
    version="0.1.0",
    python="3.11.7",
    kernel="Linux 6.1.0",
    cores=2,
    memory_bytes=24 * 2**30,
    nofile=20000,
    loop="uvloop",
    cpu_model="Some CPU @ 2.50GHz",
    load_average=0.31,
)


def gather(name: str, steps: int, seconds: float, **more: object) -> AllGather:
    algbw, busbw = bandwidth(98304, 28, steps * 98304, seconds)
    counted = AllGather(
        name=name,
        record_bytes=28,
        seconds=seconds,
        steps=steps,
        of_steps=98303,
        transfers=steps * 98304,
        transfers_per_s=steps * 98304 / seconds,
        algbw=algbw,
        busbw=busbw,
        wrong=0,
    )
    return msgspec.structs.replace(counted, **more)


def phase(name: str, mean_s: float, within: str | None = None, cpu_s: float = 1.0) -> Phase:
    return Phase(
        name=name,
        mean_s=mean_s,
        p50_s=mean_s,
        p99_s=mean_s + 1,
        max_s=mean_s + 2,
        cpu_s=cpu_s,
        within=within,
    )


def whole_run() -> RunResult:
    return RunResult(
        kind="measured",
        spec=Spec(nranks=98304, out="out/demo"),
        environment=ENVIRONMENT,
        seed=1,
        ok=True,
        exit_code=0,
        nranks=98304,
        workers=16,
        start_window=512,
        total_s=63.712,
        mean_total_s=61.2,
        formation=Formation(name="tcpstore", seconds=24.9, ranks_per_s=3947.95),
        allgathers=[
            gather(
                "ring-pipelined",
                98303,
                38.8,
                flow="cut-through",
                frames="bare",
                reads=2700000,
                writes=2600000,
                blocks_per_read=3579.1,
                note="cut-through is emucoll's own, not NCCL's: it coalesces blocks and does not "
                "exercise a per-step cost.",
            )
        ],
        wrong=0,
        phases=[
            phase("admission", 3.0, within="run"),
            phase("bootstrap", 22.0, cpu_s=25.0),
            phase("bootstrap.ring", 12.0, within="bootstrap", cpu_s=5.0),
            phase("allgathers", 38.0, cpu_s=80.0),
            phase("rest", 1.2),
        ],
        work=WorkByRole(
            ranks=Work(
                messages=9664069632,
                bytes=270580187136,
                connections=294912,
                retries=3,
                syscalls=9000000,
                cpu_s=100.5,
                peak_rss_bytes=2 * 2**30,
            ),
            store=Work(requests=491520, cpu_s=13.3, peak_rss_bytes=200 * 2**20),
        ),
        memory=Memory(
            rss_bytes_per_rank=15000.0, peak_rss_bytes=2 * 2**30, kernel_socket_bytes=3 * 2**29
        ),
        descriptors=Descriptors(held_per_rank=3.0, peak_per_worker=18440),
        saturated=True,
        warnings=[
            RunWarning(
                code="start-window",
                text="a start window of 512 ranks per worker was needed, so the connect storm of a "
                "real start was not emulated",
            )
        ],
    )


def failed_run() -> RunResult:
    return RunResult(
        kind="measured",
        spec=Spec(nranks=8, inject=(RankFault(rank=7, what="never-start"),), deadline_s=10.0),
        environment=ENVIRONMENT,
        seed=1,
        ok=False,
        exit_code=3,
        nranks=8,
        workers=2,
        formation=Formation(name="tcpstore"),
        error=RunError(
            what="deadline of 10 s reached: 3 of 8 ranks had not formed",
            evidence="Traceback:\n  in form\n\tDeadlineExceeded",
            cause="rank 7 never started",
            next="run again without --inject rank=7:never-start",
            rank=7,
            phase="admission",
            peer="store",
            worker=1,
            waiting=[
                Waiting(rank=6, phase="bootstrap.ring", for_=7),
                Waiting(rank=0, phase="bootstrap.recv", for_="store"),
                Waiting(rank=5),
            ],
        ),
    )


@pytest.mark.parametrize(
    ("name", "result"), [("run.txt", whole_run()), ("failure.txt", failed_run())]
)
def test_the_table_is_as_it_was(name: str, result: RunResult) -> None:
    assert render(result) == (GOLDEN / name).read_text(encoding="utf-8")


def rows(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if not line.startswith("#")]


def test_what_reads_nccl_tests_reads_this() -> None:
    text = render(whole_run())
    [row] = rows(text)
    assert row[:9] == [
        *("2752512", "28", "uint8", "none", "-1"),
        *("38800000", "7.09e-05", "7.09e-05", "0"),
    ]
    assert re.search(
        r"^# +size +count +type +redop +root +time +algbw +busbw +#wrong", text, re.MULTILINE
    )
    assert re.search(r"^# +\(B\) +\(elements\) +\(us\) +\(GB/s\) +\(GB/s\)$", text, re.MULTILINE)


def test_a_part_of_the_steps_is_marked_in_its_row_and_in_words() -> None:
    result = msgspec.structs.replace(whole_run(), allgathers=[gather("ring", 256, 0.5)])
    text = render(result)
    [row] = rows(text)
    assert row[0] == str(257 * 28)
    assert row[-4:] == ["ring", "256", "of", "98303"]
    assert "only the first 256 of 98303 steps ran; nothing is extrapolated" in text


def test_all_of_the_steps_are_not_marked() -> None:
    assert " of 98303" not in render(whole_run())
    steps_unknown = gather("ring", 256, 0.5, of_steps=None)
    text = render(msgspec.structs.replace(whole_run(), allgathers=[steps_unknown]))
    assert "extrapolated" not in text


@pytest.mark.parametrize(
    ("seconds", "time"),
    [(38.8, "38800000"), (0.0123456, "12346"), (0.0012345, "1234.5"), (12.346e-6, "12.35")],
)
def test_times_have_the_precision_of_nccl_tests(seconds: float, time: str) -> None:
    result = msgspec.structs.replace(whole_run(), allgathers=[gather("ring", 98303, seconds)])
    assert rows(render(result))[0][5] == time


def test_wrong_blocks_fail_the_table_and_are_named() -> None:
    result = msgspec.structs.replace(
        whole_run(),
        ok=False,
        exit_code=1,
        wrong=3,
        allgathers=[gather("ring", 98303, 1.0, wrong=3)],
        wrong_blocks=[WrongBlock(rank=8, block=7, what="byte 0 is 0x7f, expected 0x80")],
    )
    text = render(result)
    assert rows(text)[0][8] == "3"
    assert "# Out of bounds values : 3 FAILED" in text
    assert "# WRONG rank 8, block 7: byte 0 is 0x7f, expected 0x80" in text
    assert "# and 2 more wrong blocks" in text
    assert "\n# FAILED\n" in text


def test_what_was_not_verified_is_not_called_right() -> None:
    result = msgspec.structs.replace(
        whole_run(), wrong=None, allgathers=[gather("ring", 98303, 1.0, wrong=None)]
    )
    assert rows(render(result))[0][8] == "N/A"
    assert "Out of bounds" not in render(result)


def test_phases_lie_beneath_what_they_are_within_and_admission_outside_the_sum() -> None:
    lines = render(whole_run()).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("# phase"))
    names = [line[2:25].rstrip() for line in lines[start + 2 : start + 8]]
    assert names == [
        "bootstrap",
        "  bootstrap.ring",
        "allgathers",
        "rest",
        "mean total",
        "outside it: admission",
    ]


def test_phases_within_each_other_end() -> None:
    circle = [phase("a", 1.0), phase("a", 1.0, within="a"), phase("b", 1.0, within="b")]
    assert "# a " in render(msgspec.structs.replace(whole_run(), phases=circle))


def test_no_control_character_reaches_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    nasty = "\x1b[31m\x07\r\x9b2J\u202e\udcff"
    result = msgspec.structs.replace(
        failed_run(),
        spec=Spec(nranks=8, formation=nasty, out=nasty, root=nasty),
        formation=Formation(name=nasty),
        error=RunError(what=nasty, evidence=nasty, phase=nasty, peer=nasty, waiting=[]),
        warnings=[RunWarning(code="x", text=nasty)],
        wrong_blocks=[WrongBlock(rank=1, block=None, what=nasty)],
        phases=[phase(nasty, 1.0)],
        allgathers=[gather(nasty, 3, 1.0, note=nasty)],
    )
    for text in (render(result), render_failure(result)):
        assert all(character.isprintable() or character == "\n" for character in text)
        text.encode()


def test_many_waiting_ranks_are_counted() -> None:
    waiting = [Waiting(rank=rank, for_=rank + 1) for rank in range(98303)]
    error = RunError(what="stuck", waiting=waiting)
    text = render(msgspec.structs.replace(failed_run(), error=error))
    assert "rank 0 waits for rank 1" in text
    assert "and 98283 more" in text
    assert len(text) < 10_000


def test_a_failure_alone_is_for_stderr() -> None:
    text = render_failure(failure("no formation is called 'x'", next="use tcpstore"))
    assert text == "FAILED: no formation is called 'x'\n  next: use tcpstore\n"
    assert render_failure(whole_run()) == ""


def test_an_empty_failure_is_a_table_too() -> None:
    assert render(failure("nothing ran")) == "# FAILED: nothing ran\n"


@pytest.mark.parametrize("result", [whole_run(), failed_run()])
def test_every_line_but_the_data_is_a_comment_of_100_columns(result: RunResult) -> None:
    text = render(result)
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith(("#", "  ")), line
        assert len(line) <= 110, line
        assert line == line.rstrip()


def test_where_the_result_lies_is_said_last() -> None:
    assert render(whole_run()).splitlines()[-1] == (
        "# Result: out/demo/result.json, every rank's times: out/demo/ranks.npz"
    )
    assert "not kept" in render(failed_run()).splitlines()[-1]


def test_what_loopback_cannot_tell_is_said() -> None:
    text = " ".join(render(whole_run()).replace("#", " ").split())
    assert "wall time on 2 cores is the sum of all ranks' work, not a cluster's time" in text
    assert "This run was saturated" in text
    quiet = render(msgspec.structs.replace(whole_run(), saturated=False))
    assert "saturated" not in quiet


def test_columns_are_as_wide_as_their_cells() -> None:
    assert align([("a", "bb"), ("ccc", "d")]) == ["# a    bb", "# ccc   d"]
