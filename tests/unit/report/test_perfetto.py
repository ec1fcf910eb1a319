"""A recording as Perfetto sees it: every span, in its place, and what servers did."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos

from emucoll.spans import NO_PEER, PEER_ALL, PEER_ROOT, PEER_STORE
from harness.engine.virtual import run
from harness.report.perfetto import perfetto
from harness.report.protobuf import double, message, number, text
from harness.results.recorded import Recorded, load_recorded
from harness.spec import Spec
from tests.unit.report.traces import Loaded

NRANKS = 24
SERVERS = {PEER_ROOT: "root", PEER_STORE: "store", PEER_ALL: "all ranks"}


@pytest.fixture(scope="module", params=["nccl-2.22.3", "pytorch"])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A run of a whole initialization. In virtual time many phases last no time at all."""
    out = str(tmp_path_factory.mktemp("run"))
    plan = {"plan": request.param, "allgather": None, "record_bytes": None}
    formation = "nccl-root-2.22" if request.param == "nccl-2.22.3" else "nccl-root"
    virtual = {"world": "virtual", "cluster": "ethernet-64", "out": out}
    assert run(Spec(nranks=NRANKS, formation=formation, **plan, **virtual)).ok
    return load_recorded(out)


def ns(seconds: float) -> int:
    return round(seconds * 1e9)


def loaded(recorded: Recorded, ranks: dict[int, str]) -> Loaded:
    return Loaded(perfetto(recorded.result, recorded.recording, ranks).data)


def test_every_span_of_every_rank_is_a_slice(recorded: Recorded) -> None:
    recording = recorded.recording
    trace = loaded(recorded, {rank: f"rank {rank}" for rank in range(NRANKS)})
    for rank in range(NRANKS):
        track = trace.named(f"rank {rank}")
        thread, host = track.descriptor.thread, trace.tracks[track.parent]
        assert host.name == f"host {rank // 8}"
        assert thread.tid == 1_000_000 + rank
        assert thread.pid == host.descriptor.process.pid == 1_000_000 + rank // 8 * 8
        spans = Counter(
            (
                recording.names[recording.phase[each]],
                ns(recording.begin[each]),
                ns(recording.end[each]),
                None if (peer := int(recording.peer[each])) == NO_PEER else SERVERS.get(peer, peer),
            )
            for each in np.flatnonzero(recording.rank == rank)
        )
        found = [
            (each.name, each.begin, each.end, each.details.get("peer")) for each in track.slices
        ]
        assert Counter(found) == spans
        assert all(each.details["phase"] == each.name for each in track.slices)


def test_slices_nest_as_their_names_do(recorded: Recorded) -> None:
    trace = loaded(recorded, {0: "rank 0", 9: "rank 9"})
    for name in ("rank 0", "rank 9"):
        slices = trace.named(name).slices
        names = {each.name for each in slices}
        nested = [each for each in slices if each.name.rpartition(".")[0] in names]
        assert len(nested) >= 8
        assert any(each.begin == each.end for each in nested), "a boundary case is not there"
        for each in slices:
            parent = "" if each.parent is None else each.parent.name
            assert parent == (each.name.rpartition(".")[0] if each in nested else "")


def test_the_run_says_what_it_was(recorded: Recorded) -> None:
    whole, formation = loaded(recorded, {0: "rank 0"}).named("run (simulated)").slices
    result = recorded.result
    assert result.formation is not None
    assert (whole.begin, whole.end) == (0, ns(result.total_s or -1.0))
    assert (formation.begin, formation.end) == (0, ns(result.formation.seconds or -1.0))
    assert whole.details["kind"] == "simulated"
    assert whole.details["spec"]["nranks"] == NRANKS
    assert whole.details["spec"]["plan"] == recorded.spec.plan
    assert whole.details["environment"]["version"]
    assert "out" not in whole.details["spec"]


def test_only_what_was_asked_for_and_the_same_again(recorded: Recorded) -> None:
    ranks = {3: "rank 3 (slowest)", 17: "rank 17"}
    first = perfetto(recorded.result, recorded.recording, ranks)
    again = perfetto(recorded.result, recorded.recording, ranks)
    assert first.data == again.data
    names = [track.name for track in Loaded(first.data).tracks.values()]
    assert names == ["run (simulated)", "host 0", "rank 3 (slowest)", "host 2", "rank 17"]
    assert first.spans == {rank: int((recorded.recording.rank == rank).sum()) for rank in ranks}


def test_tasks_side_by_side_get_tracks_of_their_own(recorded: Recorded) -> None:
    recording = replace(
        recorded.recording,
        names=["all", "one", "other"],
        rank=np.full(4, 5, np.int32),
        phase=np.array([1, 2, 2, 0], np.uint16),
        peer=np.array([4, NO_PEER, PEER_ALL, NO_PEER], np.int32),
        begin=np.array([1.0, 2.0, 4.0, 0.5]),
        end=np.array([3.0, 4.0, 5.0, 6.0]),
    )
    trace = Loaded(perfetto(recorded.result, recording, {5: "rank 5"}).data)
    shape = [(each.name, each.parent and each.parent.name) for each in trace.named("rank 5").slices]
    assert shape == [("all", None), ("one", "all"), ("other", "all")]
    [beside] = trace.children("rank 5").values()
    assert [(each.name, each.begin, each.end) for each in beside.slices] == [
        ("other", ns(2.0), ns(4.0))
    ]


def test_what_a_late_process_is_excused_for_is_drawn_and_said(recorded: Recorded) -> None:
    recording = replace(
        recorded.recording,
        names=["gathers", "gathers.sort"],
        rank=np.zeros(2, np.int32),
        phase=np.array([1, 0], np.uint16),
        peer=np.full(2, NO_PEER, np.int32),
        begin=np.array([1.0, 1.75]),
        end=np.array([4.0, 5.0]),
    )
    trace = Loaded(perfetto(recorded.result, recording, {0: "rank 0"}).data)
    outer, inner = trace.named("rank 0").slices
    assert inner.parent is outer
    assert (outer.begin, outer.end) == (ns(1.0), ns(5.0))
    assert outer.details["excused_s"] == 0.75
    assert "excused_s" not in inner.details


def test_counters_are_the_samples(recorded: Recorded) -> None:
    t = np.array([-0.3, -0.1, 0.1, 0.3, 0.3, 0.7])
    requests = np.array([2.0, 2.0, 6.0, 6.0, 6.0, 46.0])
    queue = np.array([9.0, 1.0, 5.0, 7.0, 8.0, 0.0])
    store = {"t": t, "cpu_s": t * 0.5 + 1, "requests": requests, "accept_queue": queue}
    worker = {"t": t[2:], "rss_bytes": queue[2:] * 2**20, "done": np.array([1.0])}
    series = {"worker 10": worker, "store": store, "worker 2": worker}
    traced = perfetto(recorded.result, replace(recorded.recording, series=series), {})
    trace = Loaded(traced.data)
    counters = trace.children("store")
    assert traced.counters == {
        "store": ["CPU", "requests", "accept queue"],
        "worker 2": ["memory"],
        "worker 10": ["memory"],
    }
    assert list(counters) == traced.counters["store"]
    order = [each.descriptor.sibling_order_rank for each in counters.values()]
    assert order == [0, 1, 2]

    assert counters["requests"].descriptor.counter.unit_name == "requests/s"
    steps = counters["requests"].values
    assert [at for at, _ in steps] == [0, ns(0.1), ns(0.3)], (
        "from each sample to the next, and 0 on"
    )
    assert [rate for _, rate in steps] == pytest.approx([20.0, 0.0, 100.0])
    assert [share for _, share in counters["CPU"].values] == pytest.approx([50.0] * 3)
    levels = [(0, 1.0), (ns(0.1), 5.0), (ns(0.3), 7.0), (ns(0.3), 8.0), (ns(0.7), 0.0)]
    assert counters["accept queue"].values == levels
    [memory] = trace.children("worker 10").values()
    assert memory.descriptor.counter.unit == protos.CounterDescriptor.UNIT_SIZE_BYTES
    assert memory.values[-2:] == [(ns(0.3), 8.0 * 2**20), (ns(0.7), 0.0)]
    pids = [
        track.descriptor.process.pid
        for track in trace.tracks.values()
        if track.descriptor.HasField("process")
    ]
    assert sorted(pids) == [1, 2, 3]


def test_charged_work_is_called_so(recorded: Recorded) -> None:
    name = "rest.same_process"
    phases = [
        structs.replace(each, kind="charged") if each.name == name else each
        for each in recorded.result.phases
    ]
    result = structs.replace(recorded.result, phases=phases)
    slices = Loaded(perfetto(result, recorded.recording, {7: "rank 7"}).data).named("rank 7").slices
    kinds = {each.name: each.details.get("kind") for each in slices}
    assert kinds.pop(name) == "charged"
    assert set(kinds.values()) == {None}


@given(
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(),
    st.binary(max_size=300),
)
def test_fields_are_what_protobuf_reads(whole: int, real: float, words: str, raw: bytes) -> None:
    written = b"".join(
        [number(4, whole), message(14, raw), text(10, words), message(11, double(5, real))]
    )
    read = protos.DebugAnnotation.FromString(written)
    assert (read.name, read.dict_entries[0].double_value) == (words, real)
    assert protos.DebugAnnotation.FromString(number(4, whole)).int_value == whole
    assert read.WhichOneof("value") == "int_value"
    assert read.proto_value == raw
