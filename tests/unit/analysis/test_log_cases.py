"""Logs of the forms that were met in the wild, each with the answer worked out by hand."""

import pytest

from harness.analysis.init_phases import complaints_said
from tests.unit.analysis.logs import (
    bootstrap,
    complete,
    described,
    init,
    log_of,
    phase,
    says,
    start,
    the_one,
)


def late_peer() -> str:
    """24 ranks on 3 nodes, the first 6 in the file; rank 5 waits in recv, the others in ring."""
    text = ""
    times = [
        # rank, Init total, its bootstrap, rest, then the bootstrap line: total, recv, ring
        (0, "1.30", "0.91", "0.03", "0.912330", "0.000410", "0.909200"),
        (1, "1.29", "0.91", "0.02", "0.910871", "0.000552", "0.907600"),
        (2, "1.34", "0.95", "0.03", "0.951204", "0.000498", "0.948100"),
        (3, "1.31", "0.92", "0.03", "0.924410", "0.000603", "0.921200"),
        (4, "1.33", "0.94", "0.03", "0.942003", "0.000577", "0.939000"),
        (5, "1.36", "0.97", "0.03", "0.968222", "0.951003", "0.014100"),
    ]
    for rank, total, boot, rest, boot_total, recv, ring in times:
        p = f"alpha:700{rank}:71{rank}0 [{rank}]"
        text += start(p, rank, 24, "0xfe01")
        text += bootstrap(p, boot_total, f"0.000055 0.000190 {recv} {ring} 0.000000")
        text += f"{p} NCCL INFO comm 0x7a{rank:03x} rank {rank} nRanks 24 nNodes 3 localRanks 8 "
        text += f"localRank {rank} MNNVL 0\n"
        text += complete(p, rank, 24, "0xfe01")
        text += init(p, rank, 24, total, f"0.14 0.05 {boot} 0.01 0.10 0.01 0.05 {rest}")
    return text


def test_the_late_rank_is_the_one_that_the_last_seen_rank_waited_for() -> None:
    communicator = the_one(late_peer())
    assert (communicator.nranks, communicator.seen, communicator.unseen) == (24, 6, 18)
    assert communicator.unseen_ranks == [[6, 23]]
    assert communicator.incomplete == 0
    assert [(late.rank, late.seen) for late in communicator.late] == [(6, False)]
    # rank 5 has the longest bootstrap, so that rank 6 came later by all of its recv
    assert communicator.late[0].late_s == pytest.approx(0.951003)
    # 0.91/1.30 = 70.0 %, 0.91/1.29 = 70.5 %, …, 0.97/1.36 = 71.3 %
    share = phase(communicator, "bootstrap")
    assert share.share_min == pytest.approx(0.70, abs=0.0005)
    assert share.share_max == pytest.approx(0.7132, abs=0.0005)
    assert says(communicator, "largest phase of Init", "bootstrap")
    assert says(communicator, "rank 6", "do not show", "rank 5 waited 0.951 s")
    assert says(communicator, "18 of 24 ranks are unseen (6-23)", "does not say that they failed")
    assert communicator.nodes == 3
    assert communicator.slowest_rank == 5


def test_with_the_late_rank_in_another_file_its_own_line_agrees() -> None:
    p = "beta:91:92 [0]"
    text = start(p, 6, 24, "0xfe01") + bootstrap(
        p, "0.018402", "0.000060 0.000180 0.000700 0.015100 0.000000"
    )
    communicator = the_one(late_peer(), text)
    late = communicator.late[0]
    assert (late.rank, late.seen) == (6, True)
    assert late.late_s == pytest.approx(0.968222 - 0.018402)
    assert communicator.incomplete_ranks == [[6, 6]]  # it started, and its file ends there


def test_time_that_no_part_explains_is_shown_as_such() -> None:
    # one line alone: 0.000091 + 0.000420 + 1.204400 + 0.310200 + 0.020000 = 1.535111
    line = bootstrap("n9:5:6 [0]", "7.442300", "0.000091 0.000420 1.204400 0.310200 0.020000")
    communicator = the_one(line)
    assert (communicator.nranks, communicator.unseen) == (None, None)
    gap = phase(communicator, "bootstrap.unexplained")
    assert gap.mean_s == pytest.approx(5.907189)
    assert gap.share == pytest.approx(5.907189 / 7.4423)
    parts = [p for p in communicator.phases if p.name not in ("bootstrap.total",)]
    assert sum(part.share or 0 for part in parts) == pytest.approx(1)
    assert all((part.share or 0) >= 0 for part in communicator.phases)
    assert phase(communicator, "bootstrap.recv").share == pytest.approx(1.2044 / 7.4423)
    assert says(communicator, "no timer covers 5.907 s")
    assert says(communicator, "whose rank no line tells")


def two_machines() -> str:
    """4 ranks, 2 and 2; rank order is not host order, and CUDA renumbers the GPUs."""
    text = ""
    rows = [
        (0, "vm-b", 3, "0.061204", "0.000900 0.057200"),
        (1, "vm-b", 1, "0.060111", "0.000800 0.056400"),
        (2, "vm-a", 3, "0.059730", "0.000850 0.056000"),
        (3, "vm-a", 1, "0.058002", "0.000900 0.000600"),
    ]
    for rank, host, nvml, total, waits in rows:
        p = f"{host}:{40 + rank}:{60 + rank} [{rank % 2}]"
        devices = f"cudaDev {rank % 2} nvmlDev {nvml} busId 5{rank}000"
        text += start(p, rank, 4, "0xb0b", more=devices)
        text += bootstrap(p, total, f"0.000050 0.000200 {waits} 0.000000")
        text += complete(p, rank, 4, "0xb0b", more=devices)
        text += init(p, rank, 4, "1.52", "0.70 0.60 0.06 0.00 0.09 0.01 0.05 0.01")
    return text


def test_kernels_and_alloc_dominate_and_hosts_are_out_of_order() -> None:
    communicator = the_one(two_machines())
    assert communicator.unseen == 0
    # 0.70/1.52 = 46.1 %, 0.60/1.52 = 39.5 %, together 85.5 %
    assert says(communicator, "kernels 0.700 s, 46%", "alloc 0.600 s, 39%", "together 86%")
    assert phase(communicator, "alloc").share == pytest.approx(0.6 / 1.52)
    assert says(communicator, "cudaDev and nvmlDev differ at 2 ranks (0, 2)")
    assert says(communicator, "rank order is not the order of host names")
    # rank 3: 0.058002 - 0.001750 = 0.056252 that no timer covers
    gap = phase(communicator, "bootstrap.unexplained")
    assert (gap.max_rank, gap.max_s) == (3, pytest.approx(0.056252))
    assert communicator.late == []


def test_one_host_name_on_two_nodes_and_a_misuse_afterwards() -> None:
    text = ""
    for rank, recv, total in ((0, "2.604411", "2.605120"), (1, "0.000391", "0.001260")):
        p = f"trainer:{5}:{80 + rank} [0]"
        comm = f"0x9{rank}"
        text += start(p, rank, 2, "0xd00d", comm).replace(" INFO ", f" INFO [Rank {rank}] ")
        text += bootstrap(p, total, f"0.000041 0.000120 {recv} 0.000310 0.000000")
        text += f"{p} NCCL INFO comm {comm} rank {rank} nRanks 2 nNodes 2 localRanks 1 "
        text += "localRank 0 MNNVL 0\n"
        text += complete(p, rank, 2, "0xd00d", comm)
    text += "\n[2026-03-04 05:06:07] trainer:5:5 [0] argcheck.cc:36 NCCL WARN AllReduce : sendbuff "
    text += "argument is NULL\n"
    log = log_of(text)
    (found,) = described(text)
    assert [(late.rank, late.seen) for late in found.late] == [(1, True)]
    assert found.late[0].late_s == pytest.approx(2.60386)
    assert (found.nodes, found.host_names) == (2, 1)
    assert says(found, "NCCL counts 2 nodes, the lines name 1 host", "share a host name")
    log.finish()
    (said,) = complaints_said(log.complaints)
    assert "misuse of the API" in said
    assert "after Init COMPLETE, so not a failure of initialization" in said


def test_without_a_topology_line_nothing_is_said_of_nodes() -> None:
    assert the_one(two_machines()).nodes is None


def test_the_form_of_2_22_between_lines_of_other_programs() -> None:
    rows = [(rank, "0.83", "0.37 0.17 0.01 0.21 0.03 0.02 0.02") for rank in range(8)]
    text = "NCCL version 2.22.3+cuda12.5\n"
    for rank, total, parts in rows:
        p = f"box:88:{100 + rank} [{rank}]"
        text += f"[New Thread 0x7ffe{rank}2 (LWP {rank})]\n"
        text += complete(p, rank, 8, "0x77").replace("ncclCommInitRankConfig", "ncclCommInitRank")
        text += '\nThread 3 "python" hit Breakpoint 1, main () at main.c:5\n'
        text += init(p, rank, 8, total, parts)
    communicator = the_one(text)
    assert (communicator.seen, communicator.unseen) == (8, 0)
    names = [each.name for each in communicator.phases]
    assert "alloc" not in names
    assert all(each.ranks == 8 for each in communicator.phases)
    # 0.37/0.83 = 44.6 %, with topo 0.21/0.83 = 25.3 %: together 69.9 %
    assert says(communicator, "kernels 0.370 s, 45%", "topo 0.210 s, 25%", "together 70%")
    assert log_of(text).versions() == {"NCCL 2.22.3+cuda12.5": 1}


def test_one_init_line_alone() -> None:
    line = init("dgx-3:1:2 [4]", 12, 32, "2.40", "0.31 0.52 1.08 0.02 0.18 0.03 0.24 0.02")
    communicator = the_one(line)
    assert (communicator.nranks, communicator.seen, communicator.named) == (32, 1, False)
    assert communicator.unseen_ranks == [[0, 11], [13, 31]]
    # 1.08/2.40 = 45 %, the largest; with alloc 0.52/2.40 = 21.7 %
    assert says(communicator, "bootstrap 1.080 s, 45%", "alloc 0.520 s, 22%", "together 67%")
    assert (
        max(
            (each for each in communicator.phases if each.share is not None),
            key=lambda each: each.share or 0,
        ).name
        == "bootstrap"
    )
    assert says(communicator, "no Init START or COMPLETE line")


def test_a_bootstrap_of_less_than_a_millisecond_has_no_late_rank() -> None:
    text = ""
    for rank in range(8):
        p = f"solo:{20 + rank}:{30 + rank} [{rank}]"
        text += start(p, rank, 8, "0x51")
        text += bootstrap(p, f"0.0009{rank}0", f"0.000050 0.000110 0.0003{rank}0 0.000240 0.000000")
    communicator = the_one(text)
    assert communicator.late == []
    assert phase(communicator, "bootstrap.total").mean_s == pytest.approx(0.000935)
    assert communicator.incomplete == 8


def test_a_slow_root_makes_nobody_late() -> None:
    text = ""
    for rank in range(6):
        p = f"big:{20 + rank}:{30 + rank} [{rank}]"
        text += start(p, rank, 6, "0x51")
        text += bootstrap(
            p,
            f"3.1{rank}0000",
            f"0.000050 0.000110 2.9{rank}0000 0.1 0.0".replace(" 0.1 0.0", " 0.100000 0.000000"),
        )
    communicator = the_one(text)
    assert communicator.late == []
    assert says(communicator, "recv is long at 6 of 6 ranks", "the root, or the way to it, is slow")


def test_a_late_rank_that_nobody_seen_waited_for_has_no_number() -> None:
    text = ""
    for rank in range(3):
        p = f"n{rank}:20:30 [0]"
        text += start(p, rank, 9, "0x51")
        text += bootstrap(p, "4.001000", "0.000050 0.000110 0.000900 3.999000 0.000000")
    communicator = the_one(text)
    assert communicator.late == []
    assert says(communicator, "waited 3.999 s in ring", "may have come late")
