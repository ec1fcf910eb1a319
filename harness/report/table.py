"""A run as text, in the manner of nccl-tests: `#` comment lines, its columns and units.

Each line that does not begin with `#` is one AllGather, as all_gather_perf prints it (out of place
only, and two columns more at the end), so that what reads nccl-tests' output reads this. Plain
ASCII layout, never a colour. Adds nothing to a result that is not in it, and computes no statistic.
"""

import textwrap
from collections.abc import Iterable, Sequence

from harness.groups import format_groups
from harness.report.failure import failure_lines, printable
from harness.results.environment import Environment
from harness.results.schema import AllGather, Phase, RunResult
from harness.results.storage import RANKS_FILE, RESULT_FILE
from harness.skew import format_skew
from harness.spec import Spec, format_injection
from harness.work import Work

_WIDTH = 100
_NONE = "-"


def render(result: RunResult) -> str:
    """The whole run, for stdout; ends with a newline."""
    blocks = [
        _what_ran(result),
        _formation(result),
        _restarts(result),
        _allgathers(result),
        _phases(result),
        _work(result),
        _memory(result),
        _simulation(result),
        _groups(result),
        _warnings(result),
        failure_lines(result),
        _what_it_cannot_tell(result),
        _where(result),
    ]
    lines: list[str] = []
    for block in filter(None, blocks):
        lines += [*block, "#"]
    return "\n".join(lines[:-1]) + "\n"


def align(rows: Sequence[Sequence[str]], left: int = 1, indent: str = "# ") -> list[str]:
    """Columns wide enough for their cells, the first `left` of them flush left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for row in rows:
        cells = [
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines


def _what_ran(result: RunResult) -> list[str]:
    lines = [] if result.spec is None else _of_spec(result.spec, result)
    if result.environment is not None:
        lines.append(of_environment(result.environment))
    real = [f"{role}: {what}" for role, what in result.servers.items() if what != "built-in"]
    if real:
        lines.append(f"real servers {', '.join(map(printable, real))}")
    if result.total_s is not None:
        times = f"total {result.total_s:.3f} s from the start barrier to the last rank done"
        if result.mean_total_s is not None:
            times += f"; a rank's own total {result.mean_total_s:.3f} s in the mean"
        if result.charged_s is not None:
            times += f"; of each, {result.charged_s:.3f} s of local work are charged, not run"
        lines.append(f"{times} ({result.kind})")
    return [each for line in lines for each in wrapped(line)]


def _of_spec(spec: Spec, result: RunResult) -> list[str]:
    window = result.start_window
    lines = [
        f"nranks {spec.nranks} workers {_count(result.workers)} "
        f"ranks-per-host {spec.ranks_per_host} " + _start(spec, window),
        f"{_runs(spec)} {_served_by(spec, result)}".rstrip(),
        f"world {spec.world} IPv{spec.ip} seed {spec.seed} deadline {spec.deadline_s:g} s",
    ]
    if spec.hop_delay_s:
        within = spec.intra_host_delay_s
        near = "" if within is None else f", {within:g} s within a host"
        lines.append(f"hop-delay {spec.hop_delay_s:g} s{near}")
    if spec.start_skew is not None:
        lines.append(f"start-skew {format_skew(spec.start_skew)}")
    if spec.groups:
        lines.append(f"groups {printable(format_groups(spec.groups))} by {spec.group_init}")
    if spec.external_ranks:
        lines.append(f"external ranks {' '.join(map(str, spec.external_ranks[:32]))}")
    if spec.inject:
        lines.append(f"injected {' '.join(map(format_injection, spec.inject))}")
    return lines


def _start(spec: Spec, window: int | None) -> str:
    if window is not None:
        return f"start-window {window} per worker"
    return "all ranks start together" if spec.start_skew is None else "no start-window"


def _served_by(spec: Spec, result: RunResult) -> str:
    """Root and store, those of them that the run has; where it did not come so far, those that
    were asked for.
    """
    values = {name: getattr(spec, name) for name in ("root", "store")}
    has = result.servers or {name for name, value in values.items() if value != "builtin"}
    return " ".join(f"{name} {printable(values[name])}" for name in values if name in has)


def _runs(spec: Spec) -> str:
    formation = f"formation {printable(spec.formation)}"
    if spec.plan is not None:
        channels = "" if spec.channels is None else f" channels {spec.channels}"
        return f"plan {printable(spec.plan)} {formation}{channels}"
    allgather = printable(spec.allgather or "")
    return f"{formation} allgather {allgather} record {spec.record_bytes} bytes"


def of_environment(environment: Environment) -> str:
    """Software and machine, in a line."""
    parts = [
        f"emucoll {environment.version}",
        f"Python {environment.python}",
        environment.loop,
        environment.kernel,
        f"{environment.cores} cores",
    ]
    if environment.cpu_model is not None:
        parts.append(environment.cpu_model)
    if environment.memory_bytes is not None:
        parts.append(f"{_gib(environment.memory_bytes)} of memory")
    if environment.nofile is not None:
        parts.append(f"{environment.nofile} descriptors")
    if environment.load_average is not None:
        parts.append(f"load {environment.load_average:g} before")
    return ", ".join(parts)


def _formation(result: RunResult) -> list[str]:
    formation = result.formation
    if formation is None:
        return []
    name = printable(formation.name)
    if formation.seconds is None:
        return [f"# formation {name}: not all ranks formed"]
    line = f"# formation {name}: {_count(result.nranks)} ranks in {formation.seconds:.3f} s"
    if formation.ranks_per_s is not None:
        line += f", {formation.ranks_per_s:.0f} ranks/s"
    if formation.roots is not None and formation.roots > 1:
        line += f", {formation.roots} roots"
    return [line]


def _restarts(result: RunResult) -> list[str]:
    if not result.restarts:
        return []
    rows: list[tuple[str, ...]] = [
        ("bring-up", "formation", "total", "mean total", "conns", "retries", "#wrong"),
        ("", "(s)", "(s)", "(s)", "", "", ""),
    ]
    for number, each in enumerate(result.restarts):
        times = map(_seconds, (each.formation_s, each.total_s, each.mean_total_s))
        counts = map(_count, (each.connections, each.retries, each.wrong))
        rows.append((str(number), *times, *counts))
    last = "what follows is of the last bring-up, but for what servers did and #wrong: of all"
    return [*align(rows), f"# {last}"]


def _allgathers(result: RunResult) -> list[str]:
    if not result.allgathers or not result.nranks:
        return []
    head = [
        ("size", "count", "type", "redop", "root", "time", "algbw", "busbw", "#wrong"),
        ("(B)", "(elements)", "", "", "", "(us)", "(GB/s)", "(GB/s)", ""),
    ]
    ranks = result.nranks if result.spec is None else result.spec.ranks_here
    rows = [*head, *(_nccl_tests_row(gather, ranks) for gather in result.allgathers)]
    # Data lines carry no comment sign, and say at their end which AllGather and how much of it.
    names = ["allgather", "", *_names(result.allgathers)]
    steps = ["steps", "", *map(_steps, result.allgathers)]
    width = max(map(len, names))
    lines = [
        f"{'# ' if number < len(head) else '  '}{line}  {name:{width}}  {step}".rstrip()
        for number, (line, name, step) in enumerate(
            zip(align(rows, left=0, indent=""), names, steps, strict=True)
        )
    ]
    if result.wrong is not None:
        lines.append(
            f"# Out of bounds values : {result.wrong} {'FAILED' if result.wrong else 'OK'}"
        )
    return [*lines, "#", *_deliveries(result.allgathers)]


def _names(gathers: Sequence[AllGather]) -> list[str]:
    """With the phase, where there are several."""
    if len(gathers) == 1:
        return [printable(gathers[0].name)]
    return [printable(f"{gather.name} {gather.phase or ''}".rstrip()) for gather in gathers]


def _nccl_tests_row(gather: AllGather, nranks: int) -> tuple[str, ...]:
    """One row as all_gather_perf has it: `size` is a rank's result, `count` what it sends."""
    blocks = nranks if gather.transfers is None else gather.transfers // nranks + 1
    return (
        str(blocks * gather.record_bytes),
        str(gather.record_bytes),
        "uint8",
        "none",
        "-1",
        _microseconds(gather.seconds),
        _significant(gather.algbw),
        _significant(gather.busbw),
        "N/A" if gather.wrong is None else str(gather.wrong),
    )


def _deliveries(gathers: Sequence[AllGather]) -> list[str]:
    head = ("allgather", "steps", "blocks", "blocks/s", "reads", "writes", "blocks/read", "flow")
    rows: list[tuple[str, ...]] = [head]
    notes = []
    for gather, name in zip(gathers, _names(gathers), strict=True):
        rows.append(
            (
                name,
                _steps(gather) or _NONE,
                _count(gather.transfers),
                _rate(gather.transfers_per_s),
                _count(gather.reads),
                _count(gather.writes),
                _rate(gather.blocks_per_read),
                _joined(gather.flow, gather.frames),
            )
        )
        if _is_partial(gather):
            text = f"only the first {_steps(gather)} steps ran; nothing is extrapolated"
            notes.append(f"NOTE {gather.name}: {text}")
        if gather.note is not None:
            notes.append(f"NOTE {gather.name}: {gather.note}")
    return align(rows) + [line for note in dict.fromkeys(notes) for line in wrapped(note)]


def _is_partial(gather: AllGather) -> bool:
    known = gather.steps is not None and gather.of_steps is not None
    return known and gather.steps != gather.of_steps


def _steps(gather: AllGather) -> str:
    if gather.steps is None:
        return ""
    return f"{gather.steps} of {gather.of_steps}" if _is_partial(gather) else str(gather.steps)


def _phases(result: RunResult) -> list[str]:
    if not result.phases:
        return []
    rows: list[tuple[str, ...]] = [
        ("phase", "mean", "p50", "p99", "max", "cpu", "kind"),
        ("", "(s)", "(s)", "(s)", "(s)", "(s, all)", ""),
    ]
    # A short run's phases would all be 0.000.
    decimals = 3 if result.mean_total_s is None or result.mean_total_s >= 1 else 6
    names = {phase.name for phase in result.phases}
    outside = [p for p in result.phases if p.within is not None and p.within not in names]
    rows += [_phase_row("  " * depth, phase, decimals) for depth, phase in _nested(result.phases)]
    total = _seconds(result.mean_total_s, decimals)
    rows.append(("mean total", total, "", "", "", "", "the sum of those not indented"))
    # Admission, say, is outside a rank's own total: it takes no part in the sum.
    rows += [_phase_row("outside it: ", phase, decimals) for phase in outside]
    # The last column is text: flush left, as its heading.
    width = max(len(row[-1]) for row in rows)
    return align([(*row[:-1], row[-1].ljust(width)) for row in rows])


def _phase_row(prefix: str, phase: Phase, decimals: int) -> tuple[str, ...]:
    numbers = (phase.mean_s, phase.p50_s, phase.p99_s, phase.max_s, phase.cpu_s)
    cells = (_seconds(number, decimals) for number in numbers)
    return (prefix + printable(phase.name), *cells, phase.kind)


def _nested(phases: Sequence[Phase]) -> list[tuple[int, Phase]]:
    """Each phase beneath the one it is within, in the given order, with its depth."""
    ordered: list[tuple[int, Phase]] = []

    def descend(within: str | None, depth: int) -> None:
        for phase in phases:
            if phase.within == within:
                ordered.append((depth, phase))
                if phase.name != within and depth < len(phases):
                    descend(phase.name, depth + 1)

    descend(None, 0)
    return ordered


def _work(result: RunResult) -> list[str]:
    roles = {
        "ranks": result.work.ranks,
        "root": result.work.root,
        "store": result.work.store,
        "controller": result.work.controller,
    }
    rows: list[tuple[str, ...]] = [
        (
            "work",
            "messages",
            "bytes",
            "conns",
            "retries",
            "requests",
            "syscalls",
            "cpu",
            "peak rss",
        ),
        ("", "", "", "", "", "", "", "(s)", "(MiB)"),
    ]
    rows += [_work_row(role, work) for role, work in roles.items() if work is not None]
    return align(rows) if len(rows) > 2 else []


def _work_row(role: str, work: Work) -> tuple[str, ...]:
    counts = (work.messages, work.bytes, work.connections, work.retries, work.requests)
    peak = _NONE if work.peak_rss_bytes is None else f"{work.peak_rss_bytes / 2**20:.1f}"
    return (role, *map(_count, counts), _count(work.syscalls), _seconds(work.cpu_s), peak)


def _memory(result: RunResult) -> list[str]:
    memory, descriptors = result.memory, result.descriptors
    parts = []
    if memory.rss_bytes_per_rank is not None:
        parts.append(f"{memory.rss_bytes_per_rank / 2**10:.2f} KiB of worker per rank")
    if memory.peak_rss_bytes is not None:
        parts.append(f"{_gib(memory.peak_rss_bytes)} in all processes at their peaks")
    if memory.kernel_socket_bytes is not None:
        parts.append(f"{_gib(memory.kernel_socket_bytes)} in the kernel's sockets beside")
    lines = wrapped(f"memory {', '.join(parts)}") if parts else []
    parts = []
    if descriptors.held_per_rank is not None:
        parts.append(f"{descriptors.held_per_rank:g} held per rank")
    if descriptors.peak_per_worker is not None:
        whose = "in a worker at its peak"
        if result.spec is not None and result.spec.world == "virtual":
            whose = "open in all at the peak"
        parts.append(f"{descriptors.peak_per_worker} {whose}")
    return lines + ([f"# descriptors {', '.join(parts)}"] if parts else [])


def _simulation(result: RunResult) -> list[str]:
    took = result.simulation
    if took is None:
        return []
    return wrapped(
        f"simulated in {took.seconds:.1f} s of this machine's time, {took.events} events, "
        f"{_gib(took.peak_rss_bytes)} of its memory; trace {result.trace_hash}"
    )


def _groups(result: RunResult) -> list[str]:
    if not result.groups:
        return []
    rows: list[tuple[str, ...]] = [
        ("group", "count", "size", "time", "conns", "requests", "#wrong"),
        ("", "", "(ranks)", "(s)", "", "", ""),
    ]
    for group in result.groups:
        shape = (printable(group.kind), str(group.count), str(group.size), _seconds(group.seconds))
        rows.append((*shape, *map(_count, (group.connections, group.requests, group.wrong))))
    return align(rows)


def _warnings(result: RunResult) -> list[str]:
    lines = []
    for warning in result.warnings:
        lines += wrapped(f"WARNING {warning.code}: {warning.text}")
    return lines


def _what_it_cannot_tell(result: RunResult) -> list[str]:
    told = cannot_tell(result)
    return [] if told is None else wrapped(f"What this cannot tell: {told}")


def cannot_tell(result: RunResult) -> str | None:
    """How far its times reach; None where it has none, or none that were measured."""
    if result.total_s is None or result.kind != "measured":
        return None
    cores = "these" if result.environment is None else str(result.environment.cores)
    text = (
        f"wall time on {cores} cores is the sum of all ranks' work, not a cluster's time. Counts, "
        "bytes and CPU seconds carry over to a cluster, seconds do not."
    )
    if result.saturated:
        text += " This run was saturated: the harness's own CPU was the limit."
    return text


def _where(result: RunResult) -> list[str]:
    if result.spec is None:
        return []
    if result.spec.out is None:
        return ["# Result: not kept (--out DIR keeps it and every rank's times)"]
    out = printable(result.spec.out).rstrip("/")
    if not result.phases:
        return [f"# Result: {out}/{RESULT_FILE}"]
    return [f"# Result: {out}/{RESULT_FILE}, every rank's times: {out}/{RANKS_FILE}"]


def wrapped(text: str) -> list[str]:
    """`text` as comment lines, those after the first indented."""
    lines = textwrap.wrap(
        printable(" ".join(text.split())),
        _WIDTH - 4,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [f"# {line}" if number == 0 else f"#   {line}" for number, line in enumerate(lines)]


def _joined(*words: str | None) -> str:
    return " ".join(word for word in words if word is not None) or _NONE


def _count(value: int | None) -> str:
    return _NONE if value is None else str(value)


def _rate(value: float | None) -> str:
    if value is None:
        return _NONE
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _seconds(value: float | None, decimals: int = 3) -> str:
    return _NONE if value is None else f"{value:.{decimals}f}"


def _significant(value: float | None) -> str:
    """Three digits: nccl-tests' two decimals would print 0.00 for small records."""
    return "N/A" if value is None else f"{value:.3g}"


def _microseconds(seconds: float | None) -> str:
    """nccl-tests' own precision."""
    if seconds is None:
        return "N/A"
    value = seconds * 1e6
    if value >= 10_000:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 100 else f"{value:.2f}"


def _gib(size_bytes: int) -> str:
    return f"{size_bytes / 2**30:.2f} GiB"


def joined(blocks: Iterable[Sequence[str]]) -> str:
    """Blocks of lines as one text, an empty comment between each two; empty ones are left out."""
    lines: list[str] = []
    for block in filter(None, blocks):
        lines += [*block, "#"]
    return "\n".join(lines[:-1]) + "\n"


def kept(out: str | None, result: str, report: str | None = None) -> list[str]:
    """Where a result and its report lie."""
    if out is None:
        return ["# Result: not kept (--out DIR keeps it)"]
    folder = printable(out).rstrip("/")
    beside = "" if report is None else f", report: {folder}/{report}"
    return [f"# Result: {folder}/{result}{beside}"]


def kept_with_picture(out: str | None, result: str, picture: str) -> list[str]:
    """Where a result and its picture lie."""
    if out is None:
        return ["# Result: not kept (--out DIR keeps it, with a picture over n)"]
    folder = printable(out).rstrip("/")
    return [f"# Result: {folder}/{result}, picture: {folder}/{picture}"]


def number(value: float | None) -> str:
    """Six digits, or `-`."""
    return "-" if value is None else f"{value:.6g}"
