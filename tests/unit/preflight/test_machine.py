from pathlib import Path

import pytest

from harness.preflight.machine import Machine, read_machine

LIMITS = """\
Limit                     Soft Limit           Hard Limit           Units
Max processes             96365                unlimited            processes
Max open files            1024                 20000                files
Max locked memory         8388608              8388608              bytes
"""

ALONE = {
    "proc/self/limits": LIMITS,
    "proc/self/status": "Name:\tcat\nCpus_allowed:\tff\nCpus_allowed_list:\t0-2,8\n",
    "proc/sys/fs/file-max": "9223372036854775807\n",
    "proc/sys/fs/file-nr": "594\t4\t9223372036854775807\n",
    "proc/sys/kernel/pid_max": "32768\n",
    "proc/sys/kernel/threads-max": "192730\n",
    "proc/loadavg": "0.20 0.18 0.12 1/80 11206\n",
    "proc/meminfo": (
        "MemTotal:       24684092 kB\nMemAvailable:   24249456 kB\nSwapTotal:      1024 kB\n"
    ),
    "proc/sys/net/ipv4/ip_local_port_range": "32768\t60999\n",
    "proc/sys/net/ipv4/ip_local_reserved_ports": "8080,32760-32769,40000,60999-61005\n",
    "proc/sys/net/ipv4/tcp_max_syn_backlog": "2048\n",
    "proc/sys/net/ipv4/tcp_abort_on_overflow": "0\n",
    "proc/sys/net/ipv4/tcp_max_tw_buckets": "131072\n",
    "proc/sys/net/ipv4/tcp_mem": "287901\t383868\t575802\n",
    "proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t33554432\n",
    "proc/sys/net/ipv4/tcp_wmem": "4096\t16384\t4194304\n",
    "proc/sys/net/core/somaxconn": "4096\n",
    "proc/sys/net/netfilter/nf_conntrack_max": "262144\n",
    "proc/sys/net/netfilter/nf_conntrack_count": "7\n",
    "proc/net/sockstat": (
        "sockets: used 16\nTCP: inuse 3 orphan 0 tw 0 alloc 3 mem 179\nUDP: inuse 0 mem 5\n"
    ),
    "proc/net/if_inet6": (
        "fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n"
        "00000000000000000000000000000001 01 80 10 80       lo\n"
    ),
    "sys/devices/system/cpu/online": "0-7\n",
}


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_everything_outside_of_cgroups(tmp_path: Path) -> None:
    here = read_machine(tree(tmp_path, ALONE))
    assert here == Machine(
        nofile_soft=1024,
        nofile_hard=20_000,
        files_max=2**63 - 1,
        files_open=590,
        cores_online=8,
        cores_allowed=4,
        memory_total_bytes=24_684_092 * 1024,
        memory_available_bytes=24_249_456 * 1024,
        swap_bytes=1024 * 1024,
        page_bytes=here.page_bytes,
        port_low=32_768,
        port_high=60_999,
        ports_reserved=4,
        ipv6_loopback=True,
        somaxconn=4096,
        tcp_max_syn_backlog=2048,
        tcp_abort_on_overflow=0,
        tcp_max_tw_buckets=131_072,
        tcp_mem_pages=(287_901, 383_868, 575_802),
        tcp_mem_used_pages=179,
        tcp_rmem_bytes=(4096, 131_072, 33_554_432),
        tcp_wmem_bytes=(4096, 16_384, 4_194_304),
        conntrack_max=262_144,
        conntrack_count=7,
        nproc_soft=96_365,
        pid_max=32_768,
        threads_max=192_730,
        threads_used=80,
    )


def test_an_empty_tree_knows_nothing(tmp_path: Path) -> None:
    here = read_machine(tmp_path)
    assert here == Machine(page_bytes=here.page_bytes)


@pytest.mark.parametrize("name", sorted(ALONE))
@pytest.mark.parametrize("text", ["", "\n", "rubbish", "1 x", "TCP: mem", "Max open files"])
def test_rubbish_raises_nothing(tmp_path: Path, name: str, text: str) -> None:
    read_machine(tree(tmp_path, ALONE | {name: text}))


@pytest.mark.parametrize(
    ("text", "ports"), [("\n", 0), ("1-1000", 0), ("1-65535", 28_232), ("40000-40009,50000", 11)]
)
def test_only_reserved_ports_inside_the_range_count(tmp_path: Path, text: str, ports: int) -> None:
    changed = {"proc/sys/net/ipv4/ip_local_reserved_ports": text}
    assert read_machine(tree(tmp_path, ALONE | changed)).ports_reserved == ports


def test_no_ipv6(tmp_path: Path) -> None:
    files = {name: text for name, text in ALONE.items() if name != "proc/net/if_inet6"}
    assert read_machine(tree(tmp_path, files)).ipv6_loopback is False


def test_this_machine() -> None:
    here = read_machine()
    assert here.cores_online is not None
    assert here.cores_online >= 1
    assert here.page_bytes is not None
    assert here.page_bytes >= 4096


# --- Control groups ------------------------------------------------------------------------------


def v2(files: dict[str, str], group: str = "/user/job") -> dict[str, str]:
    base = {"proc/self/cgroup": f"0::{group}\n", "sys/fs/cgroup/cgroup.controllers": "memory\n"}
    return base | {f"sys/fs/cgroup/{name}": text for name, text in files.items()}


def test_v2_takes_the_level_with_the_least_room(tmp_path: Path) -> None:
    files = v2(
        {
            "memory.stat": "inactive_file 0\n",
            "user/memory.max": "1000000\n",
            "user/memory.current": "950000\n",
            "user/memory.stat": "anon 1\ninactive_file 50000\n",
            "user/job/memory.max": "500000\n",
            "user/job/memory.high": "max\n",
            "user/job/memory.current": "1000\n",
            "user/cpu.max": "150000 100000\n",
            "user/job/cpu.max": "max 100000\n",
            "user/pids.max": "max\n",
            "user/job/pids.max": "64\n",
            "user/job/pids.current": "9\n",
        }
    )
    here = read_machine(tree(tmp_path, files))
    assert (here.cgroup_memory_limit_bytes, here.cgroup_memory_used_bytes) == (1_000_000, 900_000)
    assert here.cgroup_cores == 1.5
    assert (here.cgroup_pids_limit, here.cgroup_pids_used) == (64, 9)


def test_v2_throttling_counts_as_a_limit(tmp_path: Path) -> None:
    files = v2({"user/job/memory.max": "500000\n", "user/job/memory.high": "400000\n"})
    here = read_machine(tree(tmp_path, files))
    assert (here.cgroup_memory_limit_bytes, here.cgroup_memory_used_bytes) == (400_000, 0)


def test_v2_without_limits(tmp_path: Path) -> None:
    files = v2({"user/job/memory.max": "max\n", "user/job/pids.max": "max\n"})
    here = read_machine(tree(tmp_path, files))
    assert here == Machine(page_bytes=here.page_bytes)


V1 = {
    "proc/self/cgroup": "8:pids:/a\n4:memory:/a/b\n2:cpu,cpuacct:/a\n1:name=systemd:/\n0::/\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/a/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes": "800000\n",
    "sys/fs/cgroup/memory/a/b/memory.usage_in_bytes": "300000\n",
    "sys/fs/cgroup/memory/a/b/memory.stat": "inactive_file 1\ntotal_inactive_file 100000\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us": "-1\n",
    "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us": "50000\n",
    "sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us": "100000\n",
    "sys/fs/cgroup/pids/a/pids.max": "100\n",
    "sys/fs/cgroup/pids/a/pids.current": "3\n",
}

MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:4 - cgroup cgroup rw,cpu,cpuacct
35 31 0:32 {top} /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
39 31 0:36 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
"""


@pytest.mark.parametrize("mounts", [{}, {"proc/self/mountinfo": MOUNTS.format(top="/")}])
def test_v1(tmp_path: Path, mounts: dict[str, str]) -> None:
    here = read_machine(tree(tmp_path, V1 | mounts))
    assert (here.cgroup_memory_limit_bytes, here.cgroup_memory_used_bytes) == (800_000, 200_000)
    assert here.cgroup_cores == 0.5
    assert (here.cgroup_pids_limit, here.cgroup_pids_used) == (100, 3)


@pytest.mark.parametrize("group", ["/docker/c0ffee", "/docker/c0ffee/..", "/elsewhere"])
def test_a_container_sees_its_own_group_as_the_top(tmp_path: Path, group: str) -> None:
    files = {
        "proc/self/cgroup": f"4:memory:{group}\n",
        "proc/self/mountinfo": MOUNTS.format(top="/docker/c0ffee"),
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "700000\n",
        "sys/fs/cgroup/memory/memory.usage_in_bytes": "1\n",
    }
    here = read_machine(tree(tmp_path, files))
    assert (here.cgroup_memory_limit_bytes, here.cgroup_memory_used_bytes) == (700_000, 1)


def test_hybrid_takes_the_tighter_of_both_hierarchies(tmp_path: Path) -> None:
    files = V1 | {
        "proc/self/mountinfo": MOUNTS.format(top="/"),
        "sys/fs/cgroup/unified/pids.max": "50\n",
        "sys/fs/cgroup/unified/pids.current": "4\n",
    }
    here = read_machine(tree(tmp_path, files))
    assert (here.cgroup_pids_limit, here.cgroup_pids_used) == (50, 4)
