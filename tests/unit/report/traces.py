"""A trace as Perfetto's trace processor reads it, by Perfetto's own messages.

The trace processor itself is a program that the package fetches when it is first used, so that no
test can count on it. What it demands of a trace is asserted here instead: packets of a sequence
that has begun, texts by number only where they are known, tracks before their events, parents
before children, events in the order of time (those of one time in the order of the file), and ends
that have a begin.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

from perfetto.protos.perfetto.trace import perfetto_trace_pb2 as protos


@dataclass
class Slice:
    """What is drawn as one bar."""

    name: str
    begin: int
    end: int = -1
    details: dict[str, Any] = field(default_factory=dict)
    parent: "Slice | None" = None


@dataclass
class Track:
    """One line of the picture."""

    name: str
    parent: int
    descriptor: Any
    slices: list[Slice] = field(default_factory=list)
    values: list[tuple[int, float]] = field(default_factory=list)


class Loaded:
    """All tracks of a trace by their ids, in the order of the file."""

    def __init__(self, data: bytes) -> None:
        trace = protos.Trace()
        assert trace.ParseFromString(data) == len(data)
        trace.DiscardUnknownFields()
        assert trace.ByteSize() == len(data), "a field is unknown, twice or in another form"
        self.tracks: dict[int, Track] = {}
        self._texts: dict[str, dict[int, str]] = {}
        events = []
        for place, packet in enumerate(trace.packet):
            self._check_sequence(place, packet)
            if packet.HasField("track_descriptor"):
                self._add(packet.track_descriptor)
            if packet.HasField("track_event"):
                assert packet.track_event.track_uuid in self.tracks
                events.append((packet.timestamp, packet.track_event))
        events.sort(key=lambda event: event[0])
        open_slices: dict[int, list[Slice]] = defaultdict(list)
        for at, event in events:
            self._play(at, event, open_slices[event.track_uuid])
        assert not any(open_slices.values()), "a slice has no end"

    def named(self, name: str) -> Track:
        """The only track that is called so."""
        [track] = [track for track in self.tracks.values() if track.name == name]
        return track

    def children(self, parent: str) -> dict[str, Track]:
        """Tracks below the one of this name, by their names."""
        [uuid] = [uuid for uuid, track in self.tracks.items() if track.name == parent]
        below = [track for track in self.tracks.values() if track.parent == uuid]
        assert len({track.name for track in below}) == len(below), "the UI would merge two"
        return {track.name: track for track in below}

    def _check_sequence(self, place: int, packet: Any) -> None:
        cleared = protos.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
        needs = protos.TracePacket.SEQ_NEEDS_INCREMENTAL_STATE
        assert packet.trusted_packet_sequence_id == 1
        assert packet.sequence_flags == (cleared if place == 0 else needs)
        kinds = ("event_names", "debug_annotation_names", "debug_annotation_string_values")
        for kind in kinds if place == 0 else ():
            entries = getattr(packet.interned_data, kind)
            texts = {each.iid: each.name if kind != kinds[2] else each.str for each in entries}
            assert len(texts) == len(entries)
            assert 0 not in texts
            self._texts[kind] = texts
        assert place == 0 or not packet.HasField("interned_data")

    def _add(self, descriptor: Any) -> None:
        assert descriptor.uuid != 0
        assert descriptor.uuid not in self.tracks
        assert descriptor.parent_uuid == 0 or descriptor.parent_uuid in self.tracks
        names = (descriptor.name, descriptor.process.process_name, descriptor.thread.thread_name)
        [name] = [name for name in names if name]
        self.tracks[descriptor.uuid] = Track(name, descriptor.parent_uuid, descriptor)

    def _play(self, at: int, event: Any, stack: list[Slice]) -> None:
        track = self.tracks[event.track_uuid]
        assert track.descriptor.HasField("counter") == (event.type == event.TYPE_COUNTER)
        if event.type == event.TYPE_COUNTER:
            track.values.append((at, event.double_counter_value))
        elif event.type == event.TYPE_SLICE_BEGIN:
            name = event.name or self._texts["event_names"][event.name_iid]
            details = {self._name(each): self._value(each) for each in event.debug_annotations}
            stack.append(Slice(name, at, -1, details, stack[-1] if stack else None))
            track.slices.append(stack[-1])
        else:
            assert event.type == event.TYPE_SLICE_END
            stack.pop().end = at

    def _name(self, annotation: Any) -> str:
        if annotation.HasField("name"):
            return str(annotation.name)
        return self._texts["debug_annotation_names"][annotation.name_iid]

    def _value(self, annotation: Any) -> Any:
        if annotation.dict_entries:
            return {each.name: self._value(each) for each in annotation.dict_entries}
        if annotation.array_values:
            return [self._value(each) for each in annotation.array_values]
        kind = annotation.WhichOneof("value")
        if kind == "string_value_iid":
            return self._texts["debug_annotation_string_values"][
                annotation.string_value_iid
            ].decode()
        return getattr(annotation, kind)
