"""The run's state machine: every transition, every trouble, every late word."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.control.lifecycle import (
    AllFormed,
    AllGathered,
    DeadlineReached,
    Do,
    Event,
    Interrupted,
    IsReady,
    Joined,
    Lifecycle,
    Reported,
    Stage,
    TimeUp,
    Trouble,
    Weight,
)

WORKERS = ("worker 0", "worker 1")
SERVER = "store"
END = [Do.STOP_ALL, Do.CONCLUDE]


def lifecycle(*servers: str) -> Lifecycle:
    return Lifecycle(frozenset(WORKERS), frozenset(servers or (SERVER,)))


Said = type[Joined] | type[IsReady] | type[AllFormed] | type[AllGathered] | type[Reported]
SAID: tuple[Said, ...] = (Joined, IsReady, AllFormed, AllGathered, Reported)
STEPS: list[tuple[Stage, Said, tuple[str, ...], list[Do]]] = [
    (Stage.LAUNCHING, Joined, (*WORKERS, SERVER), [Do.SETUP_ALL]),
    (Stage.PREPARING, IsReady, (*WORKERS, SERVER), [Do.START]),
    (Stage.FORMING, AllFormed, WORKERS, [Do.SEND_RECORDS]),
    (Stage.RECORDS, IsReady, WORKERS, [Do.BEGIN]),
    (Stage.GATHERING, AllGathered, WORKERS, [Do.STOP_ALL]),
    (Stage.CLOSING, Reported, (SERVER,), [Do.CONCLUDE]),
]
RUNNING = [stage for stage, *_ in STEPS]


def at(stage: Stage) -> Lifecycle:
    """A run that has got so far by the book."""
    life = lifecycle()
    for reached, event, processes, _ in STEPS:
        if reached is stage:
            break
        for process in processes:
            life.handle(event(process))
    assert life.stage is stage
    return life


# Progress ---------------------------------------------------------------------------------------


def test_a_run_by_the_book() -> None:
    life = lifecycle()
    for stage, event, processes, todo in STEPS:
        assert life.stage is stage
        for process in processes[:-1]:
            assert life.handle(event(process)) == []
            assert life.stage is stage, f"{processes[-1]} has not said it yet"
        assert life.handle(event(processes[-1])) == todo
    assert life.stage is Stage.DONE
    assert life.trouble is None


def test_ranks_are_brought_up_again_as_often_as_asked() -> None:
    life = Lifecycle(frozenset(WORKERS), frozenset([SERVER]), restarts=2)
    told: list[Do] = []
    again = STEPS[1:5]
    for _, event, processes, _ in [STEPS[0], *again, *again, *again, STEPS[5]]:
        for process in processes:
            told += life.handle(event(process))
    bring_up = [Do.START, Do.SEND_RECORDS, Do.BEGIN]
    assert told == [
        Do.SETUP_ALL, *bring_up, Do.RESTART, *bring_up, Do.RESTART, *bring_up, Do.STOP_ALL,
        Do.CONCLUDE,
    ]  # fmt: skip
    assert life.stage is Stage.DONE


@pytest.mark.parametrize("order", [reversed, sorted, list])
def test_who_speaks_first_does_not_matter(order: type) -> None:
    life = lifecycle()
    todo = [life.handle(event(p)) for _, event, ps, _ in STEPS for p in order(ps)]
    assert [each for each in todo if each] == [each for *_, each in STEPS]


@pytest.mark.parametrize(("stage", "event", "processes", "todo"), STEPS)
def test_saying_it_twice_counts_once(
    stage: Stage, event: Said, processes: tuple[str, ...], todo: list[Do]
) -> None:
    life = at(stage)
    for _ in range(3):
        for process in processes[:-1]:
            assert life.handle(event(process)) == []
    assert life.stage is stage
    assert life.handle(event(processes[-1])) == todo


@pytest.mark.parametrize("stage", RUNNING)
def test_what_does_not_belong_here_changes_nothing(stage: Stage) -> None:
    awaited = next(event for reached, event, *_ in STEPS if reached is stage)
    for event in [each for each in SAID if each is not awaited]:
        life = at(stage)
        for process in (*WORKERS, SERVER, "a stranger"):
            assert life.handle(event(process)) == []
        assert life.stage is stage
    life = at(stage)
    assert life.handle(awaited("a stranger")) == []
    assert life.handle(TimeUp()) == []
    assert life.stage is stage


def test_without_a_server_there_is_nothing_to_close() -> None:
    life = Lifecycle(frozenset(WORKERS), frozenset())
    for _, event, _, _ in STEPS[:-2]:
        for process in WORKERS:
            life.handle(event(process))
    assert life.handle(AllGathered(WORKERS[0])) == []
    assert life.handle(AllGathered(WORKERS[1])) == END
    assert life.stage is Stage.DONE


# Trouble ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", RUNNING)
@pytest.mark.parametrize(
    "weight",
    [
        Weight.CONNECTION_LOST,
        Weight.NETWORK,
        Weight.RANK_RAISED,
        Weight.BROKEN,
        Weight.PROCESS_LOST,
    ],
)
def test_a_failure_waits_for_one_that_explains_it(stage: Stage, weight: Weight) -> None:
    life = at(stage)
    assert life.handle(Trouble(weight, "first")) == [Do.WAIT_GRACE]
    assert life.stage is Stage.DIAGNOSING
    assert life.handle(TimeUp()) == END
    assert life.trouble == Trouble(weight, "first")


@given(st.lists(st.sampled_from(sorted(set(Weight) - {Weight.USAGE}, key=str)), min_size=1))
def test_the_heaviest_is_blamed_and_the_first_of_equals(weights: list[Weight]) -> None:
    life = at(Stage.GATHERING)
    for index, weight in enumerate(weights):
        life.handle(Trouble(weight, index))
    assert life.handle(TimeUp()) == END
    heaviest = max(weights, key=lambda weight: weight.value)
    assert life.trouble == Trouble(heaviest, weights.index(heaviest))


def test_the_weights_rank_causes_above_consequences() -> None:
    """A killed worker makes its neighbours lose connections, and a raising rank does too."""
    order = [
        Weight.CONNECTION_LOST, Weight.NETWORK, Weight.DEADLINE, Weight.RANK_RAISED,
        Weight.BROKEN, Weight.PROCESS_LOST, Weight.USAGE, Weight.INTERRUPTED,
    ]  # fmt: skip
    assert sorted(Weight, key=lambda weight: weight.value) == order


@pytest.mark.parametrize("stage", RUNNING)
def test_the_users_mistake_ends_it_at_once(stage: Stage) -> None:
    life = at(stage)
    assert life.handle(Trouble(Weight.USAGE, "no such library")) == END
    life = at(stage)
    life.handle(Trouble(Weight.CONNECTION_LOST, "x"))
    assert life.handle(Trouble(Weight.USAGE, "no such library")) == END
    assert life.trouble == Trouble(Weight.USAGE, "no such library")


@pytest.mark.parametrize("stage", RUNNING)
@pytest.mark.parametrize("troubled", [False, True])
def test_an_interrupt_ends_it_at_once_whatever_else_failed(stage: Stage, troubled: bool) -> None:
    life = at(stage)
    if troubled:
        life.handle(Trouble(Weight.PROCESS_LOST, "x"))
    assert life.handle(Interrupted()) == END
    assert life.trouble is not None
    assert life.trouble.weight is Weight.INTERRUPTED
    assert life.handle(Interrupted()) == []


# The deadline -----------------------------------------------------------------------------------


@pytest.mark.parametrize("stage", [Stage.FORMING, Stage.RECORDS, Stage.GATHERING])
def test_the_deadline_asks_whom_the_ranks_wait_for(stage: Stage) -> None:
    life = at(stage)
    awaited = next(event for reached, event, *_ in STEPS if reached is stage)
    life.handle(awaited("worker 0"))
    assert life.handle(DeadlineReached()) == [Do.DUMP, Do.WAIT_DUMP]
    assert life.trouble == Trouble(Weight.DEADLINE, stage)
    assert life.handle(Reported("worker 1")) == [], "worker 0 has not told yet"
    assert life.handle(Reported("worker 1")) == []
    assert life.handle(Reported("worker 0")) == END


def test_who_does_not_tell_is_not_waited_for() -> None:
    life = at(Stage.FORMING)
    life.handle(DeadlineReached())
    life.handle(Reported("worker 1"))
    assert life.handle(TimeUp()) == END


@pytest.mark.parametrize("stage", [Stage.LAUNCHING, Stage.PREPARING, Stage.CLOSING])
def test_the_deadline_ends_what_has_no_running_ranks(stage: Stage) -> None:
    life = at(stage)
    assert life.handle(DeadlineReached()) == END
    assert life.trouble == Trouble(Weight.DEADLINE, stage)


def test_a_failure_after_the_deadline_may_explain_it() -> None:
    life = at(Stage.GATHERING)
    life.handle(DeadlineReached())
    assert life.handle(Trouble(Weight.CONNECTION_LOST, "of no account")) == []
    assert life.trouble == Trouble(Weight.DEADLINE, Stage.GATHERING)
    assert life.handle(Trouble(Weight.PROCESS_LOST, "worker 1")) == []
    assert life.handle(TimeUp()) == END
    assert life.trouble == Trouble(Weight.PROCESS_LOST, "worker 1")


def test_a_deadline_in_the_grace_changes_nothing() -> None:
    life = at(Stage.GATHERING)
    life.handle(Trouble(Weight.CONNECTION_LOST, "x"))
    assert life.handle(DeadlineReached()) == []
    assert life.handle(TimeUp()) == END
    assert life.trouble == Trouble(Weight.CONNECTION_LOST, "x")


# Whatever happens -------------------------------------------------------------------------------

ANY_PROCESS = st.sampled_from([*WORKERS, SERVER, "a stranger"])
ANY_EVENT: st.SearchStrategy[Event] = st.one_of(
    st.builds(Joined, ANY_PROCESS),
    st.builds(IsReady, ANY_PROCESS),
    st.builds(AllFormed, ANY_PROCESS),
    st.builds(AllGathered, ANY_PROCESS),
    st.builds(Reported, ANY_PROCESS),
    st.builds(Trouble, st.sampled_from(sorted(Weight, key=str)), st.none()),
    st.just(TimeUp()),
    st.just(DeadlineReached()),
    st.just(Interrupted()),
)


@given(
    st.sampled_from(RUNNING),
    st.lists(ANY_EVENT, max_size=40),
    st.sampled_from([(SERVER,), ("root", SERVER)]),
)
def test_any_sequence_concludes_at_most_once(
    stage: Stage, events: list[Event], servers: tuple[str, ...]
) -> None:
    life = at(stage) if servers == (SERVER,) else lifecycle(*servers)
    done: list[Do] = []
    for event in events:
        ended = life.stage is Stage.DONE
        todo = life.handle(event)
        assert not (ended and todo), "it is over"
        done += todo
    assert done.count(Do.CONCLUDE) == (life.stage is Stage.DONE)
    assert done.count(Do.STOP_ALL) <= 2
    assert not done.count(Do.CONCLUDE) or done[-1] is Do.CONCLUDE
    for once in (Do.SETUP_ALL, Do.START, Do.BEGIN, Do.SEND_RECORDS, Do.DUMP):
        assert done.count(once) <= 1


@given(st.lists(ANY_EVENT, max_size=20))
def test_what_is_stuck_can_always_be_ended(events: list[Event]) -> None:
    life = lifecycle()
    for event in events:
        life.handle(event)
    life.handle(Interrupted())
    assert life.stage is Stage.DONE
