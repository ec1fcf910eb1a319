"""How ranks find each other and form the ring. `FORMATIONS` lists what there is by name."""

from emucoll.formation.base import Formation
from emucoll.formation.nccl import NcclMultiRoot, NcclRoot, NcclRoot222
from emucoll.formation.tcpstore import TcpStoreRing

FORMATIONS: dict[str, Formation] = {
    formation.name: formation
    for formation in (TcpStoreRing(), NcclRoot(), NcclRoot222(), NcclMultiRoot())
}
