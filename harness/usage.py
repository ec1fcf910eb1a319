"""What this process has taken of the machine, as the kernel counts it."""

import resource


def cpu_s() -> float:
    """User and system time so far, seconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def peak_rss_bytes() -> int:
    """The most memory that was resident."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
