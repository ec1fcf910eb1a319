"""Collectives as schedules, and the one driver that runs a schedule. `ALLGATHERS` lists what there
is by name.
"""

from emucoll.collectives.bruck import BRUCK
from emucoll.collectives.rings import RING, RING_BIDIR, RING_BIDIR_HEADERLESS, RING_PIPELINED
from emucoll.collectives.schedule import Schedule

__all__ = ["ALLGATHERS", "BRUCK", "RING", "RING_BIDIR", "RING_BIDIR_HEADERLESS", "RING_PIPELINED"]

ALLGATHERS: dict[str, Schedule] = {
    schedule.name: schedule
    for schedule in (RING, RING_BIDIR, RING_BIDIR_HEADERLESS, RING_PIPELINED, BRUCK)
}
