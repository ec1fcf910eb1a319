"""Lines of NCCL_DEBUG=INFO, read back: text in, records out.

Reads the initialization of NCCL 2.18 to 2.31 and of RCCL: versions, Init START and COMPLETE, the
topology line, `Init timings`, `Bootstrap timings` and WARN. The forms were read in NCCL's own
sources, tag by tag.

Holds true: a record says only what stands in the log. A number counts if what must follow it
follows, so a number that was cut is no number. A line that was torn gives what stands whole in its
head; its tail is joined to it only if exactly one torn head can be continued by it in one way, and
if the sum then agrees. Memory is bounded by the threads that log and by `HEADS`.

Must not know files, communicators or what a time means: `harness.analysis.init_log` puts records
together.
"""

import re
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

INIT_RESOLUTION_S = 0.005
"""`Init timings` are printed with two decimals."""
BOOTSTRAP_RESOLUTION_S = 0.0000005
"""`Bootstrap timings` are printed with six."""
INIT_ROUNDING_S = 0.05
"""Nine rounded numbers of an Init line: its parts add up to its total within this."""
JOINED_ROUNDING_S = 0.015
"""What is asked of a line whose tail was joined to its head. Of true lines nine in ten are as near.
"""
TORN_LINES = 64
"""So many lines after a tear a line that looks whole may be two halves."""
BOOTSTRAP_ROUNDING_S = 0.00001

INIT_PARTS = ("kernels", "bootstrap", "allgathers", "topo", "graphs", "connections", "rest")
"""The parts in every version's Init line; 2.23 added alloc, after kernels."""
BOOTSTRAP_PARTS = ("create", "send", "recv", "ring", "delay")
_KNOWN = {"Init": {*INIT_PARTS, "alloc"}, "Boot": set(BOOTSTRAP_PARTS)}

HEADS = 64
"""Torn heads that wait for their tails. Once there were more, tails are joined no longer, and near
a tear every timings line keeps its total alone.
"""


@dataclass(frozen=True, slots=True)
class Origin:
    """The thread that wrote a line. `tag` is what a launcher says of the process, `host` may be
    empty: some launchers cut it off.
    """

    tag: str
    host: str
    pid: int
    tid: int


@dataclass(frozen=True, slots=True)
class Version:
    """`origin` is None for the line without a prefix (up to 2.22)."""

    origin: Origin | None
    library: Literal["NCCL", "RCCL"]
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InitLine:
    """Init START or COMPLETE; `stage` None: torn before the word. `parent` and what follows it are
    those of a split, shrink or grow.
    """

    origin: Origin
    stage: Literal["START", "COMPLETE"] | None
    function: str | None
    comm: str
    rank: int
    nranks: int
    comm_id: str | None = None
    cuda_dev: int | None = None
    nvml_dev: int | None = None
    parent: str | None = None
    child_count: int | None = None
    color: int | None = None
    key: int | None = None


@dataclass(frozen=True, slots=True)
class Topology:
    """How many nodes NCCL itself counts: host names need not tell."""

    origin: Origin
    comm: str
    rank: int
    nranks: int
    nodes: int


@dataclass(frozen=True, slots=True)
class InitTimings:
    """Seconds. `total` None and `parts` incomplete where the line was torn (`whole` False)."""

    origin: Origin
    function: str | None
    rank: int
    nranks: int
    total: float | None
    parts: dict[str, float]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class BootstrapTimings:
    """Seconds. The line names no rank: only its thread says whose it is."""

    origin: Origin
    total: float | None
    parts: dict[str, float]
    whole: bool = True


@dataclass(frozen=True, slots=True)
class Warn:
    """An NCCL WARN; `where` is the file and line of NCCL's source."""

    origin: Origin
    where: str | None
    text: str


TimedLine: TypeAlias = InitLine | Topology | InitTimings | BootstrapTimings
Record: TypeAlias = Version | TimedLine | Warn


@dataclass(slots=True)
class Counts:
    """What a source held."""

    lines: int = 0
    nccl_lines: int = 0
    init_lines: int = 0
    """Init START and COMPLETE."""
    init_timings: int = 0
    bootstrap_timings: int = 0
    torn: int = 0
    """Lines of the forms above that were cut."""
    rejoined: int = 0
    """Those of `torn` whose tail was found."""
    damaged: int = 0
    """Timings lines whose parts contradict their total, or may be another line's: left out."""


# -- forms

_HEADER = re.compile(
    r"(?P<host>[A-Za-z0-9_.-]{0,255}):(?P<pid>\d{1,10}):(?P<tid>\d{1,10}) "
    r"(?:\[-?\d{1,10}\] )?(?:\d+\.\d+ )?(?:(?P<where>[^\s:]+:\d+) (?:\([^\s()]+\) )?)?"
    r"NCCL (?P<level>INFO|WARN|CALL|TRACE|ABORT)(?: |$)"
)
_BARE_HEADER = re.compile(r"NCCL INFO (.*)")
_NOISE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]")
"""Colours and cursor movements of programs that write between."""

# `[1,0]<stdout>:` (mpirun), `(Name pid=7, ip=1.2.3.4)` (Ray), `[rank3]:` (torchrun), `3: ` (srun),
# `worker-3 >> ` (schedulers that prefix date and worker).
_TAG = re.compile(
    r"\[\d+,\d+\](?:<std(?:out|err)>)?:?|\(\w+ pid=\d+(?:, ip=[\w.:]+)?\)|\[[A-Za-z]*\d+\](?=:?\s)"
    r"|^\d+(?=: )|\S+(?= ?>>\s*$)"
)
_BEFORE_TEXT = re.compile(
    r"(?:\[\d+,\d+\](?:<std(?:out|err)>)?:? ?|\(\w+ pid=\d+[^)]{0,80}\) "
    r"|\[[A-Za-z]*\d+\]:? |\d+: )*"
)

_VERSION = re.compile(r"([NR]CCL) version ?:? ?(\d+\.\d+\.\d+[\w.+-]*)")
_COMM = re.compile(
    r"(?:\[Rank \d+\] )?(?:(?P<function>\w+) )?comm (?P<comm>0x[0-9a-f]+) rank (?P<rank>\d{1,10}) "
    r"nranks (?P<nranks>\d{1,10}) "
)
_STAGE = re.compile(r" ?- Init (START|COMPLETE)")
_FIELDS = {
    "cudaDev": re.compile(r"-?\d+"),
    "nvmlDev": re.compile(r"-?\d+"),
    "busId": re.compile(r"[0-9a-f]+"),
    "commId": re.compile(r"0x[0-9a-f]+"),
    "parent": re.compile(r"0x[0-9a-f]+|\(nil\)"),
    "splitCount": re.compile(r"\d+"),
    "childCount": re.compile(r"\d+"),
    "color": re.compile(r"-?\d+"),
    "key": re.compile(r"-?\d+"),
    "localSize": re.compile(r"\d+"),
    "used": re.compile(r"\d+"),
}
"""What may stand between nranks and the stage; the last two in older RCCL."""
_ALWAYS = {"cudaDev", "busId"}
_ENDING = {"commId", "key", "localSize"}
"""Of these every whole line has one, as the last or nearly so."""
_TOPOLOGY = re.compile(
    r"comm (0x[0-9a-f]+) rank (\d{1,10}) nRanks (\d{1,10}) nNodes (\d{1,10}) localRanks \d+ "
)
_INIT = re.compile(r"Init timings(?: - (?P<function>\w+))?: rank (?P<rank>\d{1,10}) ")
_INIT_NRANKS = re.compile(r"nranks (\d{1,10}) ")
_WHOLE = r"-?(?:0|[1-9]\d{0,11})"
_INIT_TOTAL = re.compile(rf"total ({_WHOLE}\.\d\d) \(")
_INIT_PART = re.compile(rf"([a-z_]+) ({_WHOLE}\.\d\d)(, |\))")
_BOOTSTRAP = re.compile(r"Bootstrap timings ")
_BOOTSTRAP_TOTAL = re.compile(rf"total ({_WHOLE}\.\d{{6}}) \(")
_BOOTSTRAP_PART = re.compile(rf"([a-z_]+) ({_WHOLE}\.\d{{6}})(, |\))")
_TIMED = ("Init timings", "Bootstrap timings")


@dataclass(slots=True)
class _Head:
    """A torn line that waits for its tail; `origin` None: its prefix was torn too."""

    origin: Origin | None
    text: str
    line: int
    """Number of the line in its source."""


@dataclass(slots=True)
class LogReader:
    """One source's lines, one after the other. A source is a file, or another stream of lines."""

    counts: Counts = field(default_factory=Counts)
    _threads: dict[tuple[int, int], list[Origin]] = field(default_factory=dict)
    _hosts: set[str] = field(default_factory=set)
    _heads: list[_Head] = field(default_factory=list)
    _doubted: list[_Head] = field(default_factory=list)
    """Lines that look whole and may be heads with another line's tail."""
    _comm_ids: set[str] = field(default_factory=set)
    _joins: bool = True

    def feed(self, line: str) -> list[Record]:
        """The records that this line holds, or completes; most lines hold none.

        `line` may end with a newline. A carriage return ends a line too: progress bars use it.
        """
        records: list[Record] = []
        line = line.rstrip("\r\n")
        for part in line.split("\r") if "\r" in line else (line,):
            self.counts.lines += 1
            if "CCL" in part or self._heads:
                self._read(_NOISE.sub("", part) if "\x1b" in part else part, records)
        return records

    def _read(self, line: str, records: list[Record]) -> None:
        headers = list(_HEADER.finditer(line)) if "NCCL" in line else []
        if not headers:
            self._without_header(line, records)
            return
        self.counts.nccl_lines += len(headers)
        if headers[0].start():
            self._tail(line[: headers[0].start()], records)
        origins = [self._origin(headers[0], line[: headers[0].start()])]
        origins += [self._origin(header, None) for header in headers[1:]]
        # What of a host is not the host belongs to the line before; where nobody knows, all may.
        ends = [
            header.end("host") - (len(origin.host) if origin.host in self._hosts else 0)
            for header, origin in zip(headers[1:], origins[1:], strict=True)
        ]
        for header, origin, end in zip(headers, origins, [*ends, len(line)], strict=True):
            text = line[header.end() : end]
            if header["level"] == "WARN":
                records.append(Warn(origin, header["where"], text.strip()))
            elif header["level"] == "INFO":
                self._info(origin, text, records)

    def _origin(self, header: re.Match[str], prefix: str | None) -> Origin:
        """Whose line it is. In the middle of a line (`prefix` None) the host may be glued to what
        stands before: there a thread that is known already goes first.
        """
        pid, tid, host = int(header["pid"]), int(header["tid"]), header["host"]
        known = self._threads.setdefault((pid, tid), [])
        if prefix is None:
            fitting = [origin for origin in known if host.endswith(origin.host)]
            if len(fitting) == 1:
                return fitting[0]
            host = max((each for each in self._hosts if host.endswith(each)), key=len, default=host)
        else:
            self._hosts.add(host)
        tag = "" if prefix is None else " ".join(_TAG.findall(prefix))
        origin = Origin(tag, host, pid, tid)
        for each in known:
            if each == origin:
                return each  # the same object: logs are long, and it is kept in every record
        if prefix is not None:
            known.append(origin)
        return origin

    def _without_header(self, line: str, records: list[Record]) -> None:
        text = line[match.end() :] if (match := _BEFORE_TEXT.match(line)) else line
        if (version := _VERSION.match(text)) is not None:
            self.counts.nccl_lines += 1
            records.append(_version(None, version))
            return
        if (bare := _BARE_HEADER.search(text)) is not None:  # its prefix was torn
            if _is_cut(bare[1]):
                self._wait(self._heads, None, bare[1])
            return
        self._tail(text, records)

    def _info(self, origin: Origin, text: str, records: list[Record]) -> None:
        if (version := _VERSION.match(text)) is not None:
            records.append(_version(origin, version))
            return
        record = _parse(origin, text)
        if record is None:
            if text.startswith(_TIMED):  # torn before its numbers
                self.counts.torn += 1
                self._wait(self._heads, origin, text)
        elif isinstance(record, Topology):
            records.append(record)
        elif _is_whole(record):
            self._count(record)
            if isinstance(record, InitLine):
                records.append(self._with_sure_id(record))
                return
            agrees = _agrees(record, INIT_ROUNDING_S)
            rivals = self._rivals(text) if agrees else []
            if agrees and not rivals:
                records.append(record)
                return
            self.counts.damaged += 1
            self._wait(self._doubted, origin, text)
            if agrees:
                records.append(_head_of(record, all(_bounds(rival.text) for rival in rivals)))
        else:
            self.counts.torn += 1
            self._wait(self._heads, origin, text)
            records.append(record)

    def _with_sure_id(self, line: InitLine) -> InitLine:
        """Near a torn Init line a commId may be two halves: there it counts the second time."""
        if line.comm_id is None or line.comm_id in self._comm_ids:
            return line
        self._comm_ids.add(line.comm_id)
        oldest = self.counts.lines - TORN_LINES
        torn = any(h.line >= oldest and not h.text.startswith(_TIMED) for h in self._heads)
        return replace(line, comm_id=None) if torn else line

    def _rivals(self, text: str) -> list[_Head]:
        """Torn heads to which the end of this timings line may belong: then it is half of two."""
        oldest = self.counts.lines - TORN_LINES
        sure = self._joins and _joined(_NOBODY, text) is not None
        form = next(form for form in _TIMED if text.startswith(form))
        return [
            head
            for head in self._heads
            if head.line >= oldest
            and head.text.startswith(form)
            and not (sure and not _may_own_tail(head.text, text))
        ]

    def _count(self, record: Record) -> None:
        counts = self.counts
        counts.init_lines += isinstance(record, InitLine)
        counts.init_timings += isinstance(record, InitTimings)
        counts.bootstrap_timings += isinstance(record, BootstrapTimings)

    def _wait(self, heads: list[_Head], origin: Origin | None, text: str) -> None:
        heads.append(_Head(origin, text, self.counts.lines))
        if len(heads) > HEADS:
            # The one that is dropped now may be the one that a tail belongs to.
            del heads[0]
            self._joins = False

    def _tail(self, text: str, records: list[Record]) -> None:
        """Join a tail to its head, where only one head can be meant."""
        if not self._heads or not self._joins or not (")" in text or "- Init " in text):
            return
        text = text[match.end() :] if (match := _BEFORE_TEXT.match(text)) else text
        fitting = [
            (head, record)
            for head in (*self._heads, *self._doubted)
            for begin in _beginnings(head.text, text)
            if (record := _joined(head.origin or _NOBODY, begin + text)) is not None
        ]
        if len(fitting) != 1 or not _agrees(fitting[0][1], JOINED_ROUNDING_S):
            return
        head, record = fitting[0]
        self._heads = [each for each in self._heads if each is not head]
        self._doubted = [each for each in self._doubted if each is not head]
        if head.origin is not None:
            self.counts.rejoined += 1
            self._count(record)
            records.append(record)


_NOBODY = Origin("", "", 0, 0)
_PART_BEGUN = re.compile(r"(?:[a-z_]+(?: (?:-?\d*(?:\.\d{0,6})?)?)?)?,?")
"""As much of a part as may have been printed before a tear."""
_LONGEST_PART = 40
_LONGEST_HEAD = 200
"""More characters than a timings line has before its total."""


def _bounds(text: str) -> list[int]:
    """Where the parts of a timings line begin, and where those that stand whole end. Empty if its
    total does not stand whole.
    """
    init = text.startswith("Init")
    total = (_INIT_TOTAL if init else _BOOTSTRAP_TOTAL).search(text)
    if total is None:
        return []
    part_form = _INIT_PART if init else _BOOTSTRAP_PART
    bounds, missing = [total.end()], set(_KNOWN[text[:4]])
    while (part := part_form.match(text, bounds[-1])) is not None and part[1] in missing:
        bounds.append(part.end())
        missing.remove(part[1])
        if part[3] == ")":
            break
    return bounds


def _beginnings(text: str, tail: str) -> list[str]:
    """Where a torn line may have ended before `tail`: another one's may stand behind it already."""
    form = next((form for form in _TIMED if text.startswith(form)), None)
    if form is None:
        return [text]
    bounds = _bounds(text)
    if not bounds:  # anywhere
        cuts = range(len(form), min(len(text) + 1, _LONGEST_HEAD))
    elif text[bounds[-1] - 1] == ")":  # as many parts before the tear as there are not behind it
        inside = tail[: tail.find(")") + 1]
        place = len(bounds) - 2 - inside.count(", ")
        before_parts = place < 0 or " (" in inside
        cuts = range(len(form), bounds[0]) if before_parts else range(*bounds[place : place + 2])
    else:
        begun = _PART_BEGUN.match(text, bounds[-1])
        cuts = range(bounds[-1], (bounds[-1] if begun is None else begun.end()) + 1)
    return [text[:cut] for cut in cuts]


def _may_own_tail(head: str, line: str) -> bool:
    """Does some end of `line`, a whole one, continue `head`?"""
    bounds, place = _bounds(line), len(_bounds(head)) - 1
    if place + 1 >= len(bounds):
        return False
    cuts = range(bounds[0]) if place < 0 else range(*bounds[place : place + 2])
    torn_part = _INIT_PART if head.startswith("Init") else _BOOTSTRAP_PART
    at = _bounds(head)[-1] if place >= 0 else 0
    return any(
        _joined(_NOBODY, begin + line[cut:]) is not None
        for cut in cuts
        for begin in _beginnings(head, line[cut:])
        if place < 0 or torn_part.match(begin[at:] + line[cut : cut + _LONGEST_PART])
    )


def _joined(origin: Origin, text: str) -> TimedLine | None:
    """A head with a tail, if it is a line as NCCL writes it; without parts of unknown names, which
    a cut name would be.
    """
    record = _parse(origin, text)
    if record is None or not _is_whole(record) or not _agrees(record, INIT_ROUNDING_S):
        return None
    if isinstance(record, InitTimings | BootstrapTimings):
        return record if record.parts.keys() <= _KNOWN[text[:4]] else None
    return record


def _version(origin: Origin | None, match: re.Match[str]) -> Version:
    return Version(origin, "RCCL" if match[1] == "RCCL" else "NCCL", match[2].rstrip(".-"))


def _parse(origin: Origin, text: str) -> TimedLine | None:
    """What NCCL's own text says, in as far as it is one of the forms."""
    if text.startswith("Init timings"):
        return _init_timings(origin, text)
    if text.startswith("Bootstrap timings"):
        return _bootstrap_timings(origin, text)
    if "comm 0x" not in text:
        return None
    if (nodes := _TOPOLOGY.match(text)) is not None:
        return Topology(origin, nodes[1], int(nodes[2]), int(nodes[3]), int(nodes[4]))
    return _init_line(origin, text)


def _is_cut(text: str) -> bool:
    """Does a form begin here that does not end?"""
    record = _parse(_NOBODY, text)
    timed = text.startswith(_TIMED)
    return timed if record is None else not isinstance(record, Topology) and not _is_whole(record)


def _is_whole(record: TimedLine) -> bool:
    if isinstance(record, InitLine):
        return record.stage is not None
    return isinstance(record, Topology) or record.whole


def _init_line(origin: Origin, text: str) -> InitLine | None:
    begin = _COMM.match(text)
    if begin is None:
        return None
    stage = _STAGE.search(text, begin.end() - 1)
    middle = text[begin.end() : stage.start() if stage else len(text)]
    fields = _fields(middle)
    if fields is None or not (fields.keys() >= _ALWAYS and fields.keys() & _ENDING):
        stage = None  # something else stands in its midst, or is missing: the end is another's
    if stage is None:
        if " - " in text:  # Abort, Destroy and Finalize are of the same form
            return None
        fields = None
    fields = fields or {}
    count = fields.get("childCount", fields.get("splitCount"))
    return InitLine(
        origin=origin,
        stage=None if stage is None else "START" if stage[1] == "START" else "COMPLETE",
        function=begin["function"],
        comm=begin["comm"],
        rank=int(begin["rank"]),
        nranks=int(begin["nranks"]),
        comm_id=fields.get("commId"),
        cuda_dev=_integer(fields.get("cudaDev")),
        nvml_dev=_integer(fields.get("nvmlDev")),
        parent=fields.get("parent"),
        child_count=_integer(count),
        color=_integer(fields.get("color")),
        key=_integer(fields.get("key")),
    )


def _fields(middle: str) -> dict[str, str] | None:
    """`cudaDev 0 nvmlDev 0 …` by name; None if something stands there that NCCL does not write."""
    words = [word for word in middle.split(" ") if word and word != "bytes"]
    if len(words) % 2:
        return None
    found = dict(zip(words[::2], words[1::2], strict=True))
    for name, value in found.items():
        form = _FIELDS.get(name)
        if form is None or len(value) > 20 or form.fullmatch(value) is None:
            return None
    return found


def _integer(text: str | None) -> int | None:
    return None if text is None else int(text)


def _init_timings(origin: Origin, text: str) -> InitTimings | None:
    begin = _INIT.match(text)
    if begin is None or (nranks := _INIT_NRANKS.match(text, begin.end())) is None:
        return None
    total, parts, ended = _times(text, nranks.end(), _INIT_TOTAL, _INIT_PART)
    whole = ended and all(name in parts for name in INIT_PARTS)
    return InitTimings(
        origin, begin["function"], int(begin["rank"]), int(nranks[1]), total, parts, whole
    )


def _bootstrap_timings(origin: Origin, text: str) -> BootstrapTimings | None:
    begin = _BOOTSTRAP.match(text)
    if begin is None:
        return None
    total, parts, ended = _times(text, begin.end(), _BOOTSTRAP_TOTAL, _BOOTSTRAP_PART)
    whole = ended and all(name in parts for name in BOOTSTRAP_PARTS)
    return BootstrapTimings(origin, total, parts, whole)


def _times(
    text: str, start: int, total_form: re.Pattern[str], part_form: re.Pattern[str]
) -> tuple[float | None, dict[str, float], bool]:
    """The total, the parts that stand whole, and whether the closing parenthesis was reached."""
    total = total_form.match(text, start)
    if total is None:
        return None, {}, False
    parts: dict[str, float] = {}
    at = total.end()
    while (part := part_form.match(text, at)) is not None:
        if part[1] in parts:
            break  # nothing stands twice: this is another line's
        parts[part[1]] = float(part[2])
        if part[3] == ")":
            return float(total[1]), parts, True
        at = part.end()
    return float(total[1]), parts, False


def _head_of(record: TimedLine, with_total: bool) -> TimedLine:
    """What stands in a line's head: whose it is, and its total if it was whole up to there."""
    if isinstance(record, InitTimings | BootstrapTimings):
        total = record.total if with_total else None
        return replace(record, total=total, parts={}, whole=False)
    return record


def _agrees(record: TimedLine, rounding_s: float) -> bool:
    """Init: the parts add up to the total. Bootstrap: they are within it, and may leave a gap."""
    if isinstance(record, InitTimings) and record.total is not None:
        return abs(record.total - sum(record.parts.values())) <= rounding_s + 1e-9
    if isinstance(record, BootstrapTimings) and record.total is not None:
        return sum(record.parts.values()) - record.total <= BOOTSTRAP_ROUNDING_S
    return True
