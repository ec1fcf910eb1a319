"""Whole initializations by the command: every byte verified, what they sent as formulas say."""

import msgspec
import pytest

from emucoll.loading import find_plan
from emucoll.plans import PLANS
from emucoll.plans.pytorch import id_key
from emucoll.plans.steps import Barrier, Plan
from emucoll.wire.nccl import HELLO_BYTES, LENGTH_BYTES
from harness.results.schema import RunResult
from tests.agreement.commands import emucoll_run
from tests.agreement.measure import expected
from tests.worlds import Sent

NAMES = [*PLANS, "nccl-2.23.4+multiroot", "nccl-2.30.7+multiroot"]
HOST = 8


def barrier(plan: Plan, n: int) -> Sent:
    """Each of a host's h ranks sends ceil(log2 h) times: a hello, who sends and the tag, 4 bytes,
    on a connection of their own.
    """
    [step] = [step for step in plan.steps if isinstance(step, Barrier)]
    whole, last = divmod(n, HOST)
    sends = whole * HOST * 3 + last * max(0, last - 1).bit_length()
    tags = 2 if step.tagged_apart else 1
    opening = HELLO_BYTES + tags * LENGTH_BYTES + 8
    return Sent((2 + tags) * sends, (opening + LENGTH_BYTES + 4) * sends, sends)


def front(n: int, nroots: int) -> tuple[Sent, int, Sent]:
    """What PyTorch's start adds: messages and bytes of the ranks, requests, what the store sends.

    Each rank sends VALIDATE, PING, ADD of init/ (opcode, u64, 5 bytes, i64). With one root, rank 0
    SETs its id (128 bytes) and the others WAIT for it and GET it; with several, each owner SETs
    its id, and all ranks WAIT for all keys (opcode, u64 count, strings) and MULTI_GET them.
    """
    greeting, counting = 5 + 5, 1 + 8 + 5 + 8
    sent, messages, requests = n * (greeting + counting), 3 * n, 3 * n
    back = Sent(2 * n, n * (4 + 8), 0)
    if nroots == 1:
        key = 8 + len(id_key(0))
        sent += (1 + key + 8 + 128) + (n - 1) * ((1 + 8 + key) + (1 + key))
        came = Sent(2 * (n - 1), (n - 1) * (1 + 8 + 128), 0)
        more = 1 + 2 * (n - 1)
    else:
        keys = [8 + len(id_key(0, iroot)) for iroot in range(nroots)]
        sent += sum(1 + key + 8 + 128 for key in keys) + 2 * n * (1 + 8 + sum(keys))
        came = Sent(2 * n, n * (1 + nroots * (8 + 128)), 0)
        more = nroots + 2 * n
    total = Sent(*(one + other for one, other in zip(back, came, strict=True)))
    return Sent(messages + more, sent, n), requests + more, total


def check_front(result: RunResult, n: int, nroots: int) -> Sent:
    """The store's part of a run of plan `pytorch`; what the ranks sent in it."""
    ranks, requests, store = front(n, nroots)
    served = result.work.store
    assert served is not None and result.work.ranks is not None
    assert (served.requests, served.connections) == (requests, n)
    assert (served.messages, served.bytes) == (store.messages, store.bytes)
    assert result.work.ranks.requests == requests
    return ranks


def check(result: RunResult, name: str, n: int, steps: int | None = None) -> None:
    """Nothing wrong, and the ranks' messages, bytes and connections to the last."""
    plan = find_plan(name)
    assert result.ok, result.error
    assert result.wrong == 0
    forming = expected(plan.formation.name, "ring", n, 0).forming
    size = plan.formation.check_in.size
    if plan.formation.server == "root" and size == 172:  # the formula is of the 176-byte check-in
        check_ins = (forming.messages - n) // 2
        forming = forming._replace(bytes=forming.bytes - 4 * check_ins)
    traffics = [
        gather.schedule.traffic(n, gather.rounds(n, steps), gather.record_bytes)
        for gather in plan.gathers
    ]
    after = barrier(plan, n)
    if plan.front is not None:
        assert result.formation is not None
        before = check_front(result, n, result.formation.roots or 0)
        after = Sent(*(one + other for one, other in zip(after, before, strict=True)))
    ranks = result.work.ranks
    assert ranks is not None
    messages = n * sum(traffic.messages for traffic in traffics)
    assert ranks.messages == forming.messages + messages + after.messages
    assert ranks.connections == forming.connections + after.connections
    if plan.formation.server == "root":  # a store's keys hold the run's own name
        sent_bytes = n * sum(traffic.sent_bytes for traffic in traffics)
        assert ranks.bytes == forming.bytes + sent_bytes + after.bytes
    assert result.descriptors.held_per_rank == plan.held_descriptors + (plan.front is not None)
    assert [gather.phase for gather in result.allgathers] == [each.phase for each in plan.gathers]
    means = {phase.name: phase.mean_s or 0.0 for phase in result.phases if phase.within is None}
    timers = {"bootstrap", "allgathers", "rest"}
    assert set(means) == (timers if plan.front is None else {*timers, plan.front.name})
    assert sum(means.values()) == pytest.approx(result.mean_total_s)


@pytest.mark.parametrize(
    ("name", "n"),
    [
        *(("nccl-2.22.3", 1), ("pytorch", 1), ("pytorch", 15), ("nccl-2.30.7", 15)),
        *((name, 2) for name in NAMES),
    ],
)
def test_a_whole_initialization(name: str, n: int) -> None:
    check(emucoll_run("-np", n, "--plan", name), name, n)


@pytest.mark.broad
@pytest.mark.parametrize("name", NAMES)
def test_a_whole_initialization_of_hosts_that_are_not_full(name: str) -> None:
    check(emucoll_run("-np", 15, "--plan", name), name, 15)


@pytest.mark.parametrize(("n", "roots"), [(40, 7), (300, None), (129, None)])
def test_pytorch_fetches_every_roots_id(n: int, roots: int | None) -> None:
    flags = () if roots is None else ("--roots", roots)
    result = emucoll_run("-np", n, "--plan", "pytorch", "--steps", 1, *flags)
    assert result.ok, result.error
    check_front(result, n, roots or -(-n // 128))


def test_pytorch_with_a_window_does_not_wait_for_ids_that_never_come() -> None:
    """Owners of roots are admitted first, whatever the window."""
    result = emucoll_run(
        "-np", 200, "--plan", "pytorch", "--steps", 1, "--start-window", 3, "--workers", 2
    )
    assert result.ok, result.error
    check_front(result, 200, 2)


def test_many_roots_and_ipv6() -> None:
    name = "nccl-2.28.9+multiroot"
    result = emucoll_run("-np", 24, "--plan", name, "--roots", 5, "--ip", 6, "--workers", 3)
    assert result.ok, result.error
    assert result.formation is not None
    assert (result.formation.name, result.formation.roots) == ("nccl-multiroot", 5)


@pytest.mark.parametrize(
    ("name", "steps", "left_out"), [("nccl-2.27.7", 4, True), ("ncclx", 7, False)]
)
def test_the_first_steps_of_each_allgather(name: str, steps: int, left_out: bool) -> None:
    result = emucoll_run("-np", 32, "--plan", name, "--steps", steps)
    assert result.ok, result.error
    for gather in result.allgathers:
        assert gather.steps == steps
        assert gather.of_steps is not None and gather.of_steps > steps
        assert gather.transfers == (2 if "bidir" in gather.name else 1) * 32 * steps
    codes = [warning.code for warning in result.warnings]
    assert "steps" in codes
    assert ("no-barrier" in codes) is left_out


def test_a_plan_corrupted_in_its_last_allgather() -> None:
    result = emucoll_run("-np", 8, "--plan", "nccl-2.27.7", "--inject", "rank=3:corrupt=last")
    assert (result.ok, result.wrong) == (False, 1)
    [wrong] = result.wrong_blocks
    assert (wrong.rank, wrong.peer, wrong.phase) == (4, 3, "allgathers.topology")


def test_local_work_is_charged_where_it_is_too_much() -> None:
    """Each rank's time is one rank's loops, whatever the others do."""
    result = emucoll_run(
        "-np", 2048, "--plan", "nccl-2.27.7", "--steps", 1, "--uid-stagger-rate", 0
    )
    assert result.ok, result.error
    phases = {phase.name: phase for phase in result.phases}
    charged = {name for name, phase in phases.items() if phase.kind == "charged"}
    loops = {"allgathers.node_numbering", "allgathers.ring_check", "rest.same_process"}
    assert charged == loops | {"allgathers", "rest"}
    for name in loops:
        phase = phases[name]
        assert phase.mean_s == phase.max_s == pytest.approx(phase.p50_s), "all ranks alike"
        assert phase.mean_s is not None and 0 < phase.mean_s < 0.2
        assert phase.cpu_s == pytest.approx(2048 * phase.mean_s, rel=0.5)
    assert result.charged_s == pytest.approx(sum(phases[name].mean_s or 0.0 for name in loops))
    spec = result.spec
    assert spec is not None
    assert (spec.plan, spec.formation, spec.allgather, spec.record_bytes) == (
        "nccl-2.27.7", "nccl-root", None, None
    )  # fmt: skip
    msgspec.json.encode(result)
