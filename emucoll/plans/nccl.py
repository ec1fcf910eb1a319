"""NCCL's own initializations, release by release, and Meta's NCCLX.

What each does in which order, with that release's record sizes, loops and descriptors. Source:
NCCL's tags v2.22.3-1 to v2.30.7-1, src/bootstrap.cc (bootstrapInit, ringAllInfo,
bootstrapIntraNodeBarrier) and src/init.cc (initTransportsRank); for NCCLX arXiv 2510.20171 and
`docs/plans.md`. GPU work (kernels, topology search, transports) is not part of them.
"""

from dataclasses import replace

from emucoll.collectives import ALLGATHERS
from emucoll.collectives.schedule import Schedule
from emucoll.errors import UsageError
from emucoll.formation.base import Formation
from emucoll.formation.nccl import NcclMultiRoot, NcclRoot, NcclRoot222
from emucoll.formation.tcpstore import TcpStoreRing
from emucoll.net.retries import nccl_backoff_2_23
from emucoll.plans.local import (
    NODE_NUMBERING,
    RING_CHECK_BITMAP,
    RING_CHECK_NESTED,
    duplicate_gpu,
    same_process,
)
from emucoll.plans.steps import RING, Barrier, Gather, Local, Plan, Published, Step
from emucoll.wire.nccl import CHECK_IN_2_23, CHECK_IN_2_29

MULTIROOT = "+multiroot"
"""After a plan's name: several roots."""
_P2P, _PROXY = "p2p", "proxy"
_UNIDIRECTIONAL, _BIDIRECTIONAL = ALLGATHERS["ring"], ALLGATHERS["ring-bidir"]


def _ring_info(schedule: Schedule, record_bytes: int) -> Gather:
    """2.23 and later: all that peers connect to, in one record: P2P address, proxy address, 8 bytes
    of a Unix socket's name, then what RAS wants (56 bytes, 2.24 and later).
    """
    return Gather(
        "bootstrap.ring", schedule, record_bytes, (Published(_P2P, 0), Published(_PROXY, 28))
    )


def _after_bootstrap(
    schedule: Schedule,
    peer_info: int,
    topology: int,
    *,
    bitmap: bool,
    duplicates: bool,
    barrier: Barrier,
) -> tuple[Step, ...]:
    """What initTransportsRank does, in its order; record sizes in bytes."""
    ring_check = RING_CHECK_BITMAP if bitmap else RING_CHECK_NESTED
    steps: list[Step] = [Gather("allgathers.peer_info", schedule, peer_info)]
    if duplicates:
        steps.append(Local("allgathers.duplicate_gpu", duplicate_gpu(peer_info)))
    steps += [
        Local("rest.same_process", same_process(peer_info)),
        Gather("allgathers.topology", schedule, topology),
        Local("allgathers.node_numbering", NODE_NUMBERING),
        Local("allgathers.ring_check", ring_check),
        barrier,
    ]
    return tuple(steps)


_BARRIER = Barrier("rest.barrier")

_NCCL_2_22_3 = Plan(
    name="nccl-2.22.3",
    text="NCCL 2.22.3: a root that collects, 1 ms × rank of stagger, five AllGathers",
    formation=NcclRoot222(),
    listeners=(_PROXY,),
    p2p=RING,
    steps=(
        Gather("bootstrap.ring", _UNIDIRECTIONAL, 28, (Published(RING, 0),)),
        Gather("bootstrap.proxy", _UNIDIRECTIONAL, 28, (Published(_PROXY, 0),)),
        Gather("bootstrap.uds", _UNIDIRECTIONAL, 8),
        *_after_bootstrap(
            _UNIDIRECTIONAL,
            104,
            1228,
            bitmap=False,
            duplicates=False,
            barrier=Barrier("rest.barrier", tagged_apart=True),
        ),
    ),
)


def _since_2_23(
    version: str,
    text: str,
    formation: Formation,
    schedule: Schedule,
    records: tuple[int, int, int],
    *,
    bitmap: bool,
    duplicates: bool = False,
) -> Plan:
    ring, peer_info, topology = records
    return Plan(
        name=f"nccl-{version}",
        text=text,
        formation=formation,
        listeners=(_PROXY, _P2P),
        p2p=_P2P,
        steps=(
            _ring_info(schedule, ring),
            *_after_bootstrap(
                schedule,
                peer_info,
                topology,
                bitmap=bitmap,
                duplicates=duplicates,
                barrier=_BARRIER,
            ),
        ),
    )


_NCCL_2_30_7 = _since_2_23(
    "2.30.7",
    "NCCL 2.30.7: bidirectional rings, a bitmap for the ring check, a loop over pairs of GPUs",
    NcclRoot(CHECK_IN_2_29),
    _BIDIRECTIONAL,
    (120, 144, 2320),
    bitmap=True,
    duplicates=True,
)

_NCCLX = replace(
    _NCCL_2_30_7,
    name="ncclx",
    text="Meta's NCCLX, CTran on: a TCPStore ring without a root, then as 2.30.7, then CTran's",
    formation=TcpStoreRing(),
    steps=(
        *_NCCL_2_30_7.steps,
        Gather("rest.ctran_264", _BIDIRECTIONAL, 264),
        Gather("rest.ctran_36", _BIDIRECTIONAL, 36),
        Gather("rest.ctran_128", _BIDIRECTIONAL, 128),
    ),
)

NCCL_PLANS = (
    _NCCL_2_22_3,
    _since_2_23(
        "2.23.4",
        "NCCL 2.23.4: a root that forwards eagerly, 7,000 check-ins/s of stagger, three AllGathers",
        NcclRoot(CHECK_IN_2_23, nccl_backoff_2_23),
        _UNIDIRECTIONAL,
        (64, 104, 1260),
        bitmap=False,
    ),
    _since_2_23(
        "2.27.7",
        "NCCL 2.27.7: as 2.23.4, with larger records and 34 tries of a connection",
        NcclRoot(CHECK_IN_2_23),
        _UNIDIRECTIONAL,
        (120, 120, 2288),
        bitmap=False,
    ),
    _since_2_23(
        "2.28.9",
        "NCCL 2.28.9: bidirectional rings, a bitmap for the ring check",
        NcclRoot(CHECK_IN_2_23),
        _BIDIRECTIONAL,
        (120, 120, 2292),
        bitmap=True,
    ),
    _NCCL_2_30_7,
    _NCCLX,
)


def with_several_roots(plan: Plan) -> Plan:
    """`plan` with one root per 128 ranks. Raises UsageError where it can have no more than one."""
    formation = plan.formation
    if isinstance(formation, NcclMultiRoot):
        return plan
    if type(formation) is not NcclRoot:
        has = "has no root" if formation.server != "root" else "knows one root alone"
        raise UsageError(f"plan {plan.name}{MULTIROOT}: {plan.name} {has}; leave {MULTIROOT} out")
    several = NcclMultiRoot(formation.check_in, formation.tries)
    return replace(plan, name=plan.name + MULTIROOT, formation=several)
