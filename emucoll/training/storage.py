"""How long a checkpoint takes to write to storage that all ranks share."""


def write_s(
    size_bytes: float,
    sustained_bytes_per_s: float,
    peak_bytes_per_s: float | None = None,
    burst_bytes: float = 0.0,
) -> float:
    """Seconds until a checkpoint is written while the job waits.

    All ranks write at once, and that saturates the storage: it takes `burst_bytes` at its peak, the
    rest as fast as it can for ever. Without a known burst all of it is written at the sustained
    rate, which is the longest that it can take; at the peak rate, with a burst of its whole size,
    the shortest.
    """
    peak = sustained_bytes_per_s if peak_bytes_per_s is None else peak_bytes_per_s
    at_peak = min(size_bytes, burst_bytes)
    return at_peak / peak + (size_bytes - at_peak) / sustained_bytes_per_s


def shortest_period_s(size_bytes: float, sustained_bytes_per_s: float) -> float:
    """The shortest period of checkpoints that the storage keeps up with, bursts or not."""
    return size_bytes / sustained_bytes_per_s
