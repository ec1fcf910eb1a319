"""What `emucoll project` is asked for, and where its ranks are."""

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from emucoll.errors import UsageError
from emucoll.loading import find_plan
from harness.clusters import Cluster, Hosts, in_order
from harness.names import refuse_unknown
from harness.spec import INT_MAX, MAX_CHANNELS

ORDERS = ("host", "rack", "random")
MAX_SIZES, MAX_DRAWS = 32, 10_000


class ProjectSpec(msgspec.Struct, frozen=True, kw_only=True):
    """What to project."""

    plan: tuple[str, ...]
    n: tuple[int, ...]
    cluster: str
    """A name, or a file."""
    rank_order: str = "host"
    """`host`, `rack`, `random`, or a file."""
    channels: int | None = None
    draws: int = 100
    """Of the cluster's uncertain values, for the interval; 0: no interval."""
    validation: tuple[str, ...] = ()
    """Results of `emucoll validate` beside those that emucoll brings along."""
    seed: int = 1
    out: str | None = None


def check(spec: ProjectSpec) -> None:
    """Raise UsageError for what no cluster could make sense of."""
    if not spec.plan:
        raise UsageError("--plan is missing: expected plans, as in --plan ncclx,nccl-2.30.7")
    if not spec.n:
        raise UsageError("-np is missing: expected numbers of ranks, as in -np 8192,98304")
    if len(spec.n) > MAX_SIZES:
        raise UsageError(f"-np names {len(spec.n)} sizes: expected at most {MAX_SIZES}")
    counts: list[tuple[str, int | None, int, int]] = [
        *(("-np", n, 1, INT_MAX) for n in spec.n),
        ("--channels", spec.channels, 1, MAX_CHANNELS),
        ("--draws", spec.draws, 0, MAX_DRAWS),
        ("--seed", spec.seed, 0, 2**63 - 1),
    ]
    for name, value, low, high in counts:
        if value is not None and not low <= value <= high:
            raise UsageError(f"{name} is {value}: expected {low} to {high}")
    for plan in spec.plan:
        refuse_unknown("plan", plan)
        find_plan(plan)
    for name, given in (("--plan", spec.plan), ("-np", spec.n)):
        if len(set(given)) < len(given):
            raise UsageError(f"{name} names one twice: expected each once")
    if spec.out == "":
        raise UsageError("--out is empty: expected a directory ('.' for this one)")


def hosts_of(order: str, nranks: int, cluster: Cluster, seed: int) -> Hosts:
    """The host of every rank: `host` fills one host after another; `rack` deals ranks to the hosts
    of a rack by turns, rack after rack; `random` shuffles them over all hosts in use; a file has a
    number for each, in JSON or apart by white space. Raises UsageError.
    """
    per_host = cluster.gpus_per_host
    filled = in_order(nranks, per_host)
    if order == "host":
        return filled
    if order == "rack":
        return _dealt(nranks, per_host, cluster.hosts_per_rack)
    if order == "random":
        return np.random.default_rng(seed).permutation(filled)
    return _from_file(order, nranks, cluster)


def _dealt(nranks: int, per_host: int, hosts_per_rack: int) -> Hosts:
    if hosts_per_rack == 1:
        raise UsageError("--rank-order rack: the cluster has no racks: it has no hosts_per_rack")
    hosts = []
    for first in range(0, nranks, per_host * hosts_per_rack):
        here = min(nranks - first, per_host * hosts_per_rack)
        used = -(-here // per_host)
        hosts.append(first // per_host + np.arange(here, dtype=np.int64) % used)
    return np.concatenate(hosts)


def _from_file(path: str, nranks: int, cluster: Cluster) -> Hosts:
    where = f"--rank-order {path}"
    if "/" not in path and not Path(path).suffix:
        raise UsageError(f"{where}: expected {', '.join(ORDERS)} or a file")
    try:
        text = Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise UsageError(f"{where}: {reason}") from None
    given = _numbers(where, text)
    if len(given) < nranks:
        raise UsageError(f"{where}: it has hosts for {len(given)} ranks: expected {nranks}")
    hosts = np.array(given[:nranks], dtype=np.int64)
    if hosts.min() < 0 or hosts.max() >= cluster.hosts:
        raise UsageError(f"{where}: expected hosts from 0 to {cluster.hosts - 1}")
    counts = np.bincount(hosts)
    if counts.max() > cluster.gpus_per_host:
        raise UsageError(
            f"{where}: host {counts.argmax()} has {counts.max()} ranks: expected at most "
            f"{cluster.gpus_per_host}"
        )
    return hosts


def _numbers(where: str, text: str) -> list[int]:
    given: Any
    try:
        given = json.loads(text) if text.lstrip().startswith("[") else text.split()
        numbers = [int(each) for each in given]
    except (ValueError, TypeError):
        numbers = []
    if not numbers:
        raise UsageError(f"{where}: expected the number of each rank's host, rank by rank")
    return numbers
