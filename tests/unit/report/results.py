"""Results of runs, made up: one that went well and one that failed."""

import msgspec

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
    bandwidth,
)
from harness.spec import RankFault, Spec

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
