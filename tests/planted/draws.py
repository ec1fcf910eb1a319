"""Plans with bottlenecks that are drawn: `draws:plan17` is the plan that seed 17 draws, the same in
every process.

How long a bottleneck takes at each size is known beforehand, by its formula.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import ceil, log2
from typing import Any

import numpy as np

from emucoll.formation.base import Formation
from emucoll.plans import PLANS
from emucoll.plans.local import Extent, LocalWork
from emucoll.plans.nccl import with_several_roots
from emucoll.plans.steps import Local, Plan
from emucoll.rank import Job, Rank, Ring

TARGET = 1024
"""The size that they are about."""
UNSPOILED_S = {
    "nccl-2.22.3": 1.5,
    "nccl-2.27.7": 0.4,
    "nccl-2.28.9": 0.4,
    "nccl-2.30.7": 0.4,
    "nccl-2.30.7+multiroot": 0.3,
    "ncclx": 0.6,
}
"""At most what a plan takes at the target without any."""
STEPS = ("rank", "AllGathers")
OWN = dict.fromkeys(UNSPOILED_S, STEPS) | {"nccl-2.22.3": ("rank", "bootstrap.delay")}
"""What dominates a plan without any: all else is an alarm."""
ITERATION_S = 0.7e-9
"""What the clusters' profiles charge for a loop's iteration, about."""


@dataclass(frozen=True)
class Bottleneck:
    """One that was drawn, and what it has to be called."""

    kind: str
    seconds: float
    """At the target."""
    unit_s: float
    """What the formula is multiplied by."""

    @property
    def phase(self) -> str:
        return f"{'rest' if self.kind in LOOPS else 'bootstrap'}.{self.kind.replace(' ', '_')}"

    @property
    def law(self) -> str:
        return LAWS[self.kind]


LAWS = {
    "stagger": "n",
    "slow rank": "constant",
    "rounds": "log n",
    "square loop": "n²",
    "sorting loop": "n log n",
}
LOOPS = ("square loop", "sorting loop")
_TERMS: dict[str, Callable[[int], float]] = {
    "stagger": lambda n: n - 1,
    "slow rank": lambda n: 1,
    "rounds": lambda n: ceil(log2(n)),
    "square loop": lambda n: n * n,
    "sorting loop": lambda n: n * ceil(log2(max(n, 2))),
}
SLOW = 5


@dataclass(frozen=True)
class Drawn:
    """What a seed draws: a plan's name, and its bottlenecks, the worst at the target first."""

    plan: str
    bottlenecks: tuple[Bottleneck, ...]


def drawn(seed: int) -> Drawn:
    """None, one or two at once: the worst takes two to eight times what all else does."""
    draws = random.Random(f"bottlenecks {seed}")
    plan = draws.choice(list(UNSPOILED_S))
    kinds = draws.sample(list(LAWS), draws.choice([0, 1, 1, 1, 2]))
    found, seconds = [], UNSPOILED_S[plan] * draws.uniform(2.5, 8.0)
    for kind in kinds:
        found.append(Bottleneck(kind, seconds, seconds / _TERMS[kind](TARGET)))
        seconds *= draws.uniform(0.3, 0.6)
    return Drawn(plan, tuple(found))


class Spoiled(Formation):
    """A formation behind what was planted."""

    def __init__(self, inner: Formation, planted: tuple[Bottleneck, ...]) -> None:
        self.inner = inner
        self.planted = planted
        for name in ("name", "text", "server", "formed_descriptors", "listeners", "windowable",
                     "ranks_per_root", "check_in"):  # fmt: skip
            setattr(self, name, getattr(inner, name))
        self.unformed_descriptors = inner.unformed_descriptors + 2

    def stagger_s(self, local_id: int, owned: int, threshold: int, rate: float) -> float:
        return self.inner.stagger_s(local_id, owned, threshold, rate)

    async def form(self, rank: Rank, job: Job) -> Ring:
        for each in self.planted:
            with rank.span(each.phase):
                await _SPOIL[each.kind](rank, job, each.unit_s)
        return await self.inner.form(rank, job)


async def _stagger(rank: Rank, job: Job, unit_s: float) -> None:
    await rank.clock.sleep(unit_s * rank.rank)


async def _slow_rank(rank: Rank, job: Job, unit_s: float) -> None:
    if rank.rank == SLOW:
        await rank.clock.sleep(unit_s)


async def _rounds(rank: Rank, job: Job, unit_s: float) -> None:
    for _ in range(ceil(log2(job.nranks))):
        await rank.clock.sleep(unit_s)


_SPOIL: dict[str, Any] = {
    "stagger": _stagger,
    "slow rank": _slow_rank,
    "rounds": _rounds,
}


def _spin(count: Any, seen: Any, rank: int) -> int:
    value = np.uint64(rank + 1)
    for _ in range(count[0]):
        value ^= value << np.uint64(13)
        value ^= value >> np.uint64(7)
    seen[0] = value
    return 0


def _loop(each: Bottleneck) -> LocalWork:
    """As many iterations as the formula has, times what makes it as long as it was drawn."""
    times = max(1, round(each.unit_s / ITERATION_S))
    term = _TERMS[each.kind]

    def iterations(extent: Extent) -> int:
        return times * int(term(extent.nranks))

    return LocalWork(
        name=each.phase,
        text="planted",
        iterations=iterations,
        data=lambda extent: (np.array([iterations(extent)]), np.zeros(1, dtype=np.uint64)),
        code=_spin,
    )


def spoiled(seed: int) -> Plan:
    """The plan that a seed draws."""
    what = drawn(seed)
    name = what.plan.removesuffix("+multiroot")
    plan = PLANS[name] if name == what.plan else with_several_roots(PLANS[name])
    waits = tuple(each for each in what.bottlenecks if each.kind not in LOOPS)
    loops = [Local(each.phase, _loop(each)) for each in what.bottlenecks if each.kind in LOOPS]
    formation = Spoiled(plan.formation, waits) if waits else plan.formation
    return replace(plan, name=f"plan{seed}", formation=formation, steps=(*plan.steps, *loops))


def __getattr__(name: str) -> Plan:
    if name.startswith("plan") and name[4:].isdigit():
        return spoiled(int(name[4:]))
    raise AttributeError(name)
