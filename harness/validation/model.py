"""What the model says of a run on this machine, from the costs of a calibration: nothing of the run
itself goes in.

Where messages are late, the run is played in virtual time: the ranks of a worker share a CPU, and
what a rank, a connection and a message cost is the calibration's. Where cores are busy all the
time, virtual time counts what ranks and servers do, the costs say how much CPU that is, and the
cores how long it takes.
"""

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from emucoll.collectives.schedule import Traffic, both_ways
from emucoll.errors import HarnessError
from emucoll.sim.cost import Costs
from harness.clusters import Setting, in_order
from harness.engine.loopback import lay_out, place
from harness.engine.virtual import VirtualRun, run_in
from harness.planned import plan_of
from harness.results.schema import RunResult
from harness.spec import Spec

FORMATION, CPU, WALL, STEP = "formation", "cpu", "wall", "step"
"""What is told of a run beside the phases of its formation: seconds until the ring had formed, CPU
of all processes, seconds, and seconds of a step.
"""
SHOWN_PHASE_S = 0.02
"""Phases of a formation that are shorter in the mean are not told: half of a message's delay."""


def latency_bound(spec: Spec, costs: Mapping[str, float], gathers: bool) -> dict[str, float]:
    """Seconds: of a step of its AllGather, or until the ring has formed, and of that by phase."""
    message_s = costs["cpu.message"] / 2
    peers = plan_of(spec).gathers[-1].schedule.peers(spec.nranks)
    connect_s = costs["cpu.connect"]
    if gathers and peers:  # of a connection that is made and closed for one message
        connect_s = costs["cpu.peer"] - costs["cpu.accept"] - 2 * costs["cpu.message"]
    setting = Setting(
        hosts=in_order(spec.nranks, spec.ranks_per_host),
        costs=Costs(
            latency_s=spec.hop_delay_s,
            handshake_latency_s=0.0,
            send_s=message_s,
            recv_s=message_s,
            byte_s=costs["cpu.byte"],
            connect_s=max(0.0, connect_s),
            contention_s=costs["cpu.contention"] / 2,
            accept_s=costs["cpu.accept"],
            listen_s=costs["cpu.rank"],
        ),
        iteration_s=0.0,
        sharing=place(lay_out(spec)).shares,
    )
    virtual = msgspec.structs.replace(spec, world="virtual", hop_delay_s=0.0)
    result = run_in(virtual, setting)
    if not result.ok:
        raise HarnessError(f"the model of {spec.formation} and {spec.allgather} failed")
    return latency_bound_times(result, gathers)


def latency_bound_times(result: RunResult, gathers: bool) -> dict[str, float]:
    """The same of a run, real or not."""
    if gathers:
        gather = result.allgathers[-1]
        return {STEP: (gather.seconds or 0.0) / (gather.steps or 1)}
    assert result.formation is not None
    times = {FORMATION: result.formation.seconds or 0.0}
    for phase in result.phases:
        inside = phase.within == "bootstrap" and phase.name not in NOT_FORMING
        if inside and (phase.mean_s or 0.0) >= SHOWN_PHASE_S:
            times[phase.name] = phase.mean_s or 0.0
    return times


NOT_FORMING = ("bootstrap.ring", "bootstrap.barrier", "bootstrap.allgather", "bootstrap.addresses")


class Counts(NamedTuple):
    """What a formation does, counted in virtual time, and how long its timers alone take."""

    connects: int
    accepts: int
    messages: int
    requests: int
    check_ins: int
    timers_s: float


def count(spec: Spec) -> Counts:
    """Of the formation of `spec`."""
    virtual = msgspec.structs.replace(spec, world="virtual", steps=1)
    setting = Setting(
        hosts=in_order(spec.nranks, spec.ranks_per_host), costs=Costs(), iteration_s=0.0
    )
    run = VirtualRun(virtual, setting)
    outcome = run.run()
    if outcome.trouble is not None or outcome.formation_s is None:
        raise HarnessError(f"the model of {spec.formation} failed")
    counters = [network.counters for network in run.networks]
    gathered = traffic(virtual)
    store = outcome.servers.get("store")
    return Counts(
        connects=sum(each.connects for each in counters),
        accepts=sum(each.accepts for each in counters),
        messages=sum(each.messages for each in counters) - gathered.messages,
        requests=0 if store is None else store.work.requests or 0,
        check_ins=sum(network.counters.accepts for network in run.root_networks),
        timers_s=outcome.formation_s,
    )


def traffic(spec: Spec) -> Traffic:
    """What all ranks send in the last AllGather."""
    gather = plan_of(spec).gathers[-1]
    rounds = gather.rounds(spec.nranks, spec.steps)
    each = gather.schedule.traffic(spec.nranks, rounds, gather.record_bytes)
    return Traffic(*(spec.nranks * one for one in each))


def emulated_formation(
    spec: Spec, counts: Counts, costs: Mapping[str, float], cores: int
) -> dict[str, float]:
    """CPU of ranks and servers, and seconds, of a formation of ranks that share these cores."""
    cpu_s = spec.nranks * costs["cpu.rank"]
    cpu_s += counts.connects * costs["cpu.connect"] + counts.accepts * costs["cpu.accept"]
    cpu_s += counts.messages * costs["cpu.message"]
    cpu_s += counts.requests * costs["store.request"]
    cpu_s += counts.check_ins * costs["root.check_in"]
    busy_s = cpu_s / (cores * costs["cores.used_forming"])
    return {CPU: cpu_s, WALL: max(busy_s, counts.timers_s)}


def emulated_allgather(spec: Spec, costs: Mapping[str, float], cores: int) -> dict[str, float]:
    """CPU of ranks, and seconds, of the first steps of an AllGather."""
    gather = plan_of(spec).gathers[-1]
    sent = traffic(spec)
    if gather.schedule.peers(spec.nranks):
        cpu_s = sent.messages * costs["cpu.peer"]
        cpu_s += sent.sent_bytes * costs["cpu.cut_through_byte"]
    elif gather.schedule.flow == "cut-through":
        entering = lay_out(spec).workers * gather.rounds(spec.nranks, spec.steps)
        cpu_s = spec.nranks * costs["cpu.cut_through"]
        cpu_s += entering * costs["cpu.cut_through_block"]
        cpu_s += sent.sent_bytes * costs["cpu.cut_through_byte"]
    else:
        message_s = costs["cpu.message"]
        rounds = gather.rounds(spec.nranks, spec.steps)
        if both_ways(gather.schedule, spec.nranks, rounds):
            message_s += costs["cpu.contention"]
        cpu_s = sent.messages * message_s + sent.sent_bytes * costs["cpu.byte"]
    return {CPU: cpu_s, WALL: cpu_s / (cores * costs["cores.used_gathering"])}
