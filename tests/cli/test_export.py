"""`emucoll export`: what it writes, its document, bad input."""

from pathlib import Path

import pytest

from tests.cli.command import Commands


def test_a_schedule_on_stdout_and_in_a_file(emucoll: Commands, tmp_path: Path) -> None:
    flags = ("--goal", "-np", 8, "--allgather", "ring-bidir")
    shown = emucoll("export", *flags)
    assert (shown.exit_code, shown.err) == (0, "")
    assert shown.out.startswith(b"num_ranks 8\n\nrank 0 {\nl1: send 4b to 1 tag 1\n")
    document = emucoll("export", *flags, "--out", tmp_path / "ring.goal", "--json").document
    assert (tmp_path / "ring.goal").read_bytes() == shown.out
    assert document["schema"] == "emucoll.export/1"
    assert (document["messages"], document["bytes"]) == (8 * 14, 8 * 7 * (4 + 120))
    assert shown.out.count(b": send ") == document["messages"]


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("-np", 8), "--goal is the form there is"),
        (("--goal", "-np", 0), "-np is 0"),
        (("--goal", "-np", 8, "--allgather", "rign"), "did you mean 'ring'?"),
        (("--goal", "-np", 8, "--allgather", "bruck"), "bruck is no ring in lockstep"),
        (("--goal", "-np", 8, "--out", "/none/x"), "--out /none/x: No such file"),
    ],
)
def test_what_cannot_be_exported(emucoll: Commands, flags: tuple[object, ...], says: str) -> None:
    refused = emucoll("export", *flags)
    assert (refused.exit_code, refused.out) == (2, b"")
    assert says in " ".join(refused.err.split())
    assert "both want stdout" in emucoll("export", "--goal", "-np", 2, "--json").error["what"]
