"""What emucoll reaches of the physical limit, as ratios from one run: `make bench`.

Each figure pairs emucoll with a C program, or with itself at another size; the two sides run in
turns, in the same minutes, and the median of the pairs' ratios is printed with its range. CPU
seconds are compared where one side could have been disturbed; wall time where a core's idling
counts.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from emucoll.collectives import ALLGATHERS
from emucoll.sim.cost import Costs
from emucoll.sim.rounds import Noise, play, wires

BUILD = Path("build/bench")


ASKED_TRANSFERS_PER_S = 1.5e8


@dataclass
class Figure:
    """One line of the report."""

    name: str
    bound: str
    unit: str
    pairs: list[tuple[float, float]] = field(default_factory=list)

    def line(self) -> str:
        """Ours, theirs, and the ratio, as medians over the pairs."""
        ours, theirs = ([pair[side] for pair in self.pairs] for side in (0, 1))
        ratios = sorted(a / b for a, b in self.pairs)
        our, their = statistics.median(ours), statistics.median(theirs)
        return (
            f"{self.name:<62} {our:>12,.4g} {their:>12,.4g} "
            f"{self.unit:<14} {statistics.median(ratios):6.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})  "
            f"{self.bound}"
        )


def c_program(name: str, *arguments: object) -> dict[str, float]:
    """Run one C program; its `name=value` pairs."""
    command = [str(BUILD / name), *map(str, arguments)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    pairs = (word.split("=", 1) for word in output.split() if "=" in word)
    return {key: float(value) for key, value in pairs}


def emucoll(nranks: int, *arguments: object) -> dict:
    """Run `emucoll run`; its result."""
    command = [
        sys.executable,
        "-m",
        "harness.cli.main",
        "run",
        "-np",
        str(nranks),
        "--json",
        "--quiet",
    ]
    done = subprocess.run(
        [*command, *map(str, arguments)], check=False, capture_output=True, text=True
    )
    result = json.loads(done.stdout)
    if not result["ok"]:
        raise SystemExit(f"emucoll run -np {nranks} failed: {result['error']}")
    return result


def phase(result: dict, name: str) -> dict:
    """One phase of a result."""
    return next(phase for phase in result["phases"] if phase["name"] == name)


def lockstep(allgather: str, figure: Figure) -> None:
    """Messages a second of one core: NCCL's sizes and blocks in lockstep, 1,000 ranks, 28 bytes,
    300 blocks a rank; the C program sends as many one way.
    """
    blocks = 300
    steps = blocks // 2 if allgather == "ring-bidir" else blocks
    flags = ("--record-bytes", 28, "--steps", steps, "--workers", 1)
    result = emucoll(1000, "--allgather", allgather, *flags)
    ours = 2 * result["allgathers"][0]["transfers"] / phase(result, "bootstrap.ring")["cpu_s"]
    theirs = c_program("ring_limit", 1000, blocks, 28, "--headers")
    figure.pairs.append((ours, 2 * 1000 * blocks / theirs["cpu_s"]))


def pipelined(figure: Figure) -> None:
    """Bytes a second of one core: cut-through, 6,000 ranks, 28 bytes, one worker."""
    gather = emucoll(6000, "--workers", 1)["allgathers"][0]
    theirs = c_program("ring_limit", 6000, 5999, 28, 262144)
    figure.pairs.append((gather["transfers"] * 28 / gather["seconds"], theirs["bytes_per_s"]))


def cpu_per_rank(figure: Figure) -> None:
    """CPU of a formed rank, its share of the store's and of the event loop's included, against a
    bare connection. As in the main job no process has a core to itself. The harness's barrier and
    the AllGather come after.
    """
    n, workers = 12_000, 2
    result = emucoll(n, "--workers", workers, "--steps", 1)
    forming = phase(result, "bootstrap")["cpu_s"] + phase(result, "loop")["cpu_s"]
    forming -= sum(phase(result, f"bootstrap.{name}")["cpu_s"] for name in ("barrier", "ring"))
    ours = (forming + result["work"]["store"]["cpu_s"]) / n * 1e6
    figure.pairs.append((ours, c_program("bare_connect", n // workers)["cpu_us_per_rank"]))


def recording(figure: Figure) -> None:
    """CPU seconds of all of a run whose spans are all kept, against the same with none kept: a
    whole initialization of 4,096 ranks, AllGathers cut to 8 steps, so that there are many spans.
    """
    seconds = []
    for flag in ("--record", "--no-record"):
        with tempfile.TemporaryDirectory() as folder:
            flags = ("--plan", "nccl-2.27.7", "--steps", 8, "--out", folder, flag)
            work = emucoll(4096, *flags)["work"]
        seconds.append(work["ranks"]["cpu_s"] + work["root"]["cpu_s"])
    figure.pairs.append((seconds[0], seconds[1]))


def formation_scaling(figure: Figure) -> None:
    """Formed ranks a second at 98,304 against 6,144."""
    rates = [emucoll(n, "--steps", 1)["formation"]["ranks_per_s"] for n in (98304, 6144)]
    figure.pairs.append((rates[0], rates[1]))


def bandwidth_scaling(figure: Figure) -> None:
    """Bytes a second of the pipelined ring at 98,304 against 12,288."""
    rates = []
    for n in (98304, 12288):
        gather = emucoll(n)["allgathers"][0]
        rates.append(gather["transfers"] * 28 / gather["seconds"])
    figure.pairs.append((rates[0], rates[1]))


def vectorised_ring(figure: Figure) -> None:
    """Transfers (a size and a block) a second of one core, of the first rounds of a ring of 98,304
    in virtual time, with noise of its own for every message; against what is asked.
    """
    n, rounds = 98304, 400
    costs = Costs(latency_s=50e-6, intra_host_latency_s=15e-6, send_s=5e-6, recv_s=5e-6)
    draws = np.random.default_rng(1)
    pool = draws.exponential(5e-6, 1 << 20)
    noise = Noise(pool, lambda below, count: draws.integers(below, size=count))
    wiring = wires(np.arange(n) // 8, costs)
    play(ALLGATHERS["ring"], 10, 120, np.zeros(n), costs, wiring, noise)  # what compiles it
    began = time.process_time()
    play(ALLGATHERS["ring"], rounds, 120, np.zeros(n), costs, wiring, noise)
    figure.pairs.append((n * rounds / (time.process_time() - began), ASKED_TRANSFERS_PER_S))


SMALL: list[tuple[Figure, Callable[[Figure], None]]] = [
    (
        Figure("ring: messages/s per core ÷ C with headers", ">= 0.7", "messages/s"),
        partial(lockstep, "ring"),
    ),
    (
        Figure("ring-bidir: messages/s per core ÷ C with headers", ">= 0.5", "messages/s"),
        partial(lockstep, "ring-bidir"),
    ),
    (Figure("ring-pipelined, 6,000 ranks: bytes/s ÷ C", ">= 0.5", "bytes/s"), pipelined),
    (Figure("CPU per formed rank, store included ÷ bare connect", "<= 12", "us"), cpu_per_rank),
    (Figure("CPU with every span kept ÷ without", "<= 1.05", "s"), recording),
    (
        Figure("98,304 in virtual time, noisy ring ÷ 150M transfers/s", ">= 1", "transfers/s"),
        vectorised_ring,
    ),
]
LARGE: list[tuple[Figure, Callable[[Figure], None]]] = [
    (
        Figure("formation, tcpstore: ranks/s at 98,304 ÷ at 6,144", ">= 0.7", "ranks/s"),
        formation_scaling,
    ),
    (
        Figure("ring-pipelined: bytes/s at 98,304 ÷ at 12,288", ">= 0.8", "bytes/s"),
        bandwidth_scaling,
    ),
]


def main() -> None:
    """Run the figures and print them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="pairs of the small figures [5]")
    parser.add_argument("--large", type=int, default=1, help="pairs of those at 98,304 ranks [1]")
    options = parser.parse_args()
    for figures, repeat in ((SMALL, options.repeat), (LARGE, options.large)):
        for _ in range(repeat):
            for figure, measure in figures:
                measure(figure)
                print(
                    f"  {figure.name}: {figure.pairs[-1][0] / figure.pairs[-1][1]:.2f}",
                    file=sys.stderr,
                )
    print(f"{'figure':<62} {'emucoll':>12} {'against':>12} {'':<14} ratio (range)     asked")
    for figure, _ in [*SMALL, *LARGE]:
        if figure.pairs:
            print(figure.line())


if __name__ == "__main__":
    main()
