"""A comparison as text, whole, and what must stay out of it."""

from pathlib import Path

from harness.report.compare import SHOWN, render_compare
from harness.results.schema import (
    CompareResult,
    LateRank,
    LogCommunicator,
    LogPhase,
    Operand,
    Row,
    RunError,
    RunWarning,
)

GOLDEN = Path(__file__).parent / "golden"


def a_phase(name: str, mean: float, within: str | None = None) -> LogPhase:
    return LogPhase(
        name=name,
        within=within,
        ranks=3,
        mean_s=mean,
        p50_s=mean,
        p99_s=mean * 1.5,
        max_s=mean * 1.5,
        max_rank=2,
        share=mean / 2,
        share_min=mean / 2,
        share_max=mean / 1.5,
    )


def a_communicator(index: int = 0) -> LogCommunicator:
    return LogCommunicator(
        index=index,
        comm_id="0xc0ffee",
        function="ncclCommInitRank",
        nranks=4,
        seen=3,
        unseen=1,
        unseen_ranks=[[3, 3]],
        incomplete=1,
        nodes=2,
        phases=[
            a_phase("kernels", 0.5),
            a_phase("bootstrap.recv", 0.25, "bootstrap"),
            a_phase("total", 2.0),
        ],
        slowest_rank=2,
        late=[LateRank(rank=3, seen=False, late_s=0.2, text="rank 2 waited")],
        findings=["rank 3, which these logs do not show, came late by about 0.200 s"],
    )


def a_comparison() -> CompareResult:
    return CompareResult(
        ok=True,
        kind="measured",
        operands=[
            Operand(role="base", kind="run", names=["out/mine"], text="nranks 4, measured"),
            Operand(role="candidate", kind="nccl-log", names=["a.log"], text="1 file, 9 lines"),
        ],
        rows=[
            Row(metric="kernels", candidate=0.5, candidate_share=0.25, communicator=0),
            Row(
                metric="bootstrap.recv",
                base=0.125,
                candidate=0.25,
                ratio=2.0,
                verdict="worse",
                base_share=0.5,
                candidate_share=0.125,
                communicator=0,
            ),
        ],
        versions={"NCCL 2.27.3": 3},
        communicators=[a_communicator()],
        findings=["WARN of n1:7: no route"],
        warnings=[RunWarning(code="loopback-time", text="compare shares first")],
    )


def test_the_whole_text() -> None:
    assert render_compare(a_comparison()) == (GOLDEN / "compare.txt").read_text()


def test_what_could_not_be_decided_ends_it() -> None:
    result = CompareResult(ok=False, error=RunError(what="another n", next="run again"))
    assert render_compare(result) == "# FAILED: another n\n#   next: run again\n"


def test_many_communicators_are_counted_and_the_compared_ones_come_first() -> None:
    result = a_comparison()
    result.communicators = [a_communicator(index) for index in range(SHOWN + 3)]
    result.rows = [Row(metric="kernels", candidate=0.5, communicator=SHOWN + 2)]
    text = render_compare(result)
    assert text.index(f"communicator {SHOWN + 2}:") < text.index("communicator 0:")
    assert "# and 3 more communicators (--json lists them all)" in text


def test_what_a_log_says_reaches_no_terminal_as_a_command() -> None:
    result = a_comparison()
    result.findings = ["WARN of n1:7: \x1b[2J\x07 gone"]
    result.versions = {"NCCL 2.27.3\x1b[0m": 1}
    text = render_compare(result)
    assert "\x1b" not in text and "\x07" not in text
    assert "\\x1b[2J" in text
