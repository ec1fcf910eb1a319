"""Who is who: threads, communicators, splits, repetitions, torn lines and missing ones."""

import random

from hypothesis import given
from hypothesis import strategies as st

from harness.analysis.init_log import KEPT_WARNINGS, Communicator
from tests.unit.analysis.logs import bootstrap, complete, described, init, log_of, start

PARTS = "0.20 0.10 0.30 0.01 0.05 0.01 0.02 0.01"
WAITS = "0.000050 0.000110 0.000900 0.002000 0.000000"


def whole(prefix: str, rank: int, nranks: int, comm_id: str, comm: str = "") -> str:
    """All lines of one initialization; its times tell rank and nranks."""
    kernels = 1 + rank
    return (
        start(prefix, rank, nranks, comm_id, comm)
        + bootstrap(prefix, f"1.{nranks:03}{rank:03}", WAITS)
        + complete(prefix, rank, nranks, comm_id, comm)
        + init(prefix, rank, nranks, f"{kernels + 0.5:.2f}", f"{kernels}.00 {PARTS[5:]}")
    )


def finished(*sources: str) -> list[Communicator]:
    return log_of(*sources).finish()


def test_one_thread_makes_several_communicators_one_after_the_other() -> None:
    text = "".join(
        whole(f"n1:{rank}:{rank} [0]", rank, n, f"0x{n}", f"0x{n}{rank}")
        for rank in range(2)
        for n in (2, 4)
    )
    two, four = finished(text)
    assert (two.nranks, sorted(two.members)) == (2, [0, 1])
    assert (four.nranks, sorted(four.members)) == (4, [0, 1])
    for communicator in (two, four):
        for rank, member in communicator.members.items():
            assert member.bootstrap is not None and member.init is not None
            assert member.bootstrap.total == float(f"1.{communicator.nranks:03}{rank:03}")
            assert member.init.parts["kernels"] == 1 + rank


def test_equal_threads_on_two_nodes_stay_apart() -> None:
    """Containers often have one host name and one process id."""
    first, second = (whole("job:1:7 [0]", rank, 2, "0xc") for rank in range(2))
    (by_file,) = finished(first, second)
    lines = [
        tag + line
        for pair in zip(first.splitlines(), second.splitlines(), strict=True)
        for tag, line in zip(("[1,0]<stdout>:", "[1,1]<stdout>:"), pair, strict=True)
    ]
    (by_tag,) = finished("\n".join(lines))
    for communicator in (by_file, by_tag):
        kernels = {r: m.init.parts["kernels"] for r, m in communicator.members.items() if m.init}
        assert kernels == {0: 1.0, 1: 2.0}
        assert all(member.bootstrap for member in communicator.members.values())


def test_equal_threads_in_one_stream_are_not_mixed_up() -> None:
    first, second = (whole("job:1:7 [0]", rank, 2, "0xc", f"0xa{rank}") for rank in range(2))
    lines = [
        line for pair in zip(first.splitlines(), second.splitlines(), strict=True) for line in pair
    ]
    log = log_of("\n".join(lines))
    named, strays = log.finish()
    assert log.shared_threads == 1
    kernels = {rank: m.init.parts["kernels"] for rank, m in named.members.items() if m.init}
    assert kernels == {0: 1.0, 1: 2.0}  # an Init line says its rank
    assert all(member.bootstrap is None for member in named.members.values())
    assert (strays.nranks, len(strays.members)) == (None, 2)


def test_a_job_that_failed_and_tries_again_in_the_same_thread() -> None:
    p = "n1:1:1 [0]"
    text = start(p, 0, 2, "0xc", "0xa0") + whole(p, 0, 2, "0xd", "0xa1")
    first, second = finished(text)
    assert first.members[0].started and not first.members[0].done
    assert second.members[0].bootstrap is not None


def test_the_same_lines_in_two_files_count_once() -> None:
    text = "".join(whole(f"n{rank}:1:2 [0]", rank, 3, "0xc") for rank in range(3))
    (once,) = finished(text)
    (twice,) = finished(text, text)
    (again,) = finished(text + text)
    for communicator in (twice, again):
        assert {r: (m.init, m.bootstrap) for r, m in communicator.members.items()} == {
            r: (m.init, m.bootstrap) for r, m in once.members.items()
        }


def test_a_job_that_was_restarted_is_another_generation() -> None:
    """With NCCL_COMM_ID both have one commId."""
    first = whole("n1:10:11 [0]", 0, 2, "0xc", "0xa1")
    second = whole("n1:20:21 [0]", 0, 2, "0xc", "0xa1")
    one, two = finished(first + second)
    assert (one.generation, two.generation) == (0, 1)
    assert (one.members[0].pid, two.members[0].pid) == (10, 20)


def split(prefix: str, rank: int, comm: str, parent: str, color: int, count: str) -> str:
    head = (
        f"{prefix} NCCL INFO ncclCommSplit comm {comm} rank {rank} nranks 2 cudaDev 0 nvmlDev 0 "
        f"busId 1000 parent {parent} {count}color {color} key {rank}"
    )
    return (
        f"{head}- Init START\n{head} - Init COMPLETE\n{prefix} NCCL INFO Init timings - "
        f"ncclCommSplit: rank {rank} nranks 2 total 1.07 (kernels 0.00, alloc 0.01, bootstrap "
        "0.01, allgathers 0.01, topo 0.02, graphs 0.01, connections 0.01, rest 1.00)\n"
    )


def test_splits_are_kept_apart_by_parent_count_and_color() -> None:
    text = ""
    for rank in range(4):
        p = f"n1:{rank}:{rank} [0]"
        text += whole(p, rank, 4, "0xc", f"0xa{rank}")
        for nth in (1, 2):  # split twice, by the same colors
            text += split(
                *(p, rank % 2, f"0xb{nth}{rank}", f"0xa{rank}", rank // 2),
                f"splitCount {nth} ",
            )
    parent, *children = described(text)
    assert parent.nranks == 4 and not parent.is_split
    assert sorted((each.child_count, each.color) for each in children) == [
        *((1, 0), (1, 1), (2, 0), (2, 1))
    ]
    for child in children:
        assert (child.parent, child.seen, child.unseen) == (0, 2, 0)
        assert any("rest is 93%" in finding for finding in child.findings)


def test_splits_of_2_23_are_counted_by_their_order() -> None:
    text = ""
    for rank in range(2):
        p = f"n1:{rank}:{rank} [0]"
        text += whole(p, rank, 2, "0xc", f"0xa{rank}")
        text += split(p, rank, f"0xb1{rank}", f"0xa{rank}", 7, "")
        text += split(p, rank, f"0xb2{rank}", f"0xa{rank}", 7, "")
    _, first, second = described(text)
    assert (first.seen, second.seen) == (2, 2)


def test_a_grown_communicator_has_two_forms() -> None:
    p = "n1:1:1 [0]"
    text = start(p, 0, 3, "0xe", "0xf0").replace("ncclCommInitRankConfig", "[Rank -1] ncclCommGrow")
    text = text.replace("[Rank -1]", "[Rank 0]")
    text += (
        f"{p} NCCL INFO ncclCommGrow comm 0xf0 rank 0 nranks 3 cudaDev 0 nvmlDev 0 busId 1000 "
        "parent 0xa0 childCount 1 color 0 key 0 - Init COMPLETE\n"
    )
    (grown,) = finished(text)
    assert grown.members[0].started and grown.members[0].completed


def test_times_alone_belong_to_the_only_communicator_that_lacks_them() -> None:
    text = whole("n1:1:1 [0]", 0, 2, "0xc") + init("n1:2:2 [1]", 1, 2, "2.50", f"2.00 {PARTS[5:]}")
    (communicator,) = described(text)
    assert communicator.unseen == 0
    assert any("lines that name no communicator" in each for each in communicator.findings)


def test_times_alone_that_could_belong_to_two_communicators_stay_apart() -> None:
    text = whole("n1:1:1 [0]", 0, 2, "0xc", "0xa1") + whole("n1:1:1 [0]", 0, 2, "0xd", "0xa2")
    text += init("n1:2:2 [1]", 1, 2, "2.50", f"2.00 {PARTS[5:]}")
    found = described(text)
    assert [(each.named, each.seen) for each in found] == [(True, 1), (True, 1), (False, 1)]


def test_a_start_that_was_lost() -> None:
    text = whole("n1:1:1 [0]", 0, 2, "0xc")
    (communicator,) = finished(text[text.index("\n") + 1 :])
    assert communicator.members[0].bootstrap is not None


def test_a_torn_complete_is_named_by_its_start() -> None:
    lines = whole("n1:1:1 [0]", 0, 2, "0xc").splitlines()
    lines[2] = lines[2][: lines[2].index(" commId")]
    (communicator,) = finished("\n".join(lines))
    assert communicator.comm_id == "0xc"
    assert communicator.members[0].init is not None


def test_a_rank_above_nranks_is_nobody() -> None:
    assert finished(whole("n1:1:1 [0]", 9, 2, "0xc").split("NCCL INFO Boot")[0]) == []


def test_a_version_that_was_cut_is_no_other_version() -> None:
    lines = [f"n1:{pid}:1 [0] NCCL INFO NCCL version 2.27.3+cuda12.9" for pid in range(3)]
    log = log_of("\n".join([*lines, "n1:8:1 [0] NCCL INFO NCCL version 2.27.3+cu"]))
    assert log.versions() == {"NCCL 2.27.3+cuda12.9": 4}


def test_who_hangs_in_the_bootstrap_may_wait_for_the_unseen() -> None:
    text = "".join(start(f"n{rank}:1:1 [0]", rank, 4, "0xc") for rank in (0, 1, 3))
    (communicator,) = described(text)
    assert communicator.incomplete_ranks == [[0, 1], [3, 3]]
    assert any("they may wait for the unseen ones" in each for each in communicator.findings)


def test_warnings_are_bounded() -> None:
    lines = [f"n1:1:1 [0] a.cc:1 NCCL WARN number {i}" for i in range(KEPT_WARNINGS + 5)]
    log = log_of("\n".join(lines))
    assert (len(log.complaints), log.complaint_count) == (KEPT_WARNINGS, KEPT_WARNINGS + 5)


@given(
    st.integers(0, 2**32),
    st.sets(st.integers(0, 31), max_size=12),
    st.lists(st.tuples(st.integers(0, 31), st.integers(0, 200)), max_size=6),
)
def test_whatever_is_lost_no_rank_gets_another_ones_times(
    seed: int, lost: set[int], torn: list[tuple[int, int]]
) -> None:
    """8 ranks, 4 lines each, in any order between threads; some lines lost, some cut off."""
    chance = random.Random(seed)
    threads = [whole(f"n{r % 2}:{r}:{r} [0]", r, 8, "0xc").splitlines() for r in range(8)]
    lines = []
    while threads:
        thread = chance.choice(threads)
        lines.append(thread.pop(0))
        threads = [each for each in threads if each]
    cut = dict(torn)
    kept = [
        line[: cut[number] % len(line)] if number in cut else line
        for number, line in enumerate(lines)
        if number not in lost
    ]
    for communicator in finished("\n".join(kept)):
        for rank, member in communicator.members.items():
            if communicator.nranks is None:
                continue
            assert communicator.nranks == 8
            if member.init is not None and member.init.whole:
                assert member.init.parts["kernels"] == 1 + rank
            if member.bootstrap is not None and member.bootstrap.whole:
                assert member.bootstrap.total == float(f"1.008{rank:03}")
