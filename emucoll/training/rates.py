"""How often a job fails: from counts or published rates to the mean time between its failures.

A node fails at a constant rate, whatever the others do, and any node's failure is the job's. So the
time between a job's failures is exponential, and its mean falls with 1 / nodes (Kokolis et al.,
arXiv 2410.21680).
"""

import math

DAY_S = 86_400.0


def nodes_of(n: int, gpus_per_node: int) -> int:
    """Nodes that hold `n` GPUs, the last one perhaps in part."""
    return -(-n // gpus_per_node)


def mtbf_s(nodes: float, per_1000_node_days: float) -> float:
    """Mean seconds between failures of a job on so many nodes; infinite without failures."""
    per_day = nodes * per_1000_node_days / 1000
    return DAY_S / per_day if per_day else math.inf


def per_1000_node_days(failures: float, nodes: float, time_s: float) -> float:
    """The rate of a job that saw so many failures in `time_s`."""
    return failures / (nodes * time_s / DAY_S) * 1000


def per_1000_node_days_of(mtbf: float, nodes: float) -> float:
    """The rate of a job with so many seconds between failures."""
    return per_1000_node_days(1, nodes, mtbf)
