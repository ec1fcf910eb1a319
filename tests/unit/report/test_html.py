"""The page about what a directory holds: which sections there are, that text stays text, that every
chart is one that plotly takes, and what is refused.
"""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from emucoll.errors import UsageError
from harness.profiling.spec import ProfileSpec
from harness.report.html.page import write_report
from harness.results.codec import to_json
from harness.results.profile import Finding, Growing, Link, ProfileResult
from harness.results.recording import Recording, packed_recording
from harness.results.samples import Sampled, Samples, save_samples
from harness.results.schema import RunResult, RunWarning, failure
from harness.results.storage import RECORDING_FILE, save
from tests.unit.report.results import failed_run, phase, whole_run

NASTY = "</script><script>alert(1)</script><b>&amp;\x00\udcff var(--text)"


def run_in(directory: Path, result: RunResult, recorded: bool = True) -> Path:
    """A directory as `emucoll run --out` leaves it."""
    save(result, {}, directory)
    if recorded:
        names = ["bootstrap", "bootstrap.ring", NASTY.replace("\udcff", "").replace("\0", "")]
        count = 50
        recording = Recording(
            names,
            np.repeat(np.arange(count, dtype=np.int32), 3),
            np.tile(np.array([1, 0, 2], np.uint16), count),
            np.full(3 * count, -1, np.int32),
            np.tile([0.5, 0.0, 2.0], count) + 0.01 * np.repeat(np.arange(count), 3),
            np.tile([1.5, 2.0, 3.0], count) + 0.01 * np.repeat(np.arange(count), 3),
            {
                "store": {
                    "t": np.array([0.0, 0.1, 0.1, 0.3]),
                    "cpu_s": np.array([0.0, 0.05, 0.05, 0.2]),
                    "requests": np.array([0.0, 10.0, 10.0, 20.0]),
                    "accept_queue": np.array([0.0, 4.0, 3.0, 0.0]),
                },
                "worker 0": {"t": np.array([0.0, 0.2]), "formed": np.array([0.0, 30.0])},
                "worker 1": {"t": np.array([0.1, 0.3]), "formed": np.array([0.0, 20.0])},
            },
        )
        (directory / RECORDING_FILE).write_bytes(packed_recording(recording))
    return directory


def growing(entity: str, phase: str, law: str, exponent: float, **more: Any) -> Growing:
    sizes = [16, 32, 64, 128, 256]
    told = {
        "entity": entity,
        "phase": phase,
        "resource": "cpu",
        "kind": "measured",
        "unit": "s",
        "sizes": sizes,
        "values": [1e-4 * n**exponent for n in sizes],
        "law": law,
        "exponent": exponent,
        "low": exponent - 0.1,
        "high": exponent + 0.1,
        "at_target": 1e-4 * 2048.0**exponent,
    }
    return Growing(**{**told, **more})


def profile_in(directory: Path, **changes: Any) -> Path:
    """A directory as `emucoll profile --out` leaves it, with samples."""
    finding = Finding(
        entity="rank",
        phase="bootstrap.delay",
        resource="wait",
        law="n",
        exponent=1.0,
        low=0.9,
        high=1.1,
        share_at_target=0.6,
        at_target=2.0,
        kind="simulated",
        text=f"the stagger {NASTY}",
    )
    played = {"kind": "simulated", "resource": "wait", "simulated_at_target": True}
    result = ProfileResult(
        kind="measured",
        spec=ProfileSpec(n=(16, 32, 64, 128, 256), target=2048, plan="nccl-2.22.3"),
        ok=True,
        verdict=finding,
        findings=[finding],
        figures=[
            growing("rank", "bootstrap.delay", "n", 1.0, **played),
            growing("root", "serve", "n²", 2.0),
            growing("rank", "all", "constant", 0.0, resource="memory", unit="B"),
            growing("rank", "", "n²", 2.0, function="hot (mine.py:3)"),
        ],
        critical_path=[
            Link(who="rank 9", phase="bootstrap.delay", what="sleep", from_s=0.0, until_s=2.0),
            Link(who="root 0", phase="serve", what=NASTY, from_s=2.0, until_s=2.5),
        ],
        total_at_target_s=2.5,
        cluster="a cluster",
        warnings=[RunWarning(code="projected", text="…")],
    )
    directory.mkdir(exist_ok=True)
    changed = msgspec.structs.replace(result, **changes)
    (directory / "result.json").write_bytes(to_json(changed))
    stacks = [["main (mine.py:1)", "hot (mine.py:3)"], ["main (mine.py:1)", NASTY]]
    sampled = [
        Sampled(role=role, n=n, bring_ups=2, every_s=0.01, stacks=stacks, counts=[n, 500])
        for role in ("rank", "root")
        for n in (128, 256)
    ]
    save_samples(msgspec.convert(_plain(sampled), Samples), str(directory))
    return directory


def _plain(sampled: list[Sampled]) -> dict[str, Any]:
    """What a file can hold of them."""
    text = json.dumps([msgspec.to_builtins(each) for each in sampled])
    plain = json.loads(text.replace("\\udcff", "?"))
    return {"schema": "emucoll.samples/1", "sampled": plain}


class Read(HTMLParser):
    """What a browser would make of the page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.scripts: list[str] = []
        self.figures: dict[str, Any] = {}
        self.loads: list[str] = []
        self.ids: list[str] = []
        self._of: str | None = None
        self._in_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = dict(attrs)
        self._in_script = tag == "script"
        self._of = told.get("data-of")
        if "id" in told:
            self.ids.append(str(told["id"]))
        for name in ("src", "href"):
            link = told.get(name) or "#"
            if not link.startswith(("#", "data:")):
                self.loads.append(link)

    def handle_endtag(self, tag: str) -> None:
        if tag == "script":
            self._in_script, self._of = False, None

    def handle_data(self, data: str) -> None:
        if self._of is not None:
            self.figures[self._of.removeprefix("chart-")] = json.loads(data)
        elif self._in_script:
            self.scripts.append(data)
        else:
            self.words.append(data)


def read(directory: Path) -> Read:
    from plotly.offline import get_plotlyjs

    text = (directory / "report.html").read_text(encoding="utf-8")
    assert text.count(get_plotlyjs()) == 1
    return Read(text.replace(get_plotlyjs(), "plotly"))  # 5 MB that are not ours to read


def nasty_run() -> RunResult:
    """A run in which every text is one that markup could come from."""
    return msgspec.structs.replace(
        failed_run(),
        phases=[phase(NASTY, 1.0), phase("b", 0.5, within=NASTY)],
        warnings=[RunWarning(code=NASTY, text=NASTY)],
        error=msgspec.structs.replace(
            failed_run().error, what=NASTY, evidence=NASTY, cause=NASTY, next=NASTY, phase=NASTY
        ),
    )


@pytest.mark.parametrize("of", ["run", "profile"])
def test_every_section_is_there(tmp_path: Path, of: str) -> None:
    if of == "run":
        result = write_report(str(run_in(tmp_path, whole_run())))
        shown = ["verdict", "time", "ranks", "path", "servers", "counts", "environment"]
        missing = {"flames"}
        assert result.beside == []
    else:
        result = write_report(str(profile_in(tmp_path)))
        shown = ["verdict", "time", "flames", "path", "environment"]
        missing = {"ranks", "servers", "counts"}
        names = {Path(file).name for file in result.beside}
        assert names == {
            *("rank.svg", "rank.speedscope.json", "root.svg", "root.speedscope.json"),
        }
    assert result.sections == shown
    assert {each.what for each in result.missing} == missing
    page = read(tmp_path)
    assert [each for each in page.ids if not each.startswith("chart-")] == [*shown, "missing"]
    assert len(page.ids) == len(set(page.ids)), "an id stands there twice"
    assert result.file == str(tmp_path / "report.html")
    assert result.bytes == (tmp_path / "report.html").stat().st_size < 6_000_000
    assert page.loads == []


@pytest.mark.parametrize("of", ["run", "failed", "profile"])
def test_text_stays_text(tmp_path: Path, of: str) -> None:
    if of == "profile":
        write_report(str(profile_in(tmp_path)))
    else:
        is_failed = of == "failed"
        result = nasty_run() if is_failed else whole_run()
        write_report(str(run_in(tmp_path, result, recorded=not is_failed)))
    page = read(tmp_path)
    assert len(page.scripts) == 2, "plotly and ours"
    assert not [each for each in page.scripts if each.startswith("alert")]
    assert "<script>alert(1)</script>" in "".join(page.words) or of == "run"
    for name, figure in page.figures.items():
        assert "<script" not in json.dumps(figure), f"{name} would take it for markup"


@pytest.mark.parametrize("of", ["run", "profile"])
def test_plotly_takes_every_chart(tmp_path: Path, of: str) -> None:
    from plotly.graph_objects import Figure

    write_report(str(run_in(tmp_path, whole_run()) if of == "run" else profile_in(tmp_path)))
    figures = read(tmp_path).figures
    assert figures.keys() >= (
        {"phases", "heat", "lanes", "path", "server-cpu", "accept-queue", "progress"}
        if of == "run"
        else {"stacked", "growth-seconds", "growth-bytes", "scaling-rank", "flame-root", "path"}
    )
    for name, figure in figures.items():
        assert figure["data"], name
        # A colour of ours is a variable's name, which the page looks up.
        text = re.sub(r"var\(--[\w-]+\)", "#123456", json.dumps(figure))
        plain = json.loads(text)
        Figure(data=plain["data"], layout=plain["layout"])


def test_rates_and_sums_are_those_of_the_samples(tmp_path: Path) -> None:
    write_report(str(run_in(tmp_path, whole_run())))
    figures = read(tmp_path).figures
    [cpu] = figures["server-cpu"]["data"]
    assert cpu["x"] == [0.0, 0.1, 0.1]
    assert cpu["y"] == pytest.approx([50, 75, 75])
    [formed] = figures["progress"]["data"]
    assert (formed["x"], formed["y"]) == ([0.0, 0.1, 0.2, 0.3, 0.3], [0, 0, 30, 50, 50])


def test_a_function_is_as_wide_as_its_law_says(tmp_path: Path) -> None:
    write_report(str(profile_in(tmp_path)))
    [icicle] = read(tmp_path).figures["scaling-rank"]["data"]
    by_name = dict(zip(icicle["labels"], icicle["values"], strict=True))
    # 256 samples of 10 ms in 2 bring-ups of 256 ranks, grown with the square from 256 to 2,048
    assert by_name["hot (mine.py:3)"] == pytest.approx(256 * 0.01 / 2 / 256 * 64)
    [other] = [value for name, value in by_name.items() if "script" in name]
    assert other == pytest.approx(500 * 0.01 / 2 / 256)
    # Of the root's functions no law is known: there is nothing to carry.
    assert "scaling-root" not in read(tmp_path).figures
    assert "root: no law is known of any of its functions." in read(tmp_path).words


def test_a_failed_run_is_reported_as_far_as_it_came(tmp_path: Path) -> None:
    result = write_report(str(run_in(tmp_path, failed_run(), recorded=False)))
    assert result.ok
    assert result.sections == ["verdict", "environment"]
    text = " ".join(read(tmp_path).words)
    for told in ("deadline of 10 s reached", "rank 7 never started", "run again without"):
        assert told in text
    assert all(each.next for each in result.missing)


def test_what_was_refused_before_it_ran_is_reported(tmp_path: Path) -> None:
    save(failure("nothing ran", next="something else"), {}, tmp_path)
    assert write_report(str(tmp_path)).sections == ["verdict", "environment"]
    assert "nothing ran" in " ".join(read(tmp_path).words)


def test_a_profile_that_failed_is_reported(tmp_path: Path) -> None:
    error = failure("no").error
    profile_in(
        tmp_path, verdict=None, findings=[], figures=[], critical_path=[], ok=False, error=error
    )
    result = write_report(str(tmp_path))
    assert result.sections == ["verdict", "flames", "environment"]


def test_the_page_may_lie_elsewhere(tmp_path: Path) -> None:
    out = tmp_path / "deep" / "page.html"
    result = write_report(str(run_in(tmp_path / "run", whole_run())), str(out))
    assert result.file == str(out)
    assert out.stat().st_size == result.bytes
    assert not (tmp_path / "run" / "report.html").exists()


@pytest.mark.parametrize(
    ("files", "says"),
    [
        (None, "is not there: emucoll run"),
        ({}, "has no result.json (it is empty): emucoll run"),
        ({"ranks.npz": b""}, "has no result.json (it holds ranks.npz): emucoll run"),
        ({"result.json": b"{"}, "is cut or is no result of emucoll"),
        ({"result.json": b"[1]"}, "is cut or is no result of emucoll"),
        ({"result.json": b"\xff"}, "is cut or is no result of emucoll"),
        ({"result.json": b'{"schema": "emucoll.run/0"}'}, "holds emucoll.run/0: expected"),
        ({"result.json": b'{"schema": "x\\u001b"}'}, "holds x\\x1b: expected emucoll.run/1 or"),
        ({"result.json": b'{"schema": "emucoll.run/1"}'}, "lacks what this version of emucoll"),
        ({"result.json": b'{"schema": "emucoll.ett/1"}'}, "a picture of its own: DIR/ett.html"),
        ({"result.json": b'{"schema": "emucoll.project/1"}'}, "DIR/projection.html"),
    ],
)
def test_what_is_refused(tmp_path: Path, files: dict[str, bytes] | None, says: str) -> None:
    directory = tmp_path / "d"
    if files is not None:
        directory.mkdir()
        for name, data in files.items():
            (directory / name).write_bytes(data)
    with pytest.raises(UsageError) as refused:
        write_report(str(directory))
    assert says.replace("DIR", str(directory)) in str(refused.value)
    assert not (directory / "report.html").exists()


def test_a_file_is_no_directory(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(UsageError, match="is no directory"):
        write_report(str(tmp_path / "f"))


@pytest.mark.parametrize("name", ["recording.npz", "samples.json"])
@pytest.mark.parametrize("data", [b"", b"PK\x03\x04 cut", b'{"schema": "emucoll.samples/1"'])
def test_what_is_damaged_is_refused_with_what_makes_it(
    tmp_path: Path, name: str, data: bytes
) -> None:
    profile_in(tmp_path)
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UsageError, match=f"{name}.*\n.*(--out|remove)"):
        write_report(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("rank", np.zeros(7, np.int32)),
        ("rank", np.full(150, -1, np.int32)),
        ("rank", np.full(150, 98304, np.int32)),
        ("phase", np.full(150, 3, np.uint16)),
        ("end", np.full(150, np.nan)),
    ],
)
def test_arrays_that_do_not_belong_together_are_damage(
    tmp_path: Path, name: str, values: np.ndarray[Any, Any]
) -> None:
    run_in(tmp_path, whole_run())
    with (tmp_path / "recording.npz").open("rb") as file, np.load(file) as packed:
        arrays = {name: packed[name] for name in packed.files}
    arrays[name] = values
    np.savez(tmp_path / "recording.npz", **arrays)
    with pytest.raises(UsageError, match=r"recording\.npz"):
        write_report(str(tmp_path))
