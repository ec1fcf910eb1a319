"""What this process has taken of the machine, as the kernel counts it."""

import resource


def cpu_s() -> float:
    """User and system time so far, seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime
