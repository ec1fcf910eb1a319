"""What other processes take of this machine while we measure."""

import os
import resource
import time

import psutil


class Others:
    """From its making on. Tells other processes' CPU from ours and that of children that have
    ended; what a hypervisor gave to others counts as theirs.
    """

    def __init__(self) -> None:
        """Begin."""
        self._cores = os.sched_getaffinity(0)
        self._since = time.monotonic()
        self._all_s, self._ours_s = self._cores_s(), _ours_s()

    def share(self) -> float:
        """Of the time of the cores that we may use, up to now; 0 to 1."""
        cores_s = (time.monotonic() - self._since) * len(self._cores)
        theirs_s = self._cores_s() - self._all_s - (_ours_s() - self._ours_s)
        return min(1.0, max(0.0, theirs_s / cores_s)) if cores_s > 0 else 0.0

    def _cores_s(self) -> float:
        """Seconds that our cores have spent on processes, and on other guests."""
        each = psutil.cpu_times(percpu=True)
        ours = [each[core] for core in self._cores if core < len(each)] or each
        return sum(core.user + core.nice + core.system + getattr(core, "steal", 0) for core in ours)


def _ours_s() -> float:
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        usage = resource.getrusage(who)
        total += usage.ru_utime + usage.ru_stime
    return total
