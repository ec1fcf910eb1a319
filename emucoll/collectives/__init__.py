"""Collectives as schedules, and the one driver that runs a schedule. `ALLGATHERS` lists what there
is by name.
"""

from emucoll.collectives.rings import RING, RING_PIPELINED
from emucoll.collectives.schedule import Schedule

ALLGATHERS: dict[str, Schedule] = {schedule.name: schedule for schedule in (RING, RING_PIPELINED)}
