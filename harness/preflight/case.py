"""What is to run, and how much of everything one way of laying it out over workers takes.

Holds true: pure arithmetic on counts and bytes. An amount that may refuse a run never shrinks where
ranks are added to as many workers.

Must not know limits: comparing is the work of `limits`, choosing that of `arithmetic`.
"""

import math
from dataclasses import dataclass
from typing import Literal

from harness.preflight.machine import Machine

Server = Literal["none", "builtin", "external"]
"""builtin: a process that this run starts here, be it ours or the real one. external: reached by
its address, so its machine's limits are not ours to read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gathering:
    """One AllGather, as far as it takes anything of the machine."""

    record_bytes: int
    blocks: int | None = None
    """That it brings a rank; None for all n - 1."""
    piece_bytes: int | None = None
    """The most of it that a rank holds at once, coming in or going out; None: a record."""
    cut_through: bool
    """Blocks are coalesced; otherwise `messages_per_block` go out in lockstep."""
    messages_per_block: float = 2.0

    @property
    def held_bytes(self) -> int:
        """What a rank may hold of it, in each direction."""
        if self.cut_through:
            return 0
        return self.record_bytes if self.piece_bytes is None else self.piece_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What is to run. Counts are per rank unless the name says otherwise."""

    nranks: int
    gathers: tuple[Gathering, ...]
    """One after the other."""
    formed_descriptors: int
    """Held by a rank in the ring."""
    unformed_descriptors: int
    """Most at once while it forms."""
    listeners_per_rank: int
    """Ports that it binds on its worker's source address, most at once."""
    uses_store: Server = "none"
    uses_root: Server = "none"
    nroots: int | None = 1
    """None for one per `ranks_per_root`."""
    ranks_per_root: int | None = None
    group_roots: int = 0
    """Those of process groups, in the same process."""
    threads_per_root: int = 0
    """That a root takes beside those of its process."""
    store_descriptors_per_unformed_rank: int = 0
    windowable: bool
    """May ranks be admitted a window at a time? Not where nobody is answered before all came."""
    p2p_connections_per_rank: int = 0
    """Of point to point, one a message, closed at once."""
    latency_s: float = 0.0
    """How long the AllGathers wait for messages that are late on purpose."""
    least_skew_s: float = 0.0
    """How late the last rank starts at least, on purpose."""
    skew_s: float = 0.0
    """How late it starts, about."""
    local_s: float = 0.0
    """How long ranks' local work takes, run or charged."""
    bring_ups: int = 1
    """How often all ranks are brought up, one time after the other."""
    stagger_s: float = 0.0
    """How long the formation makes its last rank wait on purpose."""
    ipv6: bool = False
    workers: int | None = None
    window: int | None = None
    """Of each worker. Both are None where they are ours to choose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Measured constants, on 2 cores with kernel 6.18."""

    worker_base_bytes: int = 37 << 20
    """Resident before the first rank: interpreter, uvloop, numpy, pyzmq."""
    worker_bytes_per_rank: int = 7 << 10
    record_copies_per_rank: int = 2
    """In lockstep a rank may hold a record that comes in and one that goes out."""
    server_base_bytes: int = 40 << 20
    server_bytes_per_rank: int = 2 << 10
    controller_bytes: int = 110 << 20
    """Its imports for people (click, rich) make it larger than a worker."""
    kernel_bytes_per_socket: int = 4 << 10
    """7,381 bytes of slab a connection, so 3,690 an end: TCP 2,330, sock_inode_cache 806, dentry,
    filp, epoll items."""
    skb_overhead_bytes: int = 832
    """Charged beside the payload; 28 to 2,320 bytes under way then take the one page seen."""
    reserve_descriptors: int = 64
    """Of each process, for all that isn't a rank's: control plane, epoll, libraries."""
    store_share: float = 0.75
    """Of the store's descriptors that windows may fill: a formed rank's slot is free before the
    store has seen its connection close (filled to the last one, a store ran out)."""
    threads_per_process: int = 4
    """The process's own, ZeroMQ's two and one to spare."""
    cpu_per_formed_rank_s: float = 0.42e-3
    """20.1 s for 98,304 ranks by TCPStore on 2 cores, the store's part included."""
    bytes_per_s_per_core: float = 3e9
    """38.8 s for 98,304 × 24 bytes, cut-through, with reads of up to 256 KiB. In lockstep the bytes
    come on top of the messages."""
    lockstep_messages_per_s_per_core: float = 80e3
    process_start_s: float = 0.3
    """CPU seconds."""
    low_factor: float = 0.7
    high_factor: float = 4.0
    """1.5 to 6.0 GB/s were seen at 98,304 ranks, by record size and kernel TCP memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One layout of a demand on a machine; `window` is None if all ranks start together."""

    demand: Demand
    machine: Machine
    costs: Costs
    workers: int = 1
    window: int | None = None

    # -- Ranks and processes

    @property
    def nranks(self) -> int:
        """All of them."""
        return self.demand.nranks

    @property
    def most_ranks(self) -> int:
        """Of the fullest worker."""
        return ceil_div(self.nranks, self.workers)

    @property
    def forming_here(self) -> int:
        """In formation at once in the fullest worker."""
        return self.most_ranks if self.window is None else min(self.window, self.most_ranks)

    @property
    def forming(self) -> int:
        """In formation at once in all workers."""
        return self.nranks if self.window is None else min(self.window * self.workers, self.nranks)

    @property
    def forming_bound(self) -> int:
        """At least `forming`, and never less for more ranks: a window of our choice shrinks where
        a worker has more ranks to hold, and what fits must not depend on that.
        """
        chosen = self.window is not None and self.demand.window is None
        return self.store_capacity if chosen else self.forming

    def blocks(self, gather: Gathering) -> int:
        """That the AllGather will bring a rank."""
        every = self.nranks - 1
        return every if gather.blocks is None else min(gather.blocks, every)

    @property
    def piece_bytes(self) -> int:
        """What a rank may hold of an AllGather, in each direction."""
        return max((gather.held_bytes for gather in self.demand.gathers), default=0)

    @property
    def servers(self) -> int:
        """Root and store processes that this run starts."""
        return [self.demand.uses_root, self.demand.uses_store].count("builtin")

    @property
    def own_roots(self) -> int:
        """Those of all ranks; 0 if there are none."""
        demand = self.demand
        if demand.uses_root == "none" or demand.nroots == 0:
            return 0
        asked = demand.nroots or ceil_div(self.nranks, demand.ranks_per_root or self.nranks)
        return min(asked, self.nranks)

    @property
    def roots(self) -> int:
        """All in one process."""
        return self.own_roots + self.demand.group_roots

    @property
    def ranks_of_a_root(self) -> int:
        """Who checks in with the root that owns most: with several, one of the next root's too."""
        return ceil_div(self.nranks, self.own_roots) + (self.own_roots > 1) if self.own_roots else 0

    @property
    def processes(self) -> int:
        """Workers, servers and the controller."""
        return self.workers + self.servers + 1

    @property
    def cores(self) -> float:
        """Cores' worth of CPU time; 1 if nothing is known."""
        machine = self.machine
        known = (machine.cores_online, machine.cores_allowed, machine.cgroup_cores)
        return min((cores for cores in known if cores is not None), default=1)

    # -- Descriptors and sockets

    @property
    def free_descriptors(self) -> int | None:
        """What one process has for ranks; workers raise their soft limit to the hard one."""
        nofile = self.machine.nofile_hard
        return None if nofile is None else max(0, nofile - self.costs.reserve_descriptors)

    @property
    def extra_descriptors(self) -> int:
        """Those that only a rank in formation holds."""
        return max(0, self.demand.unformed_descriptors - self.demand.formed_descriptors)

    @property
    def store_descriptors(self) -> int:
        """Of our own store, for each rank in formation; 0 without one."""
        ours = self.demand.uses_store == "builtin"
        return self.demand.store_descriptors_per_unformed_rank if ours else 0

    @property
    def store_capacity(self) -> int:
        """How many ranks the store lets form at once: all, if it isn't ours or has no limit."""
        if self.free_descriptors is None or self.store_descriptors < 1:
            return self.nranks
        return min(self.nranks, self.free_descriptors // self.store_descriptors)

    @property
    def sockets(self) -> int:
        """Those of ranks, and the far ends of those that lead to our store."""
        formed = self.nranks * self.demand.formed_descriptors
        forming = self.forming_bound * (self.extra_descriptors + self.store_descriptors)
        return formed + forming + self.root_descriptors

    @property
    def root_descriptors(self) -> int:
        """Of all roots: each a listener and one connection at a time. One alone isn't counted."""
        return 2 * self.roots if self.roots > 1 else 0

    def fewest_by_descriptors(self, window: int | None) -> int:
        """Workers whose own descriptors just suffice, with a window of this size."""
        if self.free_descriptors is None:
            return 1
        formed = max(1, self.demand.formed_descriptors)
        capacity = self.free_descriptors // (formed + self.extra_descriptors)
        if window is not None:
            beside = self.free_descriptors - self.extra_descriptors * window
            capacity = max(capacity, beside // formed)
        return ceil_div(self.nranks, capacity) if capacity > 0 else self.nranks

    # -- Ports

    @property
    def ports(self) -> int | None:
        """Of one address."""
        low, high = self.machine.port_low, self.machine.port_high
        if low is None or high is None:
            return None
        return max(0, high - low + 1 - (self.machine.ports_reserved or 0))

    @property
    def half_range(self) -> int | None:
        """Ports that are for listeners, and as many for connections.

        A listener that leaves the choice to the kernel gets a port of odd offset in the range while
        there is one; a connection one of even offset first, and never one that any listener holds
        on whatever address (inet_csk_find_open_port, __inet_hash_connect; seen with 6.18).
        """
        return None if self.ports is None else self.ports // 2

    @property
    def ranks_per_address(self) -> int:
        """Every worker has a source address of its own, but ::1 is everybody's."""
        return self.nranks if self.demand.ipv6 else self.most_ranks

    @property
    def listeners(self) -> int:
        """On one address."""
        return self.ranks_per_address * self.demand.listeners_per_rank

    @property
    def server_connections(self) -> int:
        """From one address to one server, most at once; 0 without servers.

        A window of our choice isn't counted on: it is made for descriptors, and a closed connection
        keeps its port for another second.
        """
        if self.demand.uses_root == self.demand.uses_store == "none":
            return 0
        most = self.nranks if self.demand.uses_store != "none" else self.ranks_of_a_root
        if self.demand.ipv6:
            return min(most, self.forming_bound)
        return min(most, self.most_ranks, self.demand.window or self.most_ranks)

    @property
    def connections_per_rank(self) -> int:
        """In a whole run: one of the ring's, one to a store, one to and one from a root, and those
        of point to point.
        """
        store = self.demand.uses_store != "none"
        root = 2 * (self.demand.uses_root != "none")
        return 1 + store + root + self.demand.p2p_connections_per_rank

    @property
    def connections(self) -> int:
        """In a whole run. With several roots, the first rank of each checks in twice."""
        again = self.own_roots if self.own_roots > 1 else 0
        return self.nranks * self.connections_per_rank + again

    # -- Bytes

    @property
    def table_bytes(self) -> int:
        """Verification tables of a worker: what its ranks, being neighbours, can receive."""
        return sum(
            min(self.nranks, self.most_ranks + self.blocks(gather)) * gather.record_bytes
            for gather in self.demand.gathers
        )

    @property
    def bytes_per_rank(self) -> int:
        """In its worker."""
        copies = self.costs.record_copies_per_rank
        return self.costs.worker_bytes_per_rank + copies * self.piece_bytes

    @property
    def worker_memory_bytes(self) -> int:
        """Of all workers."""
        each = self.costs.worker_base_bytes + self.table_bytes
        return self.workers * each + self.nranks * self.bytes_per_rank

    @property
    def server_memory_bytes(self) -> int:
        """Root, store and controller."""
        each = self.costs.server_base_bytes + self.nranks * self.costs.server_bytes_per_rank
        return self.costs.controller_bytes + self.servers * each

    @property
    def page_bytes(self) -> int:
        """The machine's, or the usual one."""
        return self.machine.page_bytes or 4096

    @property
    def ring_pages(self) -> int:
        """Of socket buffers, with a record under way on each ring connection: at the receiver until
        it is read, at the sender until it is acknowledged (28 bytes: 1.92 pages a connection).
        Cut-through is counted with the least, as its waves drain before they pile up (0.75 seen).
        """
        pages = 0
        for buffer in (self.machine.tcp_rmem_bytes, self.machine.tcp_wmem_bytes):
            held = min(self.piece_bytes, buffer[2]) if buffer is not None else self.piece_bytes
            pages += ceil_div(held + self.costs.skb_overhead_bytes, self.page_bytes)
        return pages * self.nranks

    @property
    def kernel_memory_bytes(self) -> int:
        """Slabs and buffers of all sockets."""
        slabs = self.sockets * self.costs.kernel_bytes_per_socket
        return slabs + self.ring_pages * self.page_bytes

    @property
    def memory_bytes(self) -> int:
        """All of it."""
        return self.worker_memory_bytes + self.server_memory_bytes + self.kernel_memory_bytes


def ceil_div(dividend: int, divisor: int) -> int:
    """Exact where floats are not."""
    return -(-dividend // divisor)


def whole_cores(case: Case) -> int:
    """Workers that can run at the same time."""
    return max(1, math.ceil(case.cores))
