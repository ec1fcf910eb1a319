"""What the emulation costs on this machine: spec -> result, by runs of at most 1,024 ranks.

Everything is measured `repeat` times, in turns: once all, then all again, so that what disturbs the
machine for a while does not fall on one value alone. Nothing is written before all is measured.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from emucoll.errors import PreflightRefused, UsageError
from harness.control.helper import Helper
from harness.control.launch import SourceAddresses
from harness.control.loops import LOOP, raise_descriptor_limit
from harness.engine.costs import COSTS, Observed, Range, costs_of, far_apart, over_repeats
from harness.engine.loopback import lay_out, run
from harness.engine.others import Others
from harness.external.libnccl import find_library
from harness.hosts import HostMachine, as_toml, machine_of, read_host
from harness.preflight.arithmetic import refusal
from harness.preflight.case import Costs
from harness.profile import Value
from harness.report.progress import Progress
from harness.results.calibration import (
    CalibratedValue,
    CalibrateResult,
    CalibrateSpec,
    check,
)
from harness.results.environment import read_environment
from harness.results.schema import RunResult, RunWarning
from harness.results.storage import check_file_writable, save_file
from harness.spec import Spec

INTERRUPTED = 130
DEADLINE_S = 300.0
"""Of each run, and of each answer of a helper."""
BUSY = 0.1
"""Share of the cores' time that other processes may take before the result warns."""


class Sizes(NamedTuple):
    """What is measured. Never more than 1,024 ranks: what is foretold of more must not be seen."""

    connections: int = 1000
    lockstep: int = 512
    lockstep_steps: int = 512
    peers: int = 512
    large: int = 64
    large_bytes: int = 65_536
    cut_through: int = 1024
    cut_through_few_steps: int = 64
    cut_through_steps: int = 512
    cut_through_bytes: int = 4096
    formation: int = 1024
    loop: int = 4096
    """Entries of the lists that one rank's loops walk."""


class RunFailed(Exception):
    """A run that was to be measured did not end well."""

    def __init__(self, result: RunResult) -> None:
        """`result` says why."""
        super().__init__("a run of the calibration did not end well")
        self.result = result


def calibrate(
    spec: CalibrateSpec, progress: Progress, sizes: Sizes | None = None
) -> CalibrateResult:
    """Measure and write it. Raises UsageError for what cannot be measured or written, RunFailed,
    and HarnessError where a helper is lost.
    """
    check(spec)
    check_file_writable(spec.file)
    measuring = Measuring(sizes or Sizes())
    environment = read_environment(LOOP)
    others = Others()
    costs = [costs_of(each) for each in measuring.repeats(spec.repeat, progress)]
    ranges = over_repeats(costs)
    busy = _busy(others.share(), ranges)
    warnings = [each for each in (busy, measuring.no_libnccl) if each is not None]
    sources = measuring.sources(spec.repeat)
    measured = {
        name: Value(*each, source=sources[name], why=sources[name]) for name, each in ranges.items()
    }
    machine = machine_of(environment)
    text = _text(machine, spec.repeat, busy)
    save_file(as_toml(text, machine, measured).encode(), spec.file)
    return CalibrateResult(
        kind="measured",
        spec=spec,
        environment=environment,
        seed=measuring.seed,
        ok=True,
        warnings=warnings,
        file=spec.file,
        values=_as_read(spec),
    )


def _as_read(spec: CalibrateSpec) -> list[CalibratedValue]:
    """The values as whoever reads the file will find them."""
    return [
        CalibratedValue(
            name=name,
            value=each.value,
            low=each.low,
            high=each.high,
            unit=COSTS[name].unit,
            source=each.why,
        )
        for name, each in read_host(spec.file, spec.name).measured.items()
    ]


def _text(machine: HostMachine, repeat: int, busy: RunWarning | None) -> str:
    """What the file says that it is."""
    model = "" if machine.cpu_model is None else f"{machine.cpu_model}, "
    text = (
        f"{model}{machine.cores} cores, {machine.kernel}: measured by emucoll calibrate, "
        f"--repeat {repeat}"
    )
    return text if busy is None else f"{text}, on a busy machine: {busy.text}"


def _busy(others: float, ranges: Mapping[str, Range]) -> RunWarning | None:
    """A warning, where something else ran meanwhile, or the repeats look like it."""
    found = []
    if others > BUSY:
        found.append(f"other processes took {others:.0%} of the cores' time while it was measured")
    if apart := far_apart(ranges):
        found.append(f"repeats lie more than 30% apart: {', '.join(apart)}")
    if not found:
        return None
    text = f"{'; '.join(found)}; calibrate again when nothing else runs, or with more --repeat"
    return RunWarning(code="busy", text=text)


# -- what is measured


@dataclass
class _Repeat:
    """What one repeat has observed so far."""

    connect_s: float = 0.0
    accept_s: float = 0.0
    runs: dict[str, RunResult] = field(default_factory=dict)
    iterations_s: dict[str, float] = field(default_factory=dict)


class Silent(Progress):
    """For runs within something that has a progress of its own."""

    def __init__(self) -> None:
        """Nothing is shown."""
        super().__init__(enabled=False)

    def note(self, text: str) -> None:
        """Not even this."""


class Measuring:
    """The runs and helpers of a calibration, and what is measured by them."""

    def __init__(self, sizes: Sizes) -> None:
        """Raises UsageError, where they do not fit this machine."""
        self._sizes = sizes
        self._specs = specs_of(sizes)
        self.no_libnccl: RunWarning | None = None
        """Why there is no value for a real root, where there is none."""
        self._libnccl = "libnccl"
        """Its version, once it has served."""
        try:
            find_library()
        except UsageError as error:
            self._leave_out_libnccl(str(error))
        for spec in self._specs.values():
            layout = lay_out(spec)
            if not layout.fits:
                raise PreflightRefused(refusal(layout))
        # Both a listener and the connection that it takes.
        most = (raise_descriptor_limit() - Costs().reserve_descriptors) // 2
        self._connections = max(1, min(sizes.connections, most))

    @property
    def seed(self) -> int:
        """Of the records of its runs."""
        return self._specs["lockstep"].seed

    def repeats(self, count: int, progress: Progress) -> list[Observed]:
        """Measure all of it, `count` times. Raises RunFailed, HarnessError."""
        began, observed = time.monotonic(), []
        for index in range(count):
            repeat = _Repeat()
            steps = self._steps()
            for step, (what, measure) in enumerate(steps):
                done = (index + step / len(steps)) / count
                passed_s = time.monotonic() - began
                left_s = passed_s * (1 - done) / done if index else None
                detail = f"repeat {index + 1} of {count}: {what}"
                progress.step("calibrating", done, detail, left_s)
                measure(repeat)
            observed.append(
                Observed(repeat.connect_s, repeat.accept_s, repeat.runs, repeat.iterations_s)
            )
        return observed

    def _steps(self) -> list[tuple[str, Callable[[_Repeat], None]]]:
        return [
            ("connections", self._connect),
            *((what, partial(self._run, what)) for what in self._specs),
            ("loops", self._loops),
        ]

    def _connect(self, repeat: _Repeat) -> None:
        sources = SourceAddresses(random.Random())
        module = "harness.control.connections"
        try:
            with (
                Helper(module, "accept", sources.take("4"), self._connections) as accepts,
                Helper(module, "connect", sources.take("4")) as connects,
            ):
                connects.say(accepts.hear(DEADLINE_S))
                repeat.connect_s = float(connects.hear(DEADLINE_S))
                repeat.accept_s = float(accepts.hear(DEADLINE_S))
        finally:
            sources.release()

    def _run(self, what: str, repeat: _Repeat) -> None:
        try:
            result = run(self._specs[what], Silent())
        except UsageError as error:
            if what != "libnccl":
                raise
            self._leave_out_libnccl(str(error))
            return
        if result.ok:
            repeat.runs[what] = result
            if what == "libnccl":
                self._libnccl = result.servers["root"]
        elif what != "libnccl" or result.exit_code == INTERRUPTED or result.error is None:
            raise RunFailed(result)
        else:
            self._leave_out_libnccl(result.error.what)

    def _leave_out_libnccl(self, why: str) -> None:
        del self._specs["libnccl"]
        text = f"root.check_in_libnccl is left out: {why}"
        self.no_libnccl = RunWarning(code="no-libnccl", text=text)

    def _loops(self, repeat: _Repeat) -> None:
        with Helper("harness.control.iterations", self._sizes.loop) as helper:
            repeat.iterations_s = helper.hear(DEADLINE_S)

    def sources(self, count: int) -> dict[str, str]:
        """How each value was measured, by name."""
        sizes, specs = self._sizes, self._specs
        connections = f"{self._connections} connections"
        more = f", and {sizes.cut_through_bytes} bytes"
        by = {
            "cpu.connect": connections,
            "cpu.accept": connections,
            "cpu.message": _in_words(specs["lockstep"]),
            "cpu.contention": _in_words(specs["both-ways"]),
            "cpu.byte": _in_words(specs["bytes"]),
            "cpu.peer": _in_words(specs["peers"]),
            "cpu.cut_through": _in_words(specs["cut-through-few"]),
            "cpu.cut_through_block": _in_words(specs["cut-through"]),
            "cpu.cut_through_byte": _in_words(specs["cut-through"]) + more,
            **dict.fromkeys(
                ("cpu.rank", "store.request", "cores.used_forming"), _in_words(specs["formation"])
            ),
            "root.check_in": _in_words(specs["root"]),
            "root.check_in_libnccl": f"{self._libnccl}, {_in_words(specs['root'])}",
            "cores.used_gathering": _in_words(specs["lockstep"]),
        }
        loop = f"one rank, lists of {sizes.loop}"
        how = f"median of {count}, low and high the smallest and largest"
        return {name: f"{cost.source}; {by.get(name, loop)}; {how}" for name, cost in COSTS.items()}


def specs_of(sizes: Sizes) -> dict[str, Spec]:
    """The runs, by what they are for; workers as the harness decides."""

    def spec(nranks: int, steps: int | None, **more: str | int) -> Spec:
        fields = {"allgather": "ring-pipelined", "record_bytes": 28, **more}
        return Spec(nranks=nranks, steps=steps, deadline_s=DEADLINE_S, handshake_s=30.0, **fields)  # type: ignore[arg-type]

    lockstep, cut_through = sizes.lockstep, sizes.cut_through
    steps = sizes.cut_through_steps
    return {
        "lockstep": spec(lockstep, sizes.lockstep_steps, allgather="ring"),
        "both-ways": spec(lockstep, sizes.lockstep_steps // 2, allgather="ring-bidir"),
        "peers": spec(sizes.peers, None, allgather="bruck"),
        "bytes": spec(sizes.large, None, allgather="ring", record_bytes=sizes.large_bytes),
        "cut-through-few": spec(cut_through, sizes.cut_through_few_steps),
        "cut-through": spec(cut_through, steps),
        "cut-through-bytes": spec(cut_through, steps, record_bytes=sizes.cut_through_bytes),
        "formation": spec(sizes.formation, 1),
        "root": spec(sizes.formation, 1, formation="nccl-root"),
        "libnccl": spec(sizes.formation, 1, formation="nccl-root", root="libnccl"),
    }


def _in_words(spec: Spec) -> str:
    steps = "all steps" if spec.steps is None else f"--steps {spec.steps}"
    return (
        f"{spec.formation}, {spec.allgather}, -np {spec.nranks}, {steps}, {spec.record_bytes} bytes"
    )
