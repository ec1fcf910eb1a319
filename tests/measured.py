"""Runs as a machine of known costs would report them."""

from emucoll.collectives.schedule import Traffic, both_ways
from harness.planned import plan_of
from harness.results.environment import Environment
from harness.results.schema import AllGather, Formation, Phase, RunResult, WorkByRole
from harness.spec import Spec
from harness.work import Work

CONNECT, ACCEPT, MESSAGE, BYTE, RANK, REQUEST, CHECK_IN = 3e-5, 2e-5, 8e-6, 3e-10, 9e-5, 2e-5, 5e-5
CUT_THROUGH, CUT_THROUGH_BYTE = 7e-5, 2e-10
CONTENTION, PEER, BLOCK = 1.5e-6, 2e-4, 2e-5
WORKERS = 2
CORES, FORMING_S, GATHERING_S, BARRIER_S, LOOP_S = 2, 0.4, 3.0, 0.01, 0.02
CONNECTIONS, MESSAGES, REQUESTS = 2, 6, 5
"""Of each rank, while it forms."""
LARGE_BYTES = 1000
"""What smaller records' bytes take is part of a message."""
COSTS = {
    "cpu.connect": CONNECT,
    "cpu.accept": ACCEPT,
    "cpu.message": MESSAGE,
    "cpu.contention": CONTENTION,
    "cpu.byte": BYTE,
    "cpu.peer": PEER,
    "cpu.cut_through": CUT_THROUGH,
    "cpu.cut_through_block": BLOCK,
    "cpu.cut_through_byte": CUT_THROUGH_BYTE,
    "cpu.rank": RANK,
    "store.request": REQUEST,
    "root.check_in": CHECK_IN,
}
"""By the names that a calibration gives them."""


def traffic_of(spec: Spec) -> Traffic:
    """What each rank sends in the spec's AllGather."""
    gather = plan_of(spec).gathers[-1]
    rounds = gather.rounds(spec.nranks, spec.steps)
    return gather.schedule.traffic(spec.nranks, rounds, gather.record_bytes)


def gathering_s(spec: Spec) -> float:
    """CPU of its AllGather."""
    traffic, gather = traffic_of(spec), plan_of(spec).gathers[-1]
    if gather.schedule.peers(spec.nranks):
        return spec.nranks * traffic.messages * PEER
    if gather.schedule.flow == "cut-through":
        entering = WORKERS * gather.rounds(spec.nranks, spec.steps)
        each_s = CUT_THROUGH + traffic.sent_bytes * CUT_THROUGH_BYTE
        return spec.nranks * each_s + entering * BLOCK
    moved = traffic.sent_bytes if gather.record_bytes > LARGE_BYTES else 0
    shared = both_ways(gather.schedule, spec.nranks, gather.rounds(spec.nranks, spec.steps))
    message_s = MESSAGE + CONTENTION if shared else MESSAGE
    return spec.nranks * (traffic.messages * message_s + moved * BYTE)


def forming_s(spec: Spec) -> float:
    """CPU of its ranks until they have formed."""
    return spec.nranks * (RANK + CONNECTIONS * CONNECT + ACCEPT + MESSAGES * MESSAGE)


def run_of(spec: Spec, slower: float = 1.0) -> RunResult:
    """Its result, on a machine that takes `slower` times as much CPU for everything."""
    n, ring_s = spec.nranks, gathering_s(spec)
    phases = {
        "bootstrap": forming_s(spec) - LOOP_S + BARRIER_S + ring_s,
        "bootstrap.barrier": BARRIER_S,
        plan_of(spec).gathers[-1].phase: ring_s,
        "loop": LOOP_S,
    }
    return RunResult(
        ok=True,
        exit_code=0,
        spec=spec,
        environment=Environment(
            version="1",
            python="3",
            kernel="K",
            cores=CORES,
            memory_bytes=None,
            nofile=None,
            loop="uvloop",
        ),
        nranks=n,
        servers={"root": "NCCL 2.0" if spec.root == "libnccl" else "built-in"},
        formation=Formation(name=spec.formation, seconds=FORMING_S),
        workers=WORKERS,
        allgathers=[
            AllGather(
                name="a",
                record_bytes=1,
                seconds=GATHERING_S,
                steps=plan_of(spec).gathers[-1].rounds(n, spec.steps),
            )
        ],
        phases=[Phase(name=name, cpu_s=slower * cpu_s) for name, cpu_s in phases.items()],
        work=WorkByRole(
            ranks=Work(
                connections=CONNECTIONS * n, messages=n * (MESSAGES + traffic_of(spec).messages)
            ),
            store=Work(requests=REQUESTS * n, cpu_s=slower * REQUESTS * n * REQUEST),
            root=Work(cpu_s=slower * n * CHECK_IN),
        ),
    )
