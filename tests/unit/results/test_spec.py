import subprocess
import sys

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.errors import UsageError
from harness.spec import (
    Injection,
    RankFault,
    ServerKill,
    Spec,
    WorkerKill,
    check,
    format_injection,
    parse_injection,
)

INJECTIONS: list[tuple[str, Injection]] = [
    ("rank=7:never-start", RankFault(rank=7, what="never-start")),
    ("rank=7:raise", RankFault(rank=7, what="raise")),
    ("rank=7:slow=10", RankFault(rank=7, what="slow", factor=10.0)),
    ("rank=0:slow=1.5", RankFault(rank=0, what="slow", factor=1.5)),
    ("rank=7:corrupt=header", RankFault(rank=7, what="corrupt", where="header")),
    ("rank=7:corrupt=first", RankFault(rank=7, what="corrupt", where="first")),
    ("rank=7:corrupt=last", RankFault(rank=7, what="corrupt", where="last")),
    ("rank=98303:corrupt=forwarded", RankFault(rank=98303, what="corrupt", where="forwarded")),
    ("root:kill", ServerKill(server="root")),
    ("store:kill", ServerKill(server="store")),
    ("worker=1:kill", WorkerKill(worker=1)),
]


@pytest.mark.parametrize(("text", "injection"), INJECTIONS)
def test_each_text_of_the_contract_is_an_injection_and_is_written_back(
    text: str, injection: Injection
) -> None:
    assert parse_injection(text) == injection
    assert format_injection(injection) == text


@given(
    st.builds(
        lambda rank, factor: RankFault(rank=rank, what="slow", factor=round(factor, 6)),
        st.integers(0, 10**8),
        st.floats(1.01, 10**6),
    )
)
def test_any_factor_survives_being_written(injection: RankFault) -> None:
    assert parse_injection(format_injection(injection)) == injection


@pytest.mark.parametrize(
    ("text", "near"),
    [
        ("rank=7:nevr-start", "rank=7:never-start"),
        ("rank=12:rise", "rank=12:raise"),
        ("rank=3:slow", "rank=3:slow=10"),
        ("rank=3:corrupt=frist", "rank=3:corrupt=first"),
        ("rank=3:corrupt", "rank=3:corrupt=last"),
        ("rank:7:raise", "rank=7:raise"),
        ("root:raise", "root:kill"),
        ("root=0:kill", "root:kill"),
        ("worker:kill", "worker=7:kill"),
        ("worker=-1:kill", "worker=1:kill"),
        ("stor:kill", "store:kill"),
    ],
)
def test_a_wrong_text_names_the_nearest_right_one(text: str, near: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_injection(text)
    assert f"did you mean {near!r}?" in str(caught.value)
    assert "rank=R:slow=FACTOR" in str(caught.value)


@pytest.mark.parametrize("text", ["", "7", "\n", "rank=٣:raise", "rank=7:raise ", "x" * 5000])
def test_rubbish_is_refused_with_something_that_would_do(text: str) -> None:
    with pytest.raises(UsageError, match="did you mean"):
        parse_injection(text)


@pytest.mark.parametrize("factor", ["0", "1", "0.5", "1000001", "999999999"])
def test_a_factor_that_slows_nothing_or_everything_is_refused(factor: str) -> None:
    with pytest.raises(UsageError, match="above 1"):
        parse_injection(f"rank=7:slow={factor}")


def test_a_spec_travels_whole() -> None:
    spec = Spec(nranks=8, inject=tuple(injection for _, injection in INJECTIONS), steps=3, out="o")
    for codec in (msgspec.json, msgspec.msgpack):
        assert codec.decode(codec.encode(spec), type=Spec) == spec


def test_a_spec_is_a_value() -> None:
    assert hash(Spec(nranks=8)) == hash(Spec(nranks=8))
    with pytest.raises(AttributeError):
        Spec(nranks=8).nranks = 9  # type: ignore[misc]


@pytest.mark.parametrize(
    "good",
    [
        {},
        {"nranks": 1},
        {"record_bytes": 0},
        {"workers": 8, "start_window": 3, "steps": 1, "seed": 0},
        {"root": "libnccl"},
        {"root": "libnccl:lib/libnccl.so.2"},
        {"inject": (RankFault(rank=7, what="raise"), WorkerKill(worker=7))},
        {"out": "Ergebnis/ä"},
    ],
)
def test_what_could_run_passes(good: dict[str, object]) -> None:
    check(Spec(**{"nranks": 8, **good}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("bad", "text"),
    [
        ({"nranks": 0}, "-np is 0: expected at least 1"),
        ({"nranks": -5}, "-np is -5: expected at least 1"),
        ({"nranks": 10**30}, "expected at most 2147483647"),
        ({"record_bytes": -1}, "--record-bytes is -1: expected at least 0"),
        ({"workers": 9}, "--workers is 9: expected at most 8"),
        ({"workers": 0}, "--workers is 0: expected at least 1"),
        ({"ranks_per_host": 0}, "--ranks-per-host is 0"),
        ({"start_window": 2}, "--start-window is 2: expected at least 3"),
        ({"steps": 0}, "--steps is 0"),
        ({"seed": -1}, "--seed is -1"),
        ({"seed": 2**63}, "--seed is"),
        ({"deadline_s": 0.0}, "--deadline is 0 s"),
        ({"deadline_s": float("inf")}, "--deadline is inf s"),
        ({"deadline_s": float("nan")}, "--deadline is nan s"),
        ({"uid_stagger_rate": -1.0}, "uid-stagger-rate is -1"),
        ({"uid_stagger_threshold": -1}, "--uid-stagger-threshold is -1"),
        ({"root": "libncc"}, "expected builtin, libnccl, libnccl:PATH or HOST:PORT"),
        ({"root": "libnccl:"}, "expected builtin, libnccl, libnccl:PATH or HOST:PORT"),
        ({"store": "toch"}, "--store 'toch': expected builtin, torch or HOST:PORT"),
        ({"unique_id": "id"}, "--unique-id: it is of a root that runs already"),
        ({"channels": 2}, "--channels: they are a plan's"),
        ({"channels": 65, "plan": "ncclx"}, "--channels is 65: expected at most 64"),
        ({"restarts": -1}, "--restarts is -1: expected at least 0"),
        ({"group_init": "new"}, "--groups and --group-init belong together"),
        ({"external_ranks": (3, 8)}, "--external-ranks: there is no rank 8, expected 0 to 7"),
        ({"external_ranks": tuple(range(8))}, "all 8 ranks are external"),
        ({"external_ranks": (3,), "restarts": 1}, "--external-ranks and --restarts"),
        (
            {"external_ranks": (3,), "inject": (RankFault(rank=3, what="raise"),)},
            "rank 3 is external, and not ours to harm",
        ),
        ({"out": "\udcff"}, "--out '\\udcff': expected a path in UTF-8"),
        ({"out": "a\0b"}, "--out 'a\\x00b'"),
        ({"root": "libnccl:\udcff"}, "--root"),
        ({"inject": (RankFault(rank=8, what="raise"),)}, "no rank 8, expected 0 to 7"),
        ({"inject": (WorkerKill(worker=2),), "workers": 2}, "no worker 2, expected 0 to 1"),
    ],
)
def test_what_cannot_be_is_refused_in_the_words_of_the_command_line(
    bad: dict[str, object], text: str
) -> None:
    with pytest.raises(UsageError) as caught:
        check(Spec(**{"nranks": 8, **bad}))  # type: ignore[arg-type]
    assert text in str(caught.value)


def imported_by(module: str) -> set[str]:
    """The top-level packages in a fresh interpreter after importing `module`."""
    code = f"import {module}, sys; print(*sorted({{name.split('.')[0] for name in sys.modules}}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_spec_costs_a_worker_little() -> None:
    third_party = imported_by("harness.spec") - set(sys.stdlib_module_names)
    assert third_party & {"click", "rich", "numpy", "zmq", "psutil", "scipy"} == set()
    assert "msgspec" in third_party


@pytest.mark.parametrize("module", ["schema", "environment", "storage"])
def test_results_load_nothing_that_only_people_look_at(module: str) -> None:
    assert imported_by(f"harness.results.{module}") & {"click", "rich", "scipy", "plotly"} == set()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("rank=1:raise", "rank=1:never-start"),
        ("rank=1:slow=2", "rank=1:slow=3"),
        ("rank=1:corrupt=last", "rank=1:corrupt=last"),
        ("rank=1:never-start", "rank=1:corrupt=first"),
    ],
)
def test_faults_that_contradict_each_other(first: str, second: str) -> None:
    faults = (parse_injection(first), parse_injection(second))
    with pytest.raises(UsageError, match="rank 1 cannot do both"):
        check(Spec(nranks=4, inject=faults))


def test_faults_that_go_together() -> None:
    texts = ("rank=1:corrupt=first", "rank=1:corrupt=last", "rank=1:slow=2", "rank=2:raise")
    check(Spec(nranks=4, inject=tuple(map(parse_injection, texts))))


@pytest.mark.parametrize("bind", ["224.0.0.1", "0.0.0.0", "::", "localhost", ""])
def test_the_controller_listens_at_one_address(bind: str) -> None:
    with pytest.raises(UsageError, match="--bind"):
        check(Spec(nranks=4, bind=bind))


def test_an_empty_output_folder_is_not_this_one() -> None:
    with pytest.raises(UsageError, match="--out is empty"):
        check(Spec(nranks=4, out=""))
