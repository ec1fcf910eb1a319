from dataclasses import replace
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from harness.preflight.arithmetic import Costs, Demand, fit, fits
from harness.preflight.case import Gathering
from harness.preflight.machine import Machine

MIB = 1 << 20


def sometimes(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def tight_machines() -> st.SearchStrategy[Machine]:
    """Small enough that every limit binds for some of `demands`."""
    triples = st.tuples(*[st.integers(0, 8000)] * 3)
    return st.builds(
        Machine,
        nofile_hard=sometimes(st.integers(60, 3000)),
        files_max=sometimes(st.integers(0, 20_000)),
        cores_online=sometimes(st.integers(1, 9)),
        cgroup_cores=sometimes(st.floats(0.1, 9)),
        memory_available_bytes=sometimes(st.integers(0, 3000 * MIB)),
        cgroup_memory_limit_bytes=sometimes(st.integers(0, 3000 * MIB)),
        port_low=st.just(40_000),
        port_high=sometimes(st.integers(40_000, 42_000)),
        conntrack_max=sometimes(st.integers(0, 8000)),
        conntrack_count=st.integers(0, 3),
        tcp_mem_pages=sometimes(triples.map(lambda triple: tuple(sorted(triple)))),
        cgroup_pids_limit=sometimes(st.integers(4, 400)),
    )


def gatherings() -> st.SearchStrategy[Gathering]:
    return st.builds(
        Gathering,
        record_bytes=st.sampled_from([0, 28, 2320, MIB]),
        blocks=sometimes(st.integers(1, 400)),
        cut_through=st.booleans(),
    )


@st.composite
def demands(draw: st.DrawFn) -> Demand:
    formed = draw(st.integers(1, 5))
    return Demand(
        nranks=draw(st.integers(1, 3000)),
        gathers=tuple(draw(st.lists(gatherings(), max_size=3))),
        formed_descriptors=formed,
        unformed_descriptors=formed + draw(st.integers(-1, 2)),
        listeners_per_rank=draw(st.integers(0, 2)),
        uses_store=draw(st.sampled_from(["none", "builtin", "external"])),
        uses_root=draw(st.sampled_from(["none", "builtin"])),
        nroots=draw(sometimes(st.integers(1, 3000))),
        ranks_per_root=draw(sometimes(st.integers(1, 300))),
        threads_per_root=draw(st.integers(0, 1)),
        store_descriptors_per_unformed_rank=draw(st.integers(0, 2)),
        windowable=draw(st.booleans()),
        p2p_connections_per_rank=draw(st.integers(0, 3)),
        ipv6=draw(st.booleans()),
        workers=draw(sometimes(st.integers(1, 60))),
        window=draw(sometimes(st.integers(1, 400))),
    )


@given(demands(), tight_machines())
def test_every_rank_has_a_place_within_the_limits(demand: Demand, machine: Machine) -> None:
    plan = fit(demand, machine)
    assert 1 <= plan.workers <= demand.nranks
    assert sum(plan.ranks_per_worker) == demand.nranks
    assert max(plan.ranks_per_worker) - min(plan.ranks_per_worker) <= 1
    assume(plan.fits)
    if demand.workers is not None:
        assert plan.workers == min(demand.workers, demand.nranks)
    if machine.nofile_hard is None:
        return
    reserve = Costs().reserve_descriptors
    forming = [min(ranks, plan.window or ranks) for ranks in plan.ranks_per_worker]
    extra = max(0, demand.unformed_descriptors - demand.formed_descriptors)
    for ranks, here in zip(plan.ranks_per_worker, forming, strict=True):
        held = ranks * demand.formed_descriptors + here * extra
        assert held + reserve <= machine.nofile_hard
    if demand.uses_store == "builtin":
        held = sum(forming) * demand.store_descriptors_per_unformed_rank
        assert held == 0 or held + reserve <= machine.nofile_hard


@given(demands(), tight_machines())
def test_a_window_is_the_users_or_forced_by_descriptors(demand: Demand, machine: Machine) -> None:
    plan = fit(demand, machine)
    if demand.window is not None:
        assert plan.window == demand.window
    elif not demand.windowable or machine.nofile_hard is None:
        assert plan.window is None
    elif plan.window is not None:
        assert plan.window >= 3
        assert not plan.fits or not fits(replace(demand, windowable=False), machine)
    if plan.fits and plan.window is not None and demand.windowable:
        assert plan.window >= 3


@given(demands(), tight_machines(), st.integers(0, 3000))
def test_whatever_fits_fits_with_fewer_ranks(demand: Demand, machine: Machine, less: int) -> None:
    if fits(demand, machine):
        assert fits(replace(demand, nranks=max(1, demand.nranks - less)), machine)


@given(demands(), tight_machines())
def test_whatever_fits_fits_with_one_rank_less(demand: Demand, machine: Machine) -> None:
    if demand.nranks > 1 and fits(demand, machine):
        assert fits(replace(demand, nranks=demand.nranks - 1), machine)


@given(demands(), tight_machines())
def test_the_largest_fits_and_one_more_does_not(demand: Demand, machine: Machine) -> None:
    plan = fit(demand, machine)
    largest = plan.largest_that_fits
    assert plan.fits == fits(demand, machine) == (demand.nranks <= largest)
    assert largest == 0 or fits(replace(demand, nranks=largest), machine)
    assert not fits(replace(demand, nranks=largest + 1), machine)


@given(demands(), tight_machines())
def test_a_refusal_always_has_a_reason_and_a_remedy(demand: Demand, machine: Machine) -> None:
    for limit in fit(demand, machine).refusals:
        assert limit.have is not None
        assert limit.have < limit.need
        assert limit.because
        assert limit.remedy
