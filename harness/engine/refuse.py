"""What no machine could run: options that contradict each other, or what a plan, a formation or a
server cannot do. Each is a UsageError that says what would do instead.
"""

from emucoll.collectives import ALLGATHERS
from emucoll.collectives.sound import mistakes
from emucoll.errors import UsageError
from emucoll.formation import FORMATIONS
from emucoll.formation.base import count_roots
from emucoll.loading import told
from emucoll.plans.nccl import MULTIROOT
from emucoll.plans.steps import Plan
from harness.control.inject import RankFaults
from harness.external.endpoints import (
    external_root,
    external_servers,
    external_store,
    refuse_nobody,
)
from harness.external.libnccl import find_library
from harness.external.torch_store import refuse_missing_torch
from harness.planned import extent_of, formation_name, group_roots, plan_of, servers_of
from harness.preflight.arithmetic import Layout
from harness.spec import ServerKill, Spec, WorkerKill


def refuse_impossible(spec: Spec) -> None:
    """Raise UsageError for what no machine could run: options that contradict each other, nothing
    to corrupt, no libnccl.
    """
    initialization = plan_of(spec)
    _refuse_unsound(spec, initialization)
    RankFaults(spec, initialization)
    _refuse_roots(spec)
    _refuse_groups(spec)
    _refuse_servers(spec)
    _refuse_external(spec)
    _refuse_external_ranks(spec)


def _refuse_unsound(spec: Spec, plan: Plan) -> None:
    """Raise UsageError for AllGathers and local work of a user's own that are wrong at this n."""
    for gather in plan.gathers:
        schedule = gather.schedule
        if schedule in ALLGATHERS.values():
            continue
        try:
            wrong = next(mistakes(schedule, spec.nranks, gather.record_bytes), None)
        except Exception as error:
            raise UsageError(
                f"AllGather {schedule.name}: its formulas failed{told(error)}"
            ) from error
        if wrong is not None:
            raise UsageError(f"AllGather {schedule.name}: {wrong}")
    extent = extent_of(spec)
    for local in plan.locals:
        try:
            iterations = local.work.iterations(extent) * local.work.calls(extent)
        except Exception as error:
            raise UsageError(
                f"local work {local.work.name}: iterations failed{told(error)}"
            ) from error
        if not isinstance(iterations, int) or iterations < 0:
            raise UsageError(
                f"local work {local.work.name}: iterations are {iterations!r}: expected a whole "
                "number"
            )


def _refuse_servers(spec: Spec) -> None:
    """Raise UsageError for servers that the run has not, or cannot have."""
    servers, server_of_all = servers_of(spec), plan_of(spec).formation.server
    formation = f"formation {formation_name(spec)}"
    if spec.root != "builtin" and "root" not in servers:
        raise UsageError(f"--root {spec.root}: {formation} has no root, but a {server_of_all}")
    for flag, server in (("--root", spec.root), ("--store", spec.store)):
        if (server == "torch" or server.startswith("libnccl")) and spec.ip == "6":
            raise UsageError(
                f"{flag} {server}: the real {flag[2:]} listens on an IPv4 address; leave --ip 6 out"
            )
    if spec.store != "builtin" and "store" not in servers:
        raise UsageError(f"--store {spec.store}: {formation} has no store, but a root")
    if spec.store == "torch":
        refuse_missing_torch()
    if spec.root.startswith("libnccl"):
        find_library(spec.root.partition(":")[2] or None)
    for fault in spec.inject:
        if isinstance(fault, ServerKill) and fault.server not in servers:
            raise UsageError(f"--inject {fault.server}:kill: {formation} has no {fault.server}")


def _refuse_external(spec: Spec) -> None:
    """Raise UsageError for servers at an address that cannot serve the run."""
    external_store(spec)
    if external_root(spec) is not None:
        plan = plan_of(spec)
        nroots = count_roots(plan.formation, spec.nranks, spec.roots) + len(group_roots(spec))
        if nroots > 1 or spec.restarts:
            raise UsageError(
                f"--root {spec.root}: it is one root for one formation, and this run needs "
                f"{nroots * (spec.restarts + 1)}"
            )
    for fault in spec.inject:
        if isinstance(fault, ServerKill) and fault.server in external_servers(spec):
            raise UsageError(
                f"--inject {fault.server}:kill: the {fault.server} was not started here"
            )
    refuse_nobody(spec)


def _refuse_external_ranks(spec: Spec) -> None:
    """Raise UsageError for AllGathers in which records cannot be told apart as they come."""
    if not spec.external_ranks:
        return
    for gather in reversed(plan_of(spec).gathers):
        schedule = gather.schedule
        if schedule.flow != "lockstep" or schedule.peers(spec.nranks):
            raise UsageError(
                f"--external-ranks: nobody knows an external rank's record before it has come, and "
                f"{schedule.name} does not bring records one by one: use --allgather ring or "
                "another in lockstep"
            )


def _refuse_groups(spec: Spec) -> None:
    """Raise UsageError for groups that cannot come up as asked."""
    if not spec.groups:
        return
    plan = plan_of(spec)
    with_peers = [gather for gather in plan.gathers if gather.schedule.peers(spec.nranks)]
    if with_peers or not plan.gathers:
        name = with_peers[0].schedule.name if with_peers else "nothing"
        raise UsageError(
            f"--groups: every group runs the AllGathers of all ranks, and {name} is "
            f"no ring: {'choose another --allgather' if spec.plan is None else 'take another plan'}"
        )
    if spec.group_init == "split":
        book = plan.address_book(plan.p2p)
        if book is None:
            raise UsageError(
                "--group-init split: ranks find each other by the addresses that an AllGather has "
                f"brought, and records of {spec.record_bytes} bytes hold none: use --record-bytes "
                "28, or a --plan"
            )
        gather = plan.gathers[book[0]]
        if gather.rounds(spec.nranks, spec.steps) < gather.schedule.rounds(spec.nranks):
            raise UsageError(
                f"--group-init split: after {spec.steps} steps ranks do not know each other's "
                "addresses: leave --steps out, or use --group-init new or ncclx"
            )


def _refuse_roots(spec: Spec) -> None:
    formation = plan_of(spec).formation
    if spec.roots is None or formation.ranks_per_root:
        return
    has = "one root" if formation.server == "root" else f"no root, but a {formation.server}"
    several = [each.name for each in FORMATIONS.values() if each.ranks_per_root]
    use = f"--formation {' or '.join(several)}" if spec.plan is None else f"a plan with {MULTIROOT}"
    raise UsageError(
        f"--roots {spec.roots}: formation {formation_name(spec)} has {has}; leave --roots out, or "
        f"use {use}"
    )


def refuse_missing_worker(spec: Spec, layout: Layout) -> None:
    """Raise UsageError for a fault of a worker that the run will not have."""
    for fault in spec.inject:
        if isinstance(fault, WorkerKill) and fault.worker >= layout.workers:
            raise UsageError(
                f"--inject worker={fault.worker}:kill: expected 0 to {layout.workers - 1}"
            )
