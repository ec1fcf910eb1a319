"""The real NCCL root by release and size: how long a formation through it takes, and its CPU.

    python -m benchmarks.real_root [-np 1024,4096,16384,98304] [--versions …] [--chart FILE.svg]

Each point is a run of `emucoll run --root libnccl:…` with the formation that goes with the release;
the libraries come from the package registry into EMUCOLL_CACHE. Releases take turns at each size,
so that what drifts meets all of them. The chart needs matplotlib (`pip install matplotlib`).
"""

import argparse
import json
import sys
from pathlib import Path

from benchmarks.run import emucoll, phase
from tests.interop.fetch import fetch_nccl

VERSIONS = {
    "2.22.3": "nccl-root-2.22",
    "2.23.4": "nccl-root",
    "2.27.7": "nccl-root",
    "2.28.9": "nccl-root",
    "2.32.3": "nccl-root",
}
SIZES = (1024, 4096, 16_384, 98_304)
HEAD = f"{'release':<9}{'ranks':>8}{'formation':>11}{'stagger':>9}{'root CPU':>10}{'a rank':>9}"
UNITS = f"{'':<9}{'':>8}{'(s)':>11}{'(s)':>9}{'(s)':>10}{'(us)':>9}"


def point(version: str, nranks: int) -> dict[str, float | str | int]:
    """One run."""
    result = emucoll(
        nranks,
        *("--formation", VERSIONS[version]),
        *("--root", f"libnccl:{fetch_nccl(version)}"),
        *("--allgather", "ring-pipelined", "--steps", 1),
    )
    return {
        "version": version,
        "nranks": nranks,
        "formation_s": result["formation"]["seconds"],
        "stagger_s": phase(result, "bootstrap.delay")["max_s"],
        "root_cpu_s": result["work"]["root"]["cpu_s"],
    }


def line(each: dict) -> str:
    """A row of the table."""
    a_rank_us = each["root_cpu_s"] / each["nranks"] * 1e6
    return (
        f"{each['version']:<9}{each['nranks']:>8}{each['formation_s']:>11.2f}"
        f"{each['stagger_s']:>9.2f}{each['root_cpu_s']:>10.2f}{a_rank_us:>9.0f}"
    )


def draw(points: list[dict], path: Path) -> None:
    """Formation and the root's CPU over the number of ranks, a curve a release."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for axis, key, title in zip(
        axes, ("formation_s", "root_cpu_s"), ("formation (s)", "CPU of the root (s)"), strict=True
    ):
        for version in dict.fromkeys(each["version"] for each in points):
            own = [each for each in points if each["version"] == version]
            axis.plot(
                [each["nranks"] for each in own], [each[key] for each in own], marker="o",
                label=f"NCCL {version}",
            )  # fmt: skip
        axis.set(xscale="log", yscale="log", xlabel="ranks", title=title)
        axis.grid(True, which="major", alpha=0.3)
    axes[0].legend(fontsize="small")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def main() -> None:
    """Measure, print, draw."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("-np", default=",".join(map(str, SIZES)), help="ranks, by commas")
    parser.add_argument("--versions", default=",".join(VERSIONS), help="releases, by commas")
    parser.add_argument("--chart", type=Path, help="write the chart here (SVG)")
    parser.add_argument("--out", type=Path, help="write the points here (JSON)")
    options = parser.parse_args()
    points = []
    print(f"{HEAD}\n{UNITS}")
    for nranks in map(int, options.np.split(",")):
        for version in options.versions.split(","):
            points.append(point(version, nranks))
            print(line(points[-1]))
            sys.stdout.flush()
    if options.out is not None:
        options.out.write_text(json.dumps(points, indent=1) + "\n")
    if options.chart is not None:
        draw(points, options.chart)


if __name__ == "__main__":
    main()
