"""A run's recording as a trace for Perfetto's UI (ui.perfetto.dev): chosen ranks, and servers.

An emulated host is a process, a rank a thread of it, a span a slice. Root, store and workers are
processes with counters. Time is in ns from the start barrier on, as in the recording. The same
result and recording give the same bytes: ids are arithmetic, nothing is asked of the machine.

The messages are Perfetto's TracePacket, TrackDescriptor and TrackEvent; what is written here is
numbered as there (protos/perfetto/trace in its source). All packets are of one sequence. The first
says that it begins and brings the texts that events then name by number (interned data); the tracks
come next, the events last.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from emucoll.spans import PEER_ALL, PEER_ROOT, PEER_STORE
from harness.analysis.curves import Counter, counters_of
from harness.analysis.nesting import Nested, nest
from harness.analysis.notable import natural
from harness.report.protobuf import double, message, number, text
from harness.results.recording import Recording
from harness.results.schema import RunResult

_SEQUENCE = number(10, 1)
"""trusted_packet_sequence_id: there is one."""
_BEGINS, _CONTINUES = number(13, 1), number(13, 2)
"""sequence_flags: what was named before is forgotten; what was named is needed."""
_SLICE_BEGIN, _SLICE_END, _COUNTER = (number(9, kind) for kind in (1, 2, 4))
_SIZE_BYTES = 3
_EXPLICIT = number(11, 3)
"""child_ordering: as the children's own ranks say."""

_RUN = 1
_HOST, _RANK, _LANE, _SERVER, _COUNTER_TRACK = (kind << 44 for kind in range(1, 6))
"""uuids: what a track is, and above what it is of."""
_CHILDREN = 1 << 12
"""uuids for a rank's lanes and a server's counters each."""
_RANK_TID = 1_000_000
"""tid of rank 0, so that a rank's shows its number; a host has its leader's as its pid, as a
process has its main thread's, and servers have pids below.
"""

_PHASE, _PEER, _KIND, _EXCUSED = range(1, 5)
"""iids of annotations."""
_ANNOTATIONS = ("phase", "peer", "kind", "excused_s")
_PEERS = {PEER_ROOT: "root", PEER_STORE: "store", PEER_ALL: "all ranks"}


@dataclass(frozen=True)
class PerfettoTrace:
    """A trace, and what is in it."""

    data: bytes
    spans: dict[int, int]
    """By rank how many."""
    counters: dict[str, list[str]]
    """By process the names of its counter tracks."""


def perfetto(result: RunResult, recording: Recording, ranks: dict[int, str]) -> PerfettoTrace:
    """The trace of some ranks, with their names (`harness.analysis.notable`), and of all servers
    and workers.
    """
    assert result.spec is not None
    strings = _Strings(result, recording)
    tracks = [_track(_RUN, f"run ({result.kind})")]
    events = [*_run(result, recording)]
    spans_of = {}
    host = None
    for rank, spans in _spans(recording, ranks):
        spans_of[rank] = len(spans.named)
        if rank // result.spec.ranks_per_host != host:
            host = rank // result.spec.ranks_per_host
            pid = _RANK_TID + host * result.spec.ranks_per_host
            process = message(3, number(1, pid), text(6, f"host {host}"))
            tracks.append(_descriptor(_HOST | host, process))
        thread = message(4, number(1, pid), number(2, _RANK_TID + rank), text(5, ranks[rank]))
        tracks.append(_descriptor(_RANK | rank, number(5, _HOST | host), thread))
        for lane, top in enumerate(nest(spans.named)):
            uuid = _RANK | rank
            if lane > 0:
                uuid = _LANE | rank * _CHILDREN + lane
                tracks.append(_track(uuid, f"{ranks[rank]}, side by side {lane}", _RANK | rank))
            events += strings.slices(uuid, top, spans)
    counters = {}
    for index, name in enumerate(sorted(recording.series, key=natural)):
        found = counters_of(recording.series[name])
        counters[name] = [counter.name for counter in found]
        tracks += _server_tracks(index, name, found)
        events += _server_events(index, found)
    first = _packet(strings.interned(), flags=_BEGINS)
    return PerfettoTrace(b"".join([first, *tracks, *events]), spans_of, counters)


@dataclass(frozen=True)
class _Spans:
    """One rank's spans, in the order of their ends."""

    named: list[tuple[str, int, int]]
    """Name, begin and end in ns."""
    phases: list[int]
    peers: list[int]


def _spans(recording: Recording, ranks: Iterable[int]) -> Iterator[tuple[int, _Spans]]:
    """By rank, in ascending order, also of those with none."""
    chosen = np.array(sorted(ranks), dtype=np.int32)
    here = np.flatnonzero(np.isin(recording.rank, chosen))
    order = here[np.argsort(recording.rank[here], kind="stable")]
    bounds = np.searchsorted(recording.rank[order], [*chosen, np.iinfo(np.int32).max])
    for rank, (first, last) in zip(chosen.tolist(), itertools.pairwise(bounds), strict=True):
        of_rank = order[first:last]
        phases = recording.phase[of_rank].tolist()
        begins, ends = _ns(recording.begin[of_rank]), _ns(recording.end[of_rank])
        names = (recording.names[phase] for phase in phases)
        named = list(zip(names, begins, ends, strict=True))
        yield rank, _Spans(named, phases, recording.peer[of_rank].tolist())


def _ns(times_s: npt.NDArray[np.float64]) -> list[int]:
    """As a trace counts. Rounding keeps what nests nested."""
    whole: list[int] = np.rint(np.maximum(times_s, 0.0) * 1e9).astype(np.int64).tolist()
    return whole


class _Strings:
    """The texts that slices name by number: a phase's number is its index + 1."""

    def __init__(self, result: RunResult, recording: Recording) -> None:
        self._names = recording.names
        self._charged = {phase.name for phase in result.phases if phase.kind == "charged"}
        others = [*_PEERS.values(), "charged"]
        self._others = {name: len(self._names) + 1 + i for i, name in enumerate(others)}

    def interned(self) -> bytes:
        """TracePacket.interned_data."""
        names = [message(2, number(1, i + 1), text(2, name)) for i, name in enumerate(self._names)]
        annotations = [
            message(3, number(1, i + 1), text(2, name)) for i, name in enumerate(_ANNOTATIONS)
        ]
        values = {name: i + 1 for i, name in enumerate(self._names)} | self._others
        strings = [message(29, number(1, iid), text(2, name)) for name, iid in values.items()]
        return message(12, *names, *annotations, *strings)

    def slices(self, track: int, top: list[Nested], spans: _Spans) -> Iterator[bytes]:
        """The events of spans that nest, each around those within it."""
        on_track = number(11, track)
        for each in top:
            details = self._details(each, spans)
            yield _event(each.begin, _SLICE_BEGIN, on_track, *details)
            yield from self.slices(track, each.within, spans)
            yield _event(each.end, _SLICE_END, on_track)

    def _details(self, each: Nested, spans: _Spans) -> Iterator[bytes]:
        """Name and annotations."""
        iid, peer = spans.phases[each.index] + 1, spans.peers[each.index]
        yield number(10, iid)
        yield message(4, number(1, _PHASE), number(17, iid))
        if peer >= 0:
            yield message(4, number(1, _PEER), number(4, peer))
        elif peer in _PEERS:
            yield message(4, number(1, _PEER), number(17, self._others[_PEERS[peer]]))
        if each.name in self._charged:
            yield message(4, number(1, _KIND), number(17, self._others["charged"]))
        excused_ns = spans.named[each.index][1] - each.begin
        if excused_ns > 0:
            yield message(4, number(1, _EXCUSED), double(5, excused_ns / 1e9))


def _run(result: RunResult, recording: Recording) -> Iterator[bytes]:
    """A slice for the run, which says what was run, where, and what kind of numbers these are; the
    formation within it.
    """
    last_s = float(recording.end.max()) if len(recording.end) else 0.0
    total_s = last_s if result.total_s is None else result.total_s
    [end] = _ns(np.array([total_s]))
    said: dict[str, Any] = {
        "kind": result.kind,
        "saturated": result.saturated,
        "wrong": result.wrong,
        "warnings": [warning.code for warning in result.warnings],
        "spec": _fields(result.spec),
        "environment": _fields(result.environment),
    }
    del said["spec"]["out"]  # not of the run, and untrue once the directory is moved
    track = number(11, _RUN)
    annotations = _entries(4, said)
    yield _event(0, _SLICE_BEGIN, track, text(23, "run"), annotations)
    if result.formation is not None and result.formation.seconds is not None:
        [formed] = _ns(np.array([min(result.formation.seconds, total_s)]))
        yield _event(0, _SLICE_BEGIN, track, text(23, f"formation {result.formation.name}"))
        yield _event(formed, _SLICE_END, track)
    yield _event(end, _SLICE_END, track)


def _fields(value: msgspec.Struct | None) -> Any:
    return {} if value is None else msgspec.to_builtins(value)


def _entries(field: int, values: Mapping[str, Any]) -> bytes:
    """DebugAnnotations with names, without those that have no value."""
    return b"".join(
        _annotation(field, value, text(10, name))
        for name, value in values.items()
        if value not in (None, [], (), {})
    )


def _annotation(field: int, value: Any, name: bytes = b"") -> bytes:
    """A DebugAnnotation, as `field` of what it is in."""
    match value:
        case bool():
            packed = number(2, value)
        case int():
            packed = number(4, value)
        case float():
            packed = double(5, value)
        case dict():
            packed = _entries(11, value)
        case list() | tuple():
            packed = b"".join(_annotation(12, each) for each in value)
        case _:
            packed = text(6, str(value))
    return message(field, name, packed)


def _server_tracks(index: int, name: str, counters: list[Counter]) -> Iterator[bytes]:
    """A process, and below it a track a counter, in their order."""
    parent = _SERVER | index
    process = message(3, number(1, index + 1), text(6, name))
    yield _descriptor(parent, process, _EXPLICIT)
    for place, counter in enumerate(counters):
        unit = number(3, _SIZE_BYTES) if counter.unit == "bytes" else text(6, counter.unit)
        order = number(12, place)
        yield _track(_counter_track(index, place), counter.name, parent, message(8, unit), order)


def _server_events(index: int, counters: list[Counter]) -> Iterator[bytes]:
    """The counters' values."""
    for place, counter in enumerate(counters):
        track = number(11, _counter_track(index, place))
        for at_ns, value in zip(_ns(counter.at_s), counter.values.tolist(), strict=True):
            yield _event(at_ns, _COUNTER, track, double(44, value))


def _counter_track(server: int, place: int) -> int:
    return _COUNTER_TRACK | server * _CHILDREN + place


def _track(uuid: int, name: str, parent: int | None = None, *fields: bytes) -> bytes:
    """One that is neither a process nor a thread."""
    within = () if parent is None else (number(5, parent),)
    return _descriptor(uuid, *within, text(2, name), *fields)


def _descriptor(uuid: int, *fields: bytes) -> bytes:
    return _packet(message(60, number(1, uuid), *fields))


def _event(at_ns: int, *fields: bytes) -> bytes:
    return _packet(number(8, at_ns), message(11, *fields))


def _packet(*fields: bytes, flags: bytes = _CONTINUES) -> bytes:
    """Trace.packet."""
    return message(1, *fields, _SEQUENCE, flags)
