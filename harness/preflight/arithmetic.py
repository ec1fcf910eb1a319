"""The workers and the window that make a run fit a machine, or the reasons why nothing does.

`fit` turns a `Demand` (what the formation, the AllGathers and the flags ask for) and a `Machine`
into a `Layout`.

Holds true: pure, so equal arguments give equal answers. Whatever fits, fits with fewer ranks too. A
number that the machine doesn't tell refuses nothing. All ranks start together unless descriptors
forbid it (the store's, or a worker's where there can't be more workers).

Must not know how the machine was read, nor formations and AllGathers by name.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from emucoll.errors import UsageError
from harness.preflight.case import Case, Costs, Demand, Server, ceil_div, whole_cores
from harness.preflight.limits import Limit, Severity, limits_of
from harness.preflight.machine import Machine
from harness.spec import INT_MAX, MIN_START_WINDOW

__all__ = [
    "Costs",
    "Demand",
    "Estimates",
    "Layout",
    "Limit",
    "Server",
    "Severity",
    "fit",
    "fits",
    "refusal",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimates:
    """Orders of magnitude, for a user who decides whether to wait."""

    transfers: int
    """Blocks delivered by the AllGather."""
    moved_bytes: int
    """Of records; headers aren't counted."""
    start_s: float
    formation_s: float
    allgather_s: float
    low_s: float
    high_s: float
    """Bounds of the three together."""
    worker_memory_bytes: int
    """Of all workers, their verification tables included."""
    server_memory_bytes: int
    """Root, store and controller."""
    kernel_memory_bytes: int
    """Slabs and buffers of all sockets."""
    memory_bytes: int
    """The three together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How a run would be laid out on a machine, and whether it fits."""

    nranks: int
    workers: int
    window: int | None
    """Ranks of one worker in formation at once; None if all start together."""
    estimates: Estimates
    limits: tuple[Limit, ...]
    largest_that_fits: int
    """The most ranks that this machine has room for, all else being equal; 0 if it has none."""

    @property
    def fits(self) -> bool:
        """Does no limit refuse the run?"""
        return not self.refusals

    @property
    def refusals(self) -> tuple[Limit, ...]:
        """The limits that are in the way."""
        return tuple(limit for limit in self.limits if limit.refuses)

    @property
    def warnings(self) -> tuple[Limit, ...]:
        """The limits that a result should mention."""
        return tuple(limit for limit in self.limits if not limit.ok and limit.severity == "warn")

    @property
    def ranks_per_worker(self) -> tuple[int, ...]:
        """Contiguous shares in rank order: the first n mod w workers have one rank more."""
        share, rest = divmod(self.nranks, self.workers)
        return tuple(share + (worker < rest) for worker in range(self.workers))


def fit(demand: Demand, machine: Machine, costs: Costs | None = None) -> Layout:
    """Lay `demand` out on `machine`; if nothing fits, it is the least demanding one, refused.

    Raises UsageError for counts below 1.
    """
    base = _base(demand, machine, costs)
    case, limits = _best(base)
    return Layout(
        nranks=case.nranks,
        workers=case.workers,
        window=case.window,
        estimates=_estimates(case),
        limits=limits,
        largest_that_fits=_largest(base, _keeps(limits)),
    )


def fits(demand: Demand, machine: Machine, costs: Costs | None = None) -> bool:
    """What `Layout.fits` says, for less.

    Raises UsageError as `fit` does.
    """
    return _keeps(_best(_base(demand, machine, costs))[1])


def refusal(layout: Layout) -> str:
    """What a refused run ends with: what is in the way, why, what to do, and what would fit."""
    lines = [f"{layout.nranks:,} ranks don't fit this machine."]
    for limit in layout.refusals:
        lines += [f"  {limit.name}: {limit.because}", f"    remedy: {limit.remedy}"]
    if layout.largest_that_fits:
        lines.append(f"With the same flags -np {layout.largest_that_fits} is the most that fits.")
    else:
        lines.append("With these flags not even one rank fits.")
    return "\n".join(lines)


# --- Workers and window --------------------------------------------------------------------------


def _base(demand: Demand, machine: Machine, costs: Costs | None) -> Case:
    for flag, value in (("-np", demand.nranks), ("--workers", demand.workers)):
        if value is not None and value < 1:
            raise UsageError(f"{flag} is {value}: expected at least 1")
    return Case(demand=demand, machine=machine, costs=costs or Costs())


def _keeps(limits: tuple[Limit, ...]) -> bool:
    return not any(limit.refuses for limit in limits)


def _best(base: Case) -> tuple[Case, tuple[Limit, ...]]:
    """The first candidate that fits, else the last, which demands the least."""
    tried = ((case, limits_of(case)) for case in _candidates(base))
    case, limits = next(tried)
    while not _keeps(limits):
        following = next(tried, None)
        if following is None:
            break
        case, limits = following
    return case, limits


def _candidates(base: Case) -> Iterator[Case]:
    """By preference: no window before a window, useful workers before as few as will do."""
    for workers in _worker_counts(base, base.demand.window):
        yield replace(base, workers=workers, window=base.demand.window)
    demand, known = base.demand, base.free_descriptors is not None
    saves = known and (base.extra_descriptors > 0 or base.store_descriptors > 0)
    if saves and demand.windowable and demand.window is None:
        for workers in _worker_counts(base, MIN_START_WINDOW, _for_a_full_store(base)):
            yield replace(base, workers=workers, window=_widest_window(base, workers))


def _worker_counts(base: Case, window: int | None, wanted: int = 1) -> list[int]:
    """The most demanded by descriptors, ports and cores, as far as memory allows; then the least
    that will do.
    """
    if base.demand.workers is not None:
        return [min(base.demand.workers, base.nranks)]
    fewest = max(base.fewest_by_descriptors(window), _by_ports(base))
    cores = whole_cores(base)
    useful = max(fewest, wanted, cores)
    if useful > cores:
        useful = ceil_div(useful, cores) * cores
    useful = max(fewest, min(useful, _by_memory(base)))
    return [min(useful, base.nranks), min(fewest, base.nranks)]


def _by_ports(base: Case) -> int:
    """Workers whose addresses hold all listeners in the half of the range that is for them, which
    leaves the other half for their connections.
    """
    if not base.half_range or base.demand.ipv6:
        return 1
    return ceil_div(base.nranks * max(1, base.demand.listeners_per_rank), base.half_range)


def _by_memory(base: Case) -> int:
    """The most workers that there is memory for."""
    machine = base.machine
    haves = [] if machine.memory_available_bytes is None else [machine.memory_available_bytes]
    if machine.cgroup_memory_limit_bytes is not None:
        haves.append(machine.cgroup_memory_limit_bytes - (machine.cgroup_memory_used_bytes or 0))
    if not haves:
        return base.nranks
    one = base.memory_bytes
    another = max(1, replace(base, workers=2).memory_bytes - one)
    return 1 + max(0, min(haves) - one) // another


def _for_a_full_store(base: Case) -> int:
    """Workers whose own descriptors allow as many ranks in formation as the store's do. With fewer
    the window would be smaller than it need be.
    """
    if not base.free_descriptors:
        return 1
    held = base.nranks * base.demand.formed_descriptors
    return ceil_div(held + base.store_capacity * base.extra_descriptors, base.free_descriptors)


def _widest_window(base: Case, workers: int) -> int | None:
    """What descriptors of worker and store allow, never so small that ranks couldn't go on; None if
    that is all ranks of each worker.
    """
    most_ranks = ceil_div(base.nranks, workers)
    bounds = [most_ranks]
    if base.free_descriptors is not None:
        free = base.free_descriptors
        if base.extra_descriptors:
            held = most_ranks * base.demand.formed_descriptors
            bounds.append((free - held) // base.extra_descriptors)
        if base.store_descriptors:
            usable = int(free * base.costs.store_share)
            bounds.append(usable // (workers * base.store_descriptors))
    window = max(MIN_START_WINDOW, min(bounds))
    return window if window < most_ranks else None


def _largest(base: Case, it_fits: bool) -> int:
    """By bisection, which is sound because whatever fits, fits with fewer ranks."""
    low, high = (base.nranks, INT_MAX + 1) if it_fits else (0, base.nranks)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(replace(base.demand, nranks=middle), base.machine, base.costs):
            low = middle
        else:
            high = middle
    return low


# --- Estimates -----------------------------------------------------------------------------------


def _estimates(case: Case) -> Estimates:
    demand, costs = case.demand, case.costs
    busy = min(case.cores, case.workers)
    start_s = case.processes * costs.process_start_s / case.cores
    formation_s = case.nranks * costs.cpu_per_formed_rank_s / busy + demand.stagger_s
    formation_s += demand.skew_s
    transfers, moved_bytes, messages = 0, 0, 0.0
    for gather in demand.gathers:
        delivered = case.nranks * case.blocks(gather)
        transfers += delivered
        moved_bytes += delivered * gather.record_bytes
        messages += 0.0 if gather.cut_through else delivered * gather.messages_per_block
    bytes_s = moved_bytes / (costs.bytes_per_s_per_core * busy)
    messages_s = messages / (costs.lockstep_messages_per_s_per_core * busy)
    allgather_s = max(messages_s + bytes_s, demand.latency_s) + demand.local_s
    formation_s *= demand.bring_ups
    allgather_s *= demand.bring_ups
    total_s = start_s + formation_s + allgather_s
    return Estimates(
        transfers=transfers * demand.bring_ups,
        moved_bytes=moved_bytes * demand.bring_ups,
        start_s=start_s,
        formation_s=formation_s,
        allgather_s=allgather_s,
        low_s=max(
            total_s * costs.low_factor,
            (demand.latency_s + demand.least_skew_s) * demand.bring_ups,
        ),
        high_s=total_s * costs.high_factor,
        worker_memory_bytes=case.worker_memory_bytes,
        server_memory_bytes=case.server_memory_bytes,
        kernel_memory_bytes=case.kernel_memory_bytes,
        memory_bytes=case.memory_bytes,
    )
