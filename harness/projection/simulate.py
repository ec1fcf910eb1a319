"""Runs in virtual time by the dozen, on all cores of this machine."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from queue import SimpleQueue
from types import TracebackType
from typing import NamedTuple

import msgspec
import numpy as np

from emucoll.errors import HarnessError, UsageError
from emucoll.sim.cost import Costs
from harness.clusters import Setting
from harness.control.helper import Helper
from harness.engine.assemble import OUTSIDE
from harness.engine.virtual import run_in
from harness.jitter import Jitter
from harness.spec import Spec

WORKER = "harness.projection.worker"
PATIENCE_S = 3600.0
"""For one run: 98,304 ranks take one to two minutes."""


class Task(NamedTuple):
    """One run."""

    spec: Spec
    setting: Setting


class Times(NamedTuple):
    """What came of one: seconds."""

    total_s: float
    """To the last rank done."""
    phases: dict[str, float]
    """Means over the ranks; those within others too."""
    within: dict[str, str | None]
    """What each is part of."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """A task as a process of its own is told it."""

    spec: Spec
    hosts: list[int]
    costs: Costs
    iteration_s: float
    loops_s: dict[str, float]
    jitter: Jitter
    played_above: float

    @classmethod
    def of(cls, task: Task) -> "Request":
        """What `task` returns again."""
        setting = task.setting
        assert not setting.sharing, "ranks that share a CPU are simulated where they are asked for"
        return cls(
            spec=task.spec,
            hosts=setting.hosts.tolist(),
            costs=setting.costs,
            iteration_s=setting.iteration_s,
            loops_s=dict(setting.loops_s),
            jitter=setting.jitter,
            played_above=setting.played_above,
        )

    def task(self) -> Task:
        """The task."""
        setting = Setting(
            hosts=np.array(self.hosts, dtype=np.int64),
            costs=self.costs,
            iteration_s=self.iteration_s,
            loops_s=self.loops_s,
            jitter=self.jitter,
            played_above=self.played_above,
        )
        return Task(self.spec, setting)


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """What came of it."""

    times: Times | None = None
    error: str | None = None
    usage: bool = False
    """Was it the user's?"""


class Simulators:
    """As many processes as there are cores, which simulate; started when there is work for two.
    Whatever ends the `with`, none is left.
    """

    def __init__(self, processes: int | None = None) -> None:
        """`processes`: how many; None: one for each core that we may use."""
        self._count = len(os.sched_getaffinity(0)) if processes is None else processes
        self._helpers: list[Helper] = []
        self._stack = ExitStack()

    def __enter__(self) -> "Simulators":
        """None is started yet."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End them."""
        self._stack.__exit__(kind, error, traceback)

    def all(self, tasks: Sequence[Task], done: Callable[[int], None]) -> list[Times]:
        """The times of all tasks, in their order; `done` hears how many there are. Raises
        HarnessError for a run that failed, UsageError for one that cannot be.
        """
        if self._count == 1 or len(tasks) < 2:
            times = []
            for task in tasks:
                times.append(simulate(task))
                done(len(times))
            return times
        while len(self._helpers) < min(self._count, len(tasks)):
            self._helpers.append(self._stack.enter_context(Helper(WORKER, os.getcwd())))
        return _spread(tasks, self._helpers, done)


def _spread(
    tasks: Sequence[Task], helpers: Sequence[Helper], done: Callable[[int], None]
) -> list[Times]:
    """A thread for each helper waits for its answers."""
    idle: SimpleQueue[Helper] = SimpleQueue()
    for helper in helpers:
        idle.put(helper)

    def ask(task: Task) -> Times:
        helper = idle.get()
        try:
            helper.say(msgspec.to_builtins(Request.of(task)))
            answer = msgspec.convert(helper.hear(PATIENCE_S), Answer)
        finally:
            idle.put(helper)
        if answer.times is None:
            assert answer.error is not None
            raise (UsageError if answer.usage else HarnessError)(answer.error)
        return answer.times

    executor = ThreadPoolExecutor(len(helpers))
    try:
        futures = [executor.submit(ask, task) for task in tasks]
        for count, future in enumerate(as_completed(futures), start=1):
            future.result()
            done(count)
        return [future.result() for future in futures]
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        for helper in helpers:
            helper.kill()  # so that no thread waits for it
        raise
    finally:
        executor.shutdown()


def simulate(task: Task) -> Times:
    """One run. Raises HarnessError where it failed."""
    result = run_in(task.spec, task.setting)
    if not result.ok or result.total_s is None:
        why = "no word why" if result.error is None else result.error.what
        raise HarnessError(
            f"{task.spec.plan} of {task.spec.nranks} ranks in virtual time failed: {why}"
        )
    phases = [each for each in result.phases if each.within != OUTSIDE]
    return Times(
        result.total_s,
        {each.name: each.mean_s or 0.0 for each in phases},
        {each.name: each.within for each in phases},
    )
