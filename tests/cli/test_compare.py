"""`emucoll compare` by the real command: what it prints, its document, bad input, exit codes."""

import gzip
import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.command import CHECKOUT, Commands

EXAMPLE = CHECKOUT / "examples" / "logs" / "late-node"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of 8 ranks, as NCCL forms its ring."""
    folder = tmp_path_factory.mktemp("run")
    out = folder / "kept"
    flags = ("--formation", "nccl-root", "--allgather", "ring", "--out", out, "--json")
    ended = Commands(folder)("run", "-np", 8, *flags)
    assert ended.exit_code == 0, ended.err
    (folder / "document.json").write_bytes(ended.out)
    return out


def write(folder: Path, **files: str) -> Path:
    place = folder / "logs"
    place.mkdir()
    for name, text in files.items():
        (place / name).write_text(text)
    return place


def example(pid: int) -> str:
    (file,) = EXAMPLE.glob(f"*.{pid}")
    return file.read_text()


def test_a_directory_of_files_beside_a_run(emucoll: Commands, run: Path) -> None:
    document = emucoll("compare", run, EXAMPLE, "--json").document
    assert document["schema"] == "emucoll.compare/1"
    assert document["kind"] == "measured"
    assert document["spec"]["formation"] == "nccl-root"
    assert [each["kind"] for each in document["operands"]] == ["run", "nccl-log"]
    assert (document["file_count"], document["versions"]) == (6, {"NCCL 2.27.3+cuda12.9": 6})
    (communicator,) = document["communicators"]
    assert communicator["nranks"] == 8
    assert communicator["unseen_ranks"] == [[4, 4], [6, 6]]
    # 4 is late by 0.014 + 1.921 s, 6 by 1.900 + 0.032 s; neither has a file
    assert [(late["rank"], late["seen"]) for late in communicator["late"]] == [
        *((4, False), (6, False), (5, True), (7, True)),
    ]
    kept = json.loads((run / "result.json").read_text())
    means = {phase["name"]: phase["mean_s"] for phase in kept["phases"]}
    rows = {row["metric"]: row for row in document["rows"]}
    assert rows["bootstrap.recv"]["base"] == means["bootstrap.recv"]
    assert rows["bootstrap.recv"]["candidate"] == pytest.approx(1.956136 / 6)
    assert rows["bootstrap"]["base"] == pytest.approx(
        means["bootstrap"] - means["bootstrap.barrier"]
    )
    assert rows["kernels"]["base"] is None
    for row in document["rows"]:
        assert row.keys() >= {"metric", "base", "candidate", "ratio", "verdict"}
        assert row["verdict"] in ("same", "better", "worse", "noise", None)
    if document["saturated"]:
        assert {row["verdict"] for row in document["rows"]} <= {"noise", None}


def test_the_result_may_be_its_file_or_its_document(emucoll: Commands, run: Path) -> None:
    first, *others = (
        emucoll("compare", result, EXAMPLE, "--json").document["rows"]
        for result in (run, run / "result.json", run.parent / "document.json")
    )
    assert first
    assert all(rows == first for rows in others)


def test_the_text_says_what_seconds_of_loopback_are_worth(emucoll: Commands, run: Path) -> None:
    ended = emucoll("compare", run, EXAMPLE)
    text = ended.out.decode()
    assert ended.exit_code == 0
    assert ended.err == ""
    assert all(line.startswith("#") for line in text.splitlines())
    assert max(map(len, text.splitlines())) <= 100
    assert "WARNING loopback-time" in text
    assert "rank 4, which these logs do not show, came late" in text
    assert "2 of 8 ranks are unseen (4, 6)" in text
    assert " emulated " in text and " real " in text


def test_what_the_run_was_put_through_is_said(emucoll: Commands, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ("--plan", "nccl-2.30.7", "--start-skew", "uniform:50ms", "--restarts", 1)
    assert emucoll("run", "-np", 8, *flags, "--hop-delay", "1ms", "--out", out).exit_code == 0
    warnings = emucoll("compare", out, EXAMPLE, "--json").warnings
    assert "plan nccl-2.27.7 is nearer" in warnings["other-release"]
    said = warnings["run-conditions"]
    assert said.startswith(
        "the run had start skew uniform:0.05s, a hop delay of 0.001 s, 1 restart"
    )


def test_a_result_that_is_cut(emucoll: Commands, run: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut.json"
    cut.write_bytes((run / "result.json").read_bytes()[:-20])
    refused = emucoll("compare", cut, EXAMPLE, "--json")
    assert refused.exit_code == 2
    assert "begins as a document of emucoll, and is cut or broken" in refused.error["what"]


def test_logs_alone_are_described(emucoll: Commands) -> None:
    document = emucoll("compare", EXAMPLE / "nccl.gpu-01.4104", "--json").document
    assert document["rows"] == []
    assert document["kind"] is None
    assert document["communicators"][0]["seen"] == 1


def test_a_file_that_is_given_twice_is_read_once(emucoll: Commands) -> None:
    link = EXAMPLE / ".." / "late-node" / "nccl.gpu-01.4104"
    document = emucoll("compare", EXAMPLE, EXAMPLE / "nccl.gpu-01.4104", link, "--json").document
    assert document["file_count"] == 6


# -- bad input: what was found, what is missing, what to do


def test_another_n(emucoll: Commands, run: Path, tmp_path: Path) -> None:
    logs = write(tmp_path, a=example(4101).replace("nranks 8", "nranks 48"))
    ended = emucoll("compare", run, logs, "--json")
    assert ended.exit_code == 4
    assert ended.error["what"] == "the run has 8 ranks, the logs' communicators have 48"
    assert "emucoll run -np 48 --plan nccl-" in ended.error["next"]
    assert ended.document["communicators"][0]["nranks"] == 48
    text = emucoll("compare", run, logs)
    assert text.exit_code == 4
    assert text.err.startswith("FAILED: the run has 8 ranks")
    assert b"nranks 48" in text.out


def test_no_timing_lines(emucoll: Commands, run: Path, tmp_path: Path) -> None:
    lines = [line for line in example(4101).splitlines() if "timings" not in line]
    logs = write(tmp_path, a="\n".join(lines))
    for operands in ((run, logs), (logs,)):
        ended = emucoll("compare", *operands, "--json")
        assert ended.exit_code == 4
        assert "no timings line" in ended.error["what"]
        assert "2 Init START or COMPLETE lines" in ended.error["evidence"]
        assert "NCCL 2.27.3+cuda12.9" in ended.error["evidence"]
        assert "NCCL_DEBUG_SUBSYS=INIT,BOOTSTRAP" in ended.error["next"]


def test_truncated(emucoll: Commands, run: Path, tmp_path: Path) -> None:
    whole, cut = example(4101), example(4102)
    logs = write(tmp_path, a=whole, b=cut[: cut.index("topo")])
    document = emucoll("compare", run, logs, "--json").document
    codes = {warning["code"]: warning["text"] for warning in document["warnings"]}
    assert codes["torn-lines"].startswith("1 line torn, 0 of them put together again")
    phases = {phase["name"]: phase for phase in document["communicators"][0]["phases"]}
    assert (phases["kernels"]["ranks"], phases["total"]["ranks"]) == (1, 2)
    started = cut[: cut.index("ncclCommInitRankConfig", cut.index("START"))]
    (logs / "b").write_text(started)
    ended = emucoll("compare", run, logs, "--json")
    assert ended.exit_code == 0
    assert ended.warnings["incomplete"].startswith("found 1 initialization that started, missing")
    assert ended.document["communicators"][0]["incomplete_ranks"] == [[1, 1]]


def test_mixed_versions(emucoll: Commands, run: Path, tmp_path: Path) -> None:
    old = example(4102).replace("2.27.3", "2.26.5")
    ended = emucoll("compare", run, write(tmp_path, a=example(4101), b=old), "--json")
    assert ended.exit_code == 0
    said = ended.warnings["mixed-versions"]
    assert "NCCL 2.27.3+cuda12.9 (1 process), NCCL 2.26.5+cuda12.9 (1 process)" in said
    assert "which library each rank loads" in said


def test_no_line_of_nccl(emucoll: Commands, run: Path, tmp_path: Path) -> None:
    ended = emucoll("compare", run, write(tmp_path, a="epoch 1\nepoch 2\n", b=""), "--json")
    assert ended.exit_code == 2
    assert "no line of NCCL in 2 files of 2 lines" in ended.error["what"]
    assert "NCCL_DEBUG=INFO" in ended.error["evidence"]


@pytest.mark.parametrize(
    ("operands", "says"),
    [
        (["RUN"], "nothing is there to compare it with"),
        (["RUN", "RUN"], "are both runs"),
        (["LOG", "RUN"], "comes after logs"),
        (["NAMES", "LOG"], "is a document of emucoll.names/1"),
        (["RUN", "nowhere.log"], "there is no file or directory 'nowhere.log'"),
        (["main", "LOG"], "comparing revisions is not there yet"),
        (["RUN", "EMPTY"], "holds no file"),
        (["RUN", "PACKED"], "is compressed: gzip -d it first"),
        ([], "Missing argument"),
    ],
)
def test_what_cannot_be_compared(
    emucoll: Commands, run: Path, tmp_path: Path, operands: list[str], says: str
) -> None:
    (tmp_path / "names.json").write_bytes(emucoll("formations", "--json").out)
    (tmp_path / "empty").mkdir()
    (tmp_path / "log.gz").write_bytes(gzip.compress(example(4101).encode()))
    places = {
        "RUN": run,
        "LOG": EXAMPLE,
        "NAMES": tmp_path / "names.json",
        "EMPTY": tmp_path / "empty",
        "PACKED": tmp_path / "log.gz",
    }
    given = [places.get(operand, operand) for operand in operands]
    ended = emucoll("compare", *given, "--json")
    assert ended.exit_code == 2
    assert ended.document["schema"] == "emucoll.compare/1"
    error = ended.error
    assert says in f"{error['what']}\n{error['evidence']}"
    plain = emucoll("compare", *given)
    assert (plain.exit_code, plain.out) == (2, b"")
    assert "Traceback" not in plain.err


def test_a_run_that_failed_has_nothing_to_compare(emucoll: Commands, tmp_path: Path) -> None:
    out = tmp_path / "failed"
    assert emucoll("run", "-np", 4, "--inject", "rank=1:raise", "--out", out).exit_code == 1
    ended = emucoll("compare", out, EXAMPLE, "--json")
    assert ended.exit_code == 2
    assert "failed and has no phases" in ended.error["what"]


def test_a_pipe_is_a_log(emucoll: Commands, tmp_path: Path) -> None:
    """As of a shell's <(…): it can be read once only."""
    with subprocess.Popen(["cat", EXAMPLE / "nccl.gpu-01.4104"], stdout=subprocess.PIPE) as source:
        document = emucoll("compare", "/dev/stdin", "--json", stdin=source.stdout).document
    assert document["communicators"][0]["seen"] == 1
    assert document["files"][0]["lines"] == 7


def test_bytes_that_are_no_text_are_read_past(emucoll: Commands, tmp_path: Path) -> None:
    logs = tmp_path / "mixed.log"
    logs.write_bytes(b"\xff\xfe\x00" * 9000 + b"\n" + example(4101).encode() + b"\x80" * 20000)
    document = emucoll("compare", logs, "--json").document
    assert document["communicators"][0]["seen"] == 1
