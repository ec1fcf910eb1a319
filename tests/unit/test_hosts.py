"""Hosts: files that `emucoll calibrate` wrote, found, read, and held against this machine."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.errors import UsageError
from harness.hosts import LAYOUT, Host, HostMachine, as_toml, find_host, machine_of, read_host
from harness.profile import Value
from harness.results.environment import Environment
from harness.units import format_time, parse_time

MACHINE = HostMachine("A CPU", 2, "Linux 6.1", "3.11.7", "uvloop", "0.1.0")
HERE = Environment(
    version="0.1.0",
    python="3.11.7",
    kernel="Linux 6.1",
    cores=2,
    memory_bytes=None,
    nofile=None,
    loop="uvloop",
    cpu_model="A CPU",
)


def measured() -> dict[str, Value]:
    """A value for everything that a calibration may measure."""
    names = [name for name in LAYOUT if not name.startswith("machine.")]
    return {
        name: Value(0.5 / (index + 1), 0.25 / (index + 1), 0.75, source="a run", why="a run")
        for index, name in enumerate(names)
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with an empty place for hosts."""
    monkeypatch.chdir(tmp_path)
    hosts = tmp_path / "profiles" / "hosts"
    hosts.mkdir(parents=True)
    return hosts


def test_what_was_written_is_found(folder: Path) -> None:
    (folder / "local.toml").write_text(as_toml("the first", MACHINE, measured()))
    (folder / "other.toml").write_text(as_toml("another", MACHINE, measured()))
    host = find_host(None)
    assert host == find_host("local")
    assert host.profile.text == "the first"
    assert find_host("other").profile.text == "another"
    assert host.machine == MACHINE
    assert list(host.measured) == list(measured())
    assert host.seconds("cpu.connect") == 0.5
    for name, value in measured().items():
        assert host.value(name)[:3] == pytest.approx(value[:3], rel=1e-5)
        assert host.value(name).source == "a run"


def test_a_file_anywhere_by_its_path(folder: Path, tmp_path: Path) -> None:
    for name in ("elsewhere.toml", "elsewhere"):
        (tmp_path / name).write_text(as_toml(name, MACHINE, measured()))
        assert find_host(name).profile.text == name
        assert find_host(str(tmp_path / name)).profile.text == name


@pytest.mark.parametrize(
    ("name", "says"),
    [
        (None, "this machine is not calibrated: there is no profiles/hosts/local.toml"),
        (None, "`emucoll calibrate` measures it"),
        ("local", "`emucoll calibrate` makes one"),
        ("lokal", "did you mean 'local-2'?"),
        ("mine", "`emucoll calibrate --name mine` makes one"),
        ("there/mine.toml", "`emucoll calibrate --out there/mine.toml` makes one"),
        ("mi\0ne", "there is no host"),
        ("", "there is no host"),
        ("profiles", "there is no host"),
    ],
)
def test_what_is_missing_names_the_command_that_makes_it(
    folder: Path, name: str | None, says: str
) -> None:
    (folder / "local-2.toml").touch()
    with pytest.raises(UsageError) as raised:
        find_host(name)
    assert says in str(raised.value)


def test_no_folder_is_no_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match="emucoll calibrate"):
        find_host(None)


def test_a_real_root_may_be_missing(folder: Path) -> None:
    without = {name: value for name, value in measured().items() if "libnccl" not in name}
    (folder / "local.toml").write_text(as_toml("x", MACHINE._replace(cpu_model=None), without))
    host = find_host(None)
    assert host.machine.cpu_model is None
    assert "root.check_in_libnccl" not in host.measured
    with pytest.raises(UsageError, match=r"root.check_in_libnccl was not measured; `emucoll cal"):
        host.seconds("root.check_in_libnccl")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({}, None),
        ({"python": "3.13.0", "version": "9", "memory_bytes": 1, "load_average": 5.0}, None),
        ({"cpu_model": "B CPU"}, "another machine: CPU A CPU there, B CPU here"),
        ({"cpu_model": None}, "CPU A CPU there, unknown here"),
        ({"cores": 64}, "cores 2 there, 64 here"),
        ({"kernel": "Linux 5.4"}, "kernel Linux 6.1 there, Linux 5.4 here"),
        ({"loop": "asyncio", "cores": 1}, "cores 2 there, 1 here; event loop uvloop there, asyn"),
    ],
)
def test_another_machine(folder: Path, change: dict[str, object], says: str | None) -> None:
    (folder / "local.toml").write_text(as_toml("x", machine_of(HERE), measured()))
    here = {name: getattr(HERE, name) for name in HERE.__struct_fields__} | change
    told = find_host(None).differs_from(Environment(**here))
    assert (told is None) if says is None else (says in str(told))


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("connect =", "conect =", "unknown key 'cpu.conect': did you mean 'cpu.connect'"),
        ('connect = { value = "500ms"', "connect = { value = 0.5", "the unit is missing"),
        ('connect = { value = "500ms"', 'connect = { value = "5"', "the unit is missing"),
        ('connect = { value = "500ms"', 'connect = { value = "5s"', "expected low ≤ value ≤ high"),
        ("cores = { value = 2", "cores = { value = 0", "machine.cores.value is 0"),
        ('value = "uvloop"', 'value = " "', "machine.loop: expected value, words"),
        ('value = "uvloop"', "value = 3", "machine.loop: expected value, words"),
        ('value = "uvloop"', 'value = "uvloop", low = "a"', "machine.loop: expected value, words"),
        ('"uvloop", source = ', '"uvloop", sauce = ', "machine.loop: unknown part 'sauce'"),
        ("[store]", "[shop]", "unknown key 'shop.request'"),
        ("[store]", "[store", "it is no TOML"),
    ],
)
def test_what_is_wrong_names_file_and_key(folder: Path, old: str, new: str, says: str) -> None:
    text = as_toml("x", MACHINE, measured())
    assert old in text
    (folder / "local.toml").write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as raised:
        find_host(None)
    assert says in str(raised.value)
    assert str(raised.value).startswith("local: ")


def test_what_lacks_a_value_says_which(folder: Path) -> None:
    for name in LAYOUT.keys() - {"machine.cpu_model", "root.check_in_libnccl"}:
        if name.startswith("machine."):
            continue
        values = {key: value for key, value in measured().items() if key != name}
        (folder / "local.toml").write_text(as_toml("x", MACHINE, values))
        with pytest.raises(UsageError, match=f"local: {name} is missing"):
            find_host(None)


@given(
    st.lists(st.floats(0.0, 1e4), min_size=3, max_size=3).map(sorted),
    st.text(min_size=1).filter(str.strip),
)
def test_any_numbers_and_any_name_of_a_cpu_come_back(
    tmp_path_factory: pytest.TempPathFactory, numbers: list[float], model: str
) -> None:
    low, value, high = numbers
    values = {
        name: Value(min(value, 1.0), min(low, 1.0), min(high, 1.0), source=model, why=model)
        if LAYOUT[name] == "share"
        else Value(value, low, high, source=model, why=model)
        for name in measured()
    }
    file = tmp_path_factory.mktemp("hosts") / "any.toml"
    file.write_text(as_toml(model, MACHINE._replace(cpu_model=model), values), encoding="utf-8")
    host = read_host(str(file), "any")
    assert isinstance(host, Host)
    assert host.value("cpu.message")[:3] == pytest.approx((value, low, high), rel=1e-5)
    assert host.machine.cpu_model is not None
    assert len(host.machine.cpu_model) == len(model)


@given(st.floats(0.0, 1e9))
def test_a_time_as_text_is_read_as_that_time(seconds: float) -> None:
    text = format_time(seconds)
    assert text[-1] == "s"
    assert parse_time(text) == pytest.approx(seconds, rel=1e-5)
    assert format_time(parse_time(text)) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.0, "0ns"),
        (2.8731e-10, "0.28731ns"),
        (12.3456789e-6, "12.3457us"),
        (0.0025, "2.5ms"),
        (90.0, "90s"),
    ],
)
def test_times_have_the_unit_that_suits_them(seconds: float, text: str) -> None:
    assert format_time(seconds) == text
