import re
from pathlib import Path

import msgspec
import pytest

from harness.report.failure import render_failure
from harness.report.table import align, render
from harness.results.schema import (
    Formation,
    RunError,
    RunResult,
    RunWarning,
    Waiting,
    WrongBlock,
    failure,
)
from harness.spec import Spec
from tests.unit.report.results import failed_run, gather, phase, whole_run

GOLDEN = Path(__file__).parent / "golden"


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
