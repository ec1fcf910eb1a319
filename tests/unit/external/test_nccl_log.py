"""Line forms of every version, whole and torn. Names and numbers are invented, forms are not."""

import itertools
from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.external.nccl_log import (
    HEADS,
    TORN_LINES,
    BootstrapTimings,
    InitLine,
    InitTimings,
    LogReader,
    Origin,
    Record,
    Topology,
    Version,
    Warn,
)

P = "node7:310:344 [2] NCCL INFO "
INIT = (
    "Init timings - ncclCommInitRank: rank 5 nranks 24 total 3.07 (kernels 1.11, alloc 0.52, "
    "bootstrap 0.73, allgathers 0.02, topo 0.33, graphs 0.04, connections 0.29, rest 0.03)"
)
BOOTSTRAP = (
    "Bootstrap timings total 0.732904 (create 0.000041, send 0.000203, recv 0.690017, "
    "ring 0.033410, delay 0.000714)"
)
COMPLETE = (
    "ncclCommInitRank comm 0x7e01c8 rank 5 nranks 24 cudaDev 2 nvmlDev 6 busId 8a000 "
    "commId 0x1f2e3d4c - Init COMPLETE"
)


def read(*lines: str) -> list[Record]:
    reader = LogReader()
    return [record for line in lines for record in reader.feed(line)]


def one(line: str) -> Record:
    records = read(line)
    assert len(records) == 1, records
    return records[0]


# -- forms by version


@pytest.mark.parametrize(
    ("text", "stage", "function", "nvml", "comm_id"),
    [
        # 2.18.1, 2.18.5 to 2.20.5, 2.21.5 on, 2.29.2 on
        ("comm 0xa rank 1 nranks 4 cudaDev 1 busId 3d000 commId 0xc9 - Init COMPLETE",
         "COMPLETE", None, None, "0xc9"),
        ("comm 0xa rank 1 nranks 4 cudaDev 1 nvmlDev 5 busId 3d000 commId 0xc9 - Init START",
         "START", None, 5, "0xc9"),
        ("ncclCommInitRank comm 0xa rank 1 nranks 4 cudaDev 1 nvmlDev 5 busId 3d000 commId 0xc9 "
         "- Init COMPLETE", "COMPLETE", "ncclCommInitRank", 5, "0xc9"),
        ("[Rank 1] ncclCommInitRankScalable comm 0xa rank 1 nranks 4 cudaDev 1 nvmlDev 5 busId "
         "3d000 commId 0xc9 - Init START", "START", "ncclCommInitRankScalable", 5, "0xc9"),
        # RCCL, new and old
        ("ncclCommInitRankConfig_impl comm 0xa rank 1 nranks 4 cudaDev 1 nvmlDev 5 busId 3d000 "
         "commId 0xc9 - Init COMPLETE", "COMPLETE", "ncclCommInitRankConfig_impl", 5, "0xc9"),
        ("comm 0xa rank 1 nranks 4 cudaDev 1 busId 3d000 commId 0xc9 localSize 264 used 9184 bytes "
         "- Init COMPLETE", "COMPLETE", None, None, "0xc9"),
    ],
)  # fmt: skip
def test_init_lines(
    text: str, stage: str, function: str | None, nvml: int | None, comm_id: str
) -> None:
    line = one(P + text)
    assert isinstance(line, InitLine)
    assert (line.stage, line.function, line.comm) == (stage, function, "0xa")
    assert (line.rank, line.nranks, line.cuda_dev, line.nvml_dev) == (1, 4, 1, nvml)
    assert (line.comm_id, line.parent) == (comm_id, None)
    assert line.origin == Origin("", "node7", 310, 344)


@pytest.mark.parametrize(
    ("text", "stage", "count"),
    [
        # 2.22, 2.23, 2.24 to 2.28, 2.29 on; only COMPLETE has a space before its dash
        ("parent 0xa color 3 key 1 commId 0xee - Init START", "START", None),
        ("parent 0xa color 3 key 1- Init START", "START", None),
        ("parent 0xa splitCount 2 color 3 key 1- Init START", "START", 2),
        ("parent 0xa splitCount 2 color 3 key 1 - Init COMPLETE", "COMPLETE", 2),
        ("parent 0xa childCount 2 color 3 key 1- Init START", "START", 2),
    ],
)
def test_splits(text: str, stage: str, count: int | None) -> None:
    line = one(f"{P}ncclCommSplit comm 0xb rank 0 nranks 2 cudaDev 1 nvmlDev 1 busId 3d000 {text}")
    assert isinstance(line, InitLine)
    assert (line.stage, line.parent, line.child_count) == (stage, "0xa", count)
    assert (line.color, line.key) == (3, 1)


def test_init_timings_of_2_22_have_no_function_and_no_alloc() -> None:
    line = one(
        P + "Init timings: rank 11 nranks 12 total 0.94 (kernels 0.40, bootstrap 0.19, "
        "allgathers 0.01, topo 0.25, graphs 0.05, connections 0.03, rest 0.01)"
    )
    assert isinstance(line, InitTimings)
    assert (line.function, line.rank, line.nranks, line.total, line.whole) == (
        *(None, 11, 12, 0.94),
        True,
    )
    assert list(line.parts) == [
        *("kernels", "bootstrap", "allgathers", "topo", "graphs", "connections", "rest")
    ]


def test_timings_of_later_versions() -> None:
    init, bootstrap = read(P + INIT, P + BOOTSTRAP)
    assert isinstance(init, InitTimings) and isinstance(bootstrap, BootstrapTimings)
    assert (init.function, init.total, init.parts["alloc"]) == ("ncclCommInitRank", 3.07, 0.52)
    assert bootstrap.total == 0.732904
    assert bootstrap.parts == {
        "create": 0.000041,
        "send": 0.000203,
        "recv": 0.690017,
        "ring": 0.03341,
        "delay": 0.000714,
    }


def test_rest_may_be_minus_zero() -> None:
    line = one(P + INIT.replace("rest 0.03", "rest -0.00"))
    assert isinstance(line, InitTimings) and line.whole
    assert line.parts["rest"] == 0


def test_topology_tells_the_nodes() -> None:
    line = one(P + "comm 0xa rank 3 nRanks 8 nNodes 2 localRanks 4 localRank 3 MNNVL 0")
    assert line == Topology(Origin("", "node7", 310, 344), "0xa", 3, 8, 2)


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NCCL version 2.21.5+cuda12.4", "NCCL 2.21.5+cuda12.4"),
        (P + "NCCL version 2.28.9+cuda13.0", "NCCL 2.28.9+cuda13.0"),
        ("RCCL version 2.20.5+hip6.2 HEAD:abc", "RCCL 2.20.5+hip6.2"),
        (P + "RCCL version : 2.27.7-HEAD:77aa12", "RCCL 2.27.7-HEAD"),
        ("[1,3]<stdout>:NCCL version 2.19.3+cuda12.2", "NCCL 2.19.3+cuda12.2"),
    ],
)
def test_versions(line: str, version: str) -> None:
    record = one(line)
    assert isinstance(record, Version)
    assert f"{record.library} {record.version}" == version


@pytest.mark.parametrize(
    "prefix",
    ["", "[2026-03-04 05:06:07] ", "2026-03-04T05:06:07.008Z ", "\x1b[32m"],
)
@pytest.mark.parametrize("where", ["bootstrap.cc:88", "bootstrap.cc:88 (bootstrapRoot)"])
def test_warn_with_and_without_date(prefix: str, where: str) -> None:
    record = one(f"{prefix}n1:11:12 [0] {where} NCCL WARN no route\n")
    assert record == Warn(Origin("", "n1", 11, 12), "bootstrap.cc:88", "no route")


@pytest.mark.parametrize(
    ("prefix", "tag"),
    [
        ("[1,0]<stdout>:", "[1,0]<stdout>:"),
        ("[3] ", "[3]"),
        ("[rank3]: ", "[rank3]"),
        ("3: ", "3"),
        (
            "(EngineCore_DP0 pid=7) (RayWorkerWrapper pid=9) ",
            "(EngineCore_DP0 pid=7) (RayWorkerWrapper pid=9)",
        ),
        ("2026-03-04 05:06:07 ", ""),
    ],
)
def test_launchers(prefix: str, tag: str) -> None:
    record = one(prefix + P + BOOTSTRAP)
    assert isinstance(record, BootstrapTimings)
    assert record.origin == Origin(tag, "node7", 310, 344)


def test_a_host_that_a_launcher_cut_off() -> None:
    record = one("2026-03-04 05:06:07 trainer-2 >> :310:344 [2] NCCL INFO " + BOOTSTRAP)
    assert isinstance(record, BootstrapTimings)
    assert record.origin == Origin("trainer-2", "", 310, 344)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "[New Thread 0x7f10 (LWP 4711)]",
        " 57%|█████▋    | 57/100 [00:31<00:22,  1.93it/s]",
        "INFO 03-04 [pynccl.py:111] vLLM is using nccl==2.27.3",
        P + "comm 0xa rank 1 nranks 4 cudaDev 1 busId 3d000 - Destroy COMPLETE",
        P + "Channel 00/0 : 1[1] -> 2[2] via P2P/IPC",
        P + "Mismatched NCCL version detected : rank 0 version 22203",
        "the text Init timings: rank 0 nranks 8 total 1.00 (kernels",
        P + "Init timings - F: rank 99999999999999999999 nranks 8 total 1.00 (",
    ],
)
def test_what_is_none_of_these_gives_nothing(line: str) -> None:
    assert read(line) == []


# -- torn lines


def test_a_progress_bar_before_the_line() -> None:
    assert isinstance(one(f"\r 3%|▎ | 1/30\r{P}{INIT}\n"), InitTimings)


def test_lines_that_end_as_on_windows() -> None:
    reader = LogReader()
    assert reader.feed(P + INIT + "\r\n") == read(P + INIT)
    assert reader.counts.lines == 1


def test_another_process_writes_into_the_middle_of_a_line() -> None:
    # The head of rank 5, glued to the line of another process; then the tail of rank 5.
    other = "node7:311:399 [3] NCCL INFO "
    # Rank 6 has other numbers: its tail can be no one else's.
    six = INIT.replace("rank 5", "rank 6").replace("3.07", "4.07").replace("topo 0.33", "topo 1.33")
    reader = LogReader()
    lines = [
        other + "NCCL version 2.27.3",
        P + INIT[:72] + other + six,
        INIT[72:],
    ]
    records = [record for line in lines for record in reader.feed(line)]
    head, glued, joined = (each for each in records if isinstance(each, InitTimings))
    assert (head.rank, head.whole, head.total) == (5, False, 3.07)
    assert (glued.rank, glued.whole, glued.origin) == (6, True, Origin("", "node7", 311, 399))
    assert (joined.rank, joined.whole, joined.origin.pid) == (5, True, 310)
    assert (reader.counts.torn, reader.counts.rejoined) == (1, 1)


def test_a_host_glued_to_a_number_is_known_again() -> None:
    other = "node7:311:399 [3] NCCL INFO "
    *_, line = read(other + "NCCL version 2.27.3", P + "busId 75" + other + BOOTSTRAP)
    assert isinstance(line, BootstrapTimings)
    assert line.origin == Origin("", "node7", 311, 399)


def test_a_tail_that_two_heads_could_own_is_joined_to_neither() -> None:
    second = INIT.replace("rank 5", "rank 6")
    records = read(P + INIT[:80], P.replace("344", "345") + second[:80], INIT[80:])
    assert [each.whole for each in records if isinstance(each, InitTimings)] == [False, False]


def test_a_tail_whose_sum_does_not_agree_is_not_joined() -> None:
    records = read(P + INIT[:80], INIT[80:].replace("topo 0.33", "topo 0.93"))
    assert [each.whole for each in records if isinstance(each, InitTimings)] == [False]


def test_near_a_tear_a_line_that_may_be_two_halves_keeps_its_total_alone() -> None:
    """Rank 6's line may be its head with the tail of rank 5, whose head waits for one."""
    six = INIT.replace("rank 5", "rank 6")
    reader = LogReader()
    reader.feed(P + INIT[:80])
    (line,) = reader.feed(P + six)
    assert isinstance(line, InitTimings)
    assert (line.rank, line.total, line.parts, line.whole) == (6, 3.07, {}, False)
    assert reader.counts.damaged == 1
    assert reader.feed(INIT[80:]) == []  # rank 5's, or rank 6's


def test_near_a_tear_a_line_that_cannot_be_two_halves_is_whole() -> None:
    other = INIT.replace("rank 5", "rank 6").replace("total 3.07", "total 2.07")
    other = other.replace("alloc 0.52", "alloc 0.02").replace("kernels 1.11", "kernels 0.61")
    records = read(P + INIT[:80], P + other, INIT[80:])
    assert [each.whole for each in records if isinstance(each, InitTimings)] == [False, True, True]


def test_far_from_a_tear_and_after_a_join_nothing_is_doubted() -> None:
    for between in ([""] * TORN_LINES + [""], [INIT[80:]]):
        *_, line = read(P + INIT[:80], *between, P + INIT.replace("rank 5", "rank 6"))
        assert isinstance(line, InitTimings) and line.whole


def test_near_a_torn_bootstrap_line_the_next_one_keeps_its_total_alone() -> None:
    *_, line = read(P + BOOTSTRAP[:70], P + BOOTSTRAP)
    assert isinstance(line, BootstrapTimings)
    assert (line.total, line.parts) == (0.732904, {})


def test_two_ways_to_join_are_one_too_many() -> None:
    """The head may end before the 0, or behind it, where another line's tail already stands."""
    head = INIT[: INIT.index("0.52")] + "0x"
    records = read(P + head, INIT[INIT.index("0.52") + 1 :])
    assert [each.whole for each in records if isinstance(each, InitTimings)] == [False, True]
    records = read(P + head, "10" + INIT[INIT.index("0.52") + 1 :])
    assert [each.whole for each in records if isinstance(each, InitTimings)] == [False]


def test_with_too_many_torn_heads_no_tail_is_joined() -> None:
    heads = [P + INIT[:80].replace("rank 5", f"rank {rank}") for rank in range(HEADS + 1)]
    records = read(*heads, P + INIT[:80], INIT[80:])
    assert not any(each.whole for each in records if isinstance(each, InitTimings))


def test_a_cut_number_is_no_number() -> None:
    line = one(P + INIT[: INIT.index("alloc 0.52") + len("alloc 0.5")])
    assert isinstance(line, InitTimings)
    assert line.parts == {"kernels": 1.11}
    assert one_or_none(P + "Init timings - F: rank 1") is None
    line = one(P + "Init timings - F: rank 1 nranks 24 total 3.0")
    assert isinstance(line, InitTimings) and line.total is None


def one_or_none(line: str) -> Record | None:
    return next(iter(read(line)), None)


@pytest.mark.parametrize(
    "text",
    [
        INIT.replace("topo 0.33", "topo 0.93"),
        INIT.replace("total 3.07", "total 30.07"),
        BOOTSTRAP.replace("total 0.732904", "total 0.032904"),
    ],
)
def test_numbers_that_contradict_each_other_are_left_out(text: str) -> None:
    reader = LogReader()
    assert reader.feed(P + text) == []
    assert reader.counts.damaged == 1


# -- whatever happens to a log, it says nothing that did not stand there


def lines_of_ranks(nranks: int) -> list[str]:
    """Each rank's own numbers, all different from each other."""
    lines = []
    for rank in range(nranks):
        prefix = f"host{rank % 2}:{500 + rank}:{900 + rank} [{rank}] NCCL INFO "
        kernels = 1 + 3 * rank
        parts = (
            f"kernels {kernels}.17, alloc 0.20, bootstrap 0.{30 + rank}, allgathers 0.01, "
            f"topo 0.08, graphs 0.02, connections 0.54, rest 0.01"
        )
        total = kernels + 0.17 + 0.2 + 0.3 + rank / 100 + 0.66
        lines += [
            f"{prefix}F comm 0xd{rank} rank {rank} nranks {nranks} cudaDev 0 nvmlDev 0 busId "
            f"1{rank}000 commId 0xabc - Init START",
            f"{prefix}Bootstrap timings total 0.{30 + rank}0000 (create 0.000010, send 0.000020, "
            f"recv 0.0{rank + 1}0000, ring 0.001000, delay 0.000000)",
            f"{prefix}Init timings - F: rank {rank} nranks {nranks} total {total:.2f} ({parts})",
        ]
    return lines


LINES = lines_of_ranks(4)


def _without_origin(fact: str) -> str:
    return fact[fact.index(")") :]


KNOWN = {_without_origin(repr(record)) for record in read(*LINES)}
FOREIGN = [
    "[Inferior 1 (process 77) exited normally]",
    "",
    " 12%|█▏ | 12/100",
    "rest 0.01)",
    "0.5,",
]


def facts(records: Iterable[Record]) -> set[str]:
    """Of whole lines only. Near a tear a commId may be left out."""
    return {
        repr(record).replace("comm_id=None", "comm_id='0xabc'")
        for record in records
        if not isinstance(record, InitLine | InitTimings | BootstrapTimings)
        or (record.stage is not None if isinstance(record, InitLine) else record.whole)
    }


# The same logs each time: with several lines torn, two halves may fit by chance once in thousands.
@settings(derandomize=True, max_examples=400)
@given(
    st.lists(
        st.tuples(st.sampled_from(range(len(LINES))), st.integers(0, 300), st.integers(0, 9)),
        unique_by=lambda each: each[0],
    ),
    st.lists(st.tuples(st.integers(0, 40), st.sampled_from(FOREIGN)), max_size=5),
    st.booleans(),
)
def test_torn_and_interleaved_lines_invent_nothing(
    tears: list[tuple[int, int, int]], foreign: list[tuple[int, str]], glued: bool
) -> None:
    """Any lines torn once, their tails up to nine lines later, other programs between."""
    pieces = list(LINES)
    tails: list[tuple[int, str]] = []
    for number, at, later in tears:
        line = pieces[number]
        pieces[number], tail = line[: at % len(line)], line[at % len(line) :]
        tails.append((number + later, tail))
    out: list[str] = []
    for number, piece in enumerate(pieces):
        out.append(piece)
        out += [tail for place, tail in tails if place == number]
    out += [tail for place, tail in tails if place >= len(pieces)]
    for place, text in foreign:
        out.insert(min(place, len(out)), text)
    if glued:  # a head without a newline: the next line begins in the same one
        out = ["".join(pair) for pair in itertools.zip_longest(out[::2], out[1::2], fillvalue="")]
    # A prefix that is torn too may name another host: what a line says is true all the same.
    assert {_without_origin(fact) for fact in facts(read(*out))} <= KNOWN


@given(st.lists(st.sampled_from(LINES), max_size=8), st.integers(0, 2000), st.integers(0, 2000))
def test_a_log_cut_at_both_ends_invents_nothing(lines: list[str], start: int, end: int) -> None:
    text = "\n".join(lines)[start:]
    text = text[: len(text) - end]
    assert {_without_origin(fact) for fact in facts(read(*text.split("\n")))} <= KNOWN


@given(st.text(max_size=400))
def test_no_text_makes_it_fail(text: str) -> None:
    read(*text.split("\n"), P + text, text + P + INIT, INIT[:70] + text)
