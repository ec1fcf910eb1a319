"""`emucoll calibrate`: what it measures, writes and refuses, and how it ends early."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import click
import msgspec
import pytest

from emucoll.errors import UsageError
from harness.cli.calibrate import calibrate as command
from harness.engine import calibrate as engine
from harness.engine.calibrate import RunFailed, Sizes, calibrate, specs_of
from harness.engine.costs import COSTS
from harness.hosts import find_host
from harness.report.calibrate import render_calibrate
from harness.report.progress import Progress
from harness.results.calibration import CalibrateResult, CalibrateSpec
from harness.results.codec import decode, to_json
from harness.results.environment import read_environment
from harness.results.schema import RunResult, failure
from harness.spec import Spec
from tests import measured as known
from tests.cli.command import Commands, Running, send
from tests.cli.test_usage import allow_files

VALUE = {"name", "value", "low", "high", "unit"}
"""CONTRACT.md, emucoll.calibrate/1."""
LIBNCCL = "root.check_in_libnccl"


# -- by the real command


SMALL = Sizes(
    connections=100,
    lockstep=32,
    lockstep_steps=16,
    peers=16,
    large=4,
    cut_through=32,
    cut_through_few_steps=4,
    cut_through_steps=16,
    formation=32,
    loop=256,
)


def test_few_ranks_are_calibrated_too(tmp_path: Path) -> None:
    """For real, in this process."""
    file = tmp_path / "few.toml"
    spec = CalibrateSpec(name="few", repeat=1, out=str(file))
    result = calibrate(spec, Progress(enabled=False), SMALL)
    costs = {each.name: each.value for each in result.values}
    assert set(COSTS) - set(costs) <= {LIBNCCL}
    assert costs["cpu.peer"] > costs["cpu.message"] > costs["loop.ring_check"] > 0
    assert find_host(str(file)).seconds("cpu.message") == costs["cpu.message"]


@pytest.mark.scale
def test_what_is_measured_is_in_the_document_and_in_the_file(
    emucoll: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bounded_scale: bool
) -> None:
    if bounded_scale:
        pytest.skip("half a minute")
    ended = emucoll("calibrate", "--name", "mine", "--repeat", 1, "--json", cwd=tmp_path)
    document = ended.document
    assert (ended.exit_code, document["schema"]) == (0, "emucoll.calibrate/1")
    assert (document["kind"], document["seed"]) == ("measured", 1)
    assert document["spec"] == {"name": "mine", "repeat": 1, "out": None}
    assert document["file"] == "profiles/hosts/mine.toml"
    assert set(ended.warnings) <= {"busy", "no-libnccl"}
    assert "calibrating" in ended.err
    assert "process ids" not in ended.err

    values = {each["name"]: each for each in document["values"]}
    assert set(values) == set(COSTS) - ({LIBNCCL} if "no-libnccl" in ended.warnings else set())
    for each in document["values"]:
        assert each.keys() >= VALUE
        assert 0 <= each["low"] == each["value"] == each["high"]
        assert "median of 1" in each["source"]
    costs = {name: each["value"] for name, each in values.items()}
    assert all(costs[name] > 0 for name in costs.keys() - {"cpu.rank", "cpu.byte"})
    assert costs["cpu.message"] > 100 * costs["cpu.cut_through_byte"]
    assert costs["cpu.cut_through"] > costs["cpu.message"] > costs["loop.ring_check"]
    for name in ("cores.used_forming", "cores.used_gathering"):
        assert 0.02 < costs[name] <= 1

    monkeypatch.chdir(tmp_path)
    host = find_host("mine")
    assert {name: each.value for name, each in host.measured.items()} == costs
    assert host.differs_from(read_environment(document["environment"]["loop"])) is None


def has_process(running: Running, module: bytes) -> bool:
    return any(module in command_line(pid) for pid in running.processes())


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.parametrize("module", [b"harness.control.connections", b"harness.control.worker"])
def test_interrupted(emucoll: Commands, tmp_path: Path, module: bytes) -> None:
    with emucoll.start("calibrate", "--json", "--quiet", cwd=tmp_path) as running:
        running.until(lambda: has_process(running, module))
        send(running.process.pid, signal.SIGINT)
        ended = running.end()
    assert ended.exit_code == 130
    assert ended.document["schema"] == "emucoll.calibrate/1"
    assert ended.error["what"].startswith("interrupted")
    assert "Traceback" not in ended.err
    assert list((tmp_path / "profiles" / "hosts").iterdir()) == []


def test_a_machine_that_is_too_small_is_told_before(emucoll: Commands, tmp_path: Path) -> None:
    ended = emucoll("calibrate", "--json", cwd=tmp_path, preexec_fn=allow_files(70))
    assert ended.exit_code == 2
    assert "512 ranks don't fit this machine" in ended.error["what"]
    assert ended.err == ""


# -- in this process, on a machine of known costs

Play = Callable[[Spec], RunResult]
LOOPS = {name.removeprefix("loop."): 1e-9 for name in COSTS if name.startswith("loop.")}


class Told:
    """In place of a helper."""

    def __init__(self, module: str, *arguments: object) -> None:
        side = {"accept": [["an address"], known.ACCEPT], "connect": [known.CONNECT]}
        self._answers = iter(side.get(str(arguments[0]), [LOOPS]))

    def __enter__(self) -> "Told":
        return self

    def __exit__(self, *_: object) -> None:
        assert next(self._answers, None) is None, "it was not heard to its end"

    def say(self, value: object) -> None:
        assert value == ["an address"]

    def hear(self, _patience_s: float) -> object:
        return next(self._answers)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def play(here: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Play], None]:
    """Runs are what the given function says, on a machine on which nothing else runs."""
    monkeypatch.setattr(engine, "Helper", Told)
    monkeypatch.setattr(engine.Others, "share", lambda _: 0.0)
    monkeypatch.setattr(engine, "find_library", lambda: here)

    def played(answer: Play) -> None:
        monkeypatch.setattr(engine, "run", lambda spec, _: answer(spec))

    played(known.run_of)
    return played


def measured(repeat: int = 1, name: str = "local") -> CalibrateResult:
    sizes = Sizes(connections=20, loop=64)
    return calibrate(CalibrateSpec(name=name, repeat=repeat), Progress(enabled=False), sizes)


def warnings(result: CalibrateResult) -> dict[str, str]:
    return {each.code: each.text for each in result.warnings}


def test_repeats_give_a_median_and_a_range(play: Callable[[Play], None]) -> None:
    """Everything takes 1, 1.2 and 1.05 times as long, in turns."""
    runs: list[Spec] = []
    each = len(specs_of(Sizes()))

    def answer(spec: Spec) -> RunResult:
        runs.append(spec)
        return known.run_of(spec, (1.0, 1.2, 1.05)[(len(runs) - 1) // each])

    play(answer)
    result = measured(repeat=3)
    assert runs == 3 * runs[:each]
    assert all(runs.count(spec) == 3 for spec in runs)
    values = {each.name: each for each in result.values}
    for name, cost in {
        "cpu.message": known.MESSAGE,
        "cpu.cut_through": known.CUT_THROUGH,
        "store.request": known.REQUEST,
        "root.check_in": known.CHECK_IN,
        LIBNCCL: known.CHECK_IN,
    }.items():
        each = values[name]
        assert (each.low, each.value, each.high) == pytest.approx(
            (cost, 1.05 * cost, 1.2 * cost), rel=1e-5
        )
    assert values["cpu.accept"].value == pytest.approx(known.ACCEPT)
    sources = {each.name: each.source for each in result.values}
    assert all("median of 3" in source for source in sources.values())
    assert "-np 512, --steps 512, 28 bytes" in sources["cpu.message"]
    assert "NCCL 2.0, nccl-root" in sources[LIBNCCL]
    assert "20 connections" in sources["cpu.accept"]
    assert "lists of 64" in sources["loop.same_process"]


def test_the_table(play: Callable[[Play], None], capfd: pytest.CaptureFixture[str]) -> None:
    result = measured(name="two", repeat=2)
    assert capfd.readouterr() == ("", "")
    assert [each.name for each in result.values] == list(COSTS)
    text = render_calibrate(result)
    assert max(map(len, text.splitlines())) <= 100
    rows = [line.split() for line in text.splitlines() if not line.startswith("#")]
    assert [row[0] for row in rows] == list(COSTS)
    assert ["cpu.message", "8", "8", "8", "us/message"] in [row[:5] for row in rows]
    assert ["cpu.byte", "0.3", "0.3", "0.3", "ns/byte"] in [row[:5] for row in rows]
    assert "measured 2 times, in turns" in text
    assert text.endswith("# Result: profiles/hosts/two.toml\n")
    assert decode(to_json(result), CalibrateResult) == result
    assert find_host("two").profile.text.endswith("measured by emucoll calibrate, --repeat 2")


def test_a_busy_machine_is_told_and_written_down(
    play: Callable[[Play], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine.Others, "share", lambda _: 0.44)
    text = warnings(measured())["busy"]
    assert "other processes took 44% of the cores' time" in text
    assert f"on a busy machine: {text}" in find_host(None).profile.text

    factors = iter([1.0, 2.0])
    monkeypatch.setattr(engine.Others, "share", lambda _: 0.0)

    def answer(spec: Spec) -> RunResult:
        return known.run_of(spec, next(factors) if spec.formation == "nccl-root" else 1.0)

    monkeypatch.setattr(engine, "find_library", no_library)
    play(answer)
    text = warnings(measured(repeat=2))["busy"]
    assert "repeats lie more than 30% apart: " in text
    assert text.split("apart: ")[1].startswith("root.check_in;")


def no_library() -> Path:
    raise UsageError("there is none: pip install one")


def fails_with_libnccl(spec: Spec) -> RunResult:
    if spec.root == "libnccl":
        return failure("it can't be loaded")
    return known.run_of(spec)


def refuses_libnccl(spec: Spec) -> RunResult:
    if spec.root == "libnccl":
        raise UsageError("it is refused")
    return known.run_of(spec)


@pytest.mark.parametrize(
    ("find", "answer", "why"),
    [
        (no_library, known.run_of, "there is none: pip install one"),
        (lambda: None, fails_with_libnccl, "it can't be loaded"),
        (lambda: None, refuses_libnccl, "it is refused"),
    ],
)
def test_without_a_real_root_its_value_is_left_out(
    play: Callable[[Play], None],
    monkeypatch: pytest.MonkeyPatch,
    find: Callable[[], Path],
    answer: Play,
    why: str,
) -> None:
    play(answer)
    monkeypatch.setattr(engine, "find_library", find)
    result = measured(repeat=2)
    assert warnings(result)["no-libnccl"] == f"{LIBNCCL} is left out: {why}"
    assert [each.name for each in result.values] == [name for name in COSTS if name != LIBNCCL]
    assert LIBNCCL not in find_host(None).measured


def test_a_run_that_fails_ends_it_and_what_was_there_stays(
    play: Callable[[Play], None], here: Path
) -> None:
    measured()
    before = (here / "profiles/hosts/local.toml").read_bytes()
    lost = failure("the store was lost", exit_code=3)
    for which in ("ring", "libnccl"):
        failed = lost if which == "ring" else msgspec.structs.replace(lost, exit_code=130)
        play(
            lambda spec, which=which, failed=failed: (
                failed if which in (spec.allgather, spec.root) else known.run_of(spec)
            )
        )
        with pytest.raises(RunFailed) as raised:
            measured()
        assert raised.value.result is failed
    assert (here / "profiles/hosts/local.toml").read_bytes() == before
    assert os.listdir(here / "profiles/hosts") == ["local.toml"]


# -- refusals


def refusal(*flags: object) -> str:
    try:
        options = command.make_context("calibrate", [*map(str, flags)]).params
        spec = CalibrateSpec(**{name: options[name] for name in ("name", "repeat", "out")})
        calibrate(spec, Progress(enabled=False))
    except click.ClickException as error:
        return error.format_message()
    except UsageError as error:
        return str(error)
    raise AssertionError(f"{flags} are taken")


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (("--repeat", "0"), "--repeat is 0: expected at least 1"),
        (("--repeat", "-3"), "--repeat is -3: expected at least 1"),
        (("--repeat", "1001"), "--repeat is 1001: expected at most 1000"),
        (("--repeat", "2.5"), "'2.5' is not a valid integer"),
        (("--name", ""), "--name '': expected letters, digits"),
        (("--name", "a/b"), "--name 'a/b': expected letters, digits"),
        (("--name", "../up"), "--out FILE writes to any place"),
        (("--name", ".hidden"), "a letter or digit first"),
        (("--name", "a\0b"), "--name 'a\\x00b': expected letters"),
        (("--name", "x" * 101), "expected letters, digits"),
        (("--name", "mine.toml"), "--name 'mine.toml': leave .toml out"),
        (("--out", ""), "--out '': expected a file's path"),
        (("--out", "a\0b"), "--out 'a\\x00b': expected a file's path, in UTF-8"),
        (("--out", "a\udcff"), "expected a file's path, in UTF-8"),
        (("--out", "."), "cannot write '.': it is a folder; choose another place with --out"),
        (("--out", "folder"), "cannot write 'folder': it is a folder"),
        (("--out", "/dev/null"), "cannot write '/dev/null': it is no file"),
        (("--out", "file/x.toml"), "cannot write 'file/x.toml': "),
        (("--out", "/proc/x.toml"), "cannot write '/proc/x.toml': "),
        (("--out", "/proc/none/x.toml"), "cannot write '/proc/none/x.toml': "),
    ],
)
def test_what_is_refused_is_refused_before_anything_is_measured(
    here: Path, monkeypatch: pytest.MonkeyPatch, flags: tuple[object, ...], says: str
) -> None:
    monkeypatch.setattr(engine, "Others", None)  # with it measuring begins
    (here / "file").write_text("kept")
    (here / "folder").mkdir()
    assert says in refusal(*flags)
    assert sorted(os.listdir(here)) == ["file", "folder"]


def test_a_refusal_is_a_document(emucoll: Commands) -> None:
    ended = emucoll("calibrate", "--repeat", "0", "--json")
    assert ended.exit_code == 2
    assert ended.document["schema"] == "emucoll.calibrate/1"
    assert ended.document["spec"]["repeat"] == 0
    assert emucoll("calibrate", "--reapet", "1", "--json").document["spec"] is None
