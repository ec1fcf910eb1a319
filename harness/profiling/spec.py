"""What `emucoll profile` is asked for."""

from typing import Any

import msgspec

from emucoll.errors import UsageError
from emucoll.loading import find_plan
from harness.analysis.growth import FEWEST_SIZES
from harness.clusters import find_cluster
from harness.engine.refuse import refuse_impossible
from harness.names import refuse_unknown
from harness.planned import plan_of
from harness.spec import INT_MAX, Spec, check

MAX_SIZES, MAX_REPEATS = 32, 100
STEPS = 64
"""Of an AllGather in a measured run, unless said otherwise."""
DEADLINE_S = 1e9


class ProfileSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to profile."""

    n: tuple[int, ...]
    """Sizes that are run here,"""
    target: int
    """and the one that it is about."""
    plan: str | None = None
    formation: str | None = None
    allgather: str | None = None
    record_bytes: int | None = None
    channels: int | None = None
    roots: int | None = None
    cluster: str = "h100-roce-98k"
    """In virtual time the sizes and the target are played there."""
    repeat: int = 3
    steps: int = STEPS
    """Of each AllGather, in the runs here."""
    seed: int = 1
    deadline_s: float = 600.0
    sample: bool = True
    """See in which functions the CPU goes, in a run more of each size."""
    out: str | None = None

    def run_of(self, n: int) -> Spec:
        """One run here."""
        spec = Spec(
            nranks=n,
            **self._what(),
            channels=self.channels,
            roots=self.roots,
            ranks_per_host=find_cluster(self.cluster, self.target).gpus_per_host,
            seed=self.seed,
            deadline_s=self.deadline_s,
        )
        rounds = [gather.schedule.rounds(n) for gather in plan_of(spec).gathers]
        if max(rounds, default=0) > self.steps:
            spec = msgspec.structs.replace(spec, steps=self.steps)
        return spec

    def virtual_of(self, n: int) -> Spec:
        """The same on the cluster, whole."""
        return msgspec.structs.replace(
            self.run_of(n),
            steps=None,
            deadline_s=DEADLINE_S,
            handshake_s=DEADLINE_S,
            world="virtual",
            cluster=self.cluster,
        )

    def _what(self) -> dict[str, Any]:
        """The plan, or formation, AllGather and record."""
        parts = {
            name: value
            for name in ("formation", "allgather", "record_bytes")
            if (value := getattr(self, name)) is not None
        }
        if self.plan is None:
            return parts
        formation = find_plan(self.plan).formation.name
        return {"plan": self.plan, "formation": formation, "allgather": None, "record_bytes": None}


def check_profile(spec: ProfileSpec) -> None:
    """Raise UsageError for what makes no sense, or is too little to tell how anything grows."""
    if spec.plan is not None and (spec.formation or spec.allgather or spec.record_bytes):
        raise UsageError(
            f"--plan {spec.plan}: a plan has a formation and AllGathers of its own; leave "
            "--formation, --allgather and --record-bytes out"
        )
    if not FEWEST_SIZES <= len(spec.n) <= MAX_SIZES:
        raise UsageError(
            f"-np names {len(spec.n)} sizes: expected {FEWEST_SIZES} to {MAX_SIZES}, as in "
            "-np 128,256,512,1024,2048: fewer cannot tell n from n²"
        )
    for name, value, low, high in (
        *(("-np", n, 1, INT_MAX) for n in spec.n),
        ("--target", spec.target, max(spec.n), INT_MAX),
        ("--repeat", spec.repeat, 1, MAX_REPEATS),
        ("--steps", spec.steps, 1, INT_MAX),
        ("--seed", spec.seed, 0, 2**63 - 1),
    ):
        if not low <= value <= high:
            raise UsageError(f"{name} is {value}: expected {low} to {high}")
    if spec.out == "":
        raise UsageError("--out is empty: expected a directory ('.' for this one)")
    if spec.plan is not None:
        refuse_unknown("plan", spec.plan)
    if spec.formation is not None:
        refuse_unknown("formation", spec.formation)
    if spec.allgather is not None:
        refuse_unknown("AllGather", spec.allgather)
    find_cluster(spec.cluster, spec.target)
    for n in spec.n:
        run = spec.run_of(n)
        check(run)
        refuse_impossible(run)
