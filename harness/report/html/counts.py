"""Work, memory and descriptors: what carries over to a cluster."""

from harness.report.html.material import Material
from harness.report.html.parts import Block, Section, Table, count, seconds, size
from harness.results.profile import ProfileResult
from harness.results.report import Missing
from harness.results.schema import AllGather, RunResult


def section(material: Material) -> Section | Missing:
    """Missing in a profile, whose figures are over the sizes, and where a run counted nothing."""
    result = material.result
    if isinstance(result, ProfileResult):
        return Missing(
            what="counts",
            why="a profile has its counts over the sizes, in what grows",
            next="emucoll run … --out of one size has them by role",
        )
    blocks: list[Block] = [
        table
        for table in (
            _work(result),
            _memory(result),
            _allgathers(result.allgathers),
            _groups(result),
            _restarts(result),
        )
        if table.rows
    ]
    if not blocks:
        return Missing(
            what="counts",
            why="the run ended before its work was counted",
            next=f"emucoll run … --out {material.again}, once what failed is mended",
        )
    return Section("counts", "Work, memory, descriptors", blocks)


def _work(result: RunResult) -> Table:
    rows = [
        (
            role,
            *map(count, (work.messages, work.bytes, work.connections, work.retries, work.requests)),
            count(work.syscalls),
            seconds(work.cpu_s),
            size(work.peak_rss_bytes),
        )
        for role in ("ranks", "root", "store", "controller")
        if (work := getattr(result.work, role)) is not None
    ]
    head = (
        *("role", "messages", "bytes", "connections", "retries", "requests", "system calls"),
        *("CPU", "peak memory"),
    )
    return Table(head, rows, caption="Work")


def _memory(result: RunResult) -> Table:
    memory, descriptors = result.memory, result.descriptors
    held = descriptors.held_per_rank
    told = (
        ("worker memory per rank", memory.rss_bytes_per_rank, size),
        ("memory of all processes at their peaks", memory.peak_rss_bytes, size),
        ("the kernel's sockets beside", memory.kernel_socket_bytes, size),
        ("descriptors that a rank holds", held, lambda value: f"{value:g}"),
        ("descriptors of a worker at its peak", descriptors.peak_per_worker, count),
    )
    rows = [(name, show(value)) for name, value, show in told if value is not None]
    return Table(("memory and descriptors", ""), rows)


def _allgathers(gathers: list[AllGather]) -> Table:
    rows = [
        (
            each.name,
            each.phase or "-",
            " ".join(filter(None, (each.flow, each.frames))) or "-",
            count(each.record_bytes),
            seconds(each.seconds),
            count(each.steps) + (f" of {each.of_steps:,}" if _is_partial(each) else ""),
            count(each.transfers),
            "-" if each.busbw is None else f"{each.busbw:.3g}",
            count(each.wrong),
        )
        for each in gathers
    ]
    head = (
        *("AllGather", "phase", "how", "record bytes", "time", "steps", "blocks"),
        *("busbw, GB/s", "wrong"),
    )
    return Table(head, rows, words=3)


def _groups(result: RunResult) -> Table:
    rows = [
        (
            each.kind,
            *map(count, (each.count, each.size)),
            seconds(each.seconds),
            *map(count, (each.connections, each.requests, each.wrong)),
        )
        for each in result.groups
    ]
    head = ("groups", "count", "ranks of each", "time", "connections", "requests", "wrong")
    return Table(head, rows)


def _restarts(result: RunResult) -> Table:
    rows = [
        (
            str(number),
            *map(seconds, (each.formation_s, each.total_s, each.mean_total_s)),
            *map(count, (each.connections, each.retries, each.wrong)),
        )
        for number, each in enumerate(result.restarts)
    ]
    head = ("bring-up", "formation", "total", "mean total", "connections", "retries", "wrong")
    caption = "All else on this page is of the last bring-up, but for what servers did"
    return Table(head, rows, caption=caption)


def _is_partial(gather: AllGather) -> bool:
    return gather.of_steps is not None and gather.steps != gather.of_steps
