import json
from typing import Any, Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emucoll.errors import UsageError
from harness.results.calibration import CalibratedValue, CalibrateResult
from harness.results.codec import AnyResult, decode, from_json, to_json
from harness.results.environment import Environment
from harness.results.schema import (
    AllGather,
    CompareResult,
    Descriptors,
    DoctorResult,
    EttResult,
    Formation,
    Group,
    LateRank,
    Limit,
    LogCommunicator,
    LogFile,
    LogPhase,
    Memory,
    Name,
    NamesResult,
    Operand,
    Phase,
    Row,
    RunError,
    RunResult,
    RunWarning,
    Waiting,
    Work,
    WorkByRole,
    bandwidth,
    failure,
)
from harness.results.training import EttPoint
from harness.spec import RankFault, ServerKill, Spec, WorkerKill

EVERYWHERE = {"schema", "kind", "spec", "environment", "seed", "ok", "warnings", "error"}
"""CONTRACT.md, "Everywhere"."""

RUN = {
    *EVERYWHERE,
    "nranks",
    "workers",
    "start_window",
    "total_s",
    "mean_total_s",
    "formation",
    "allgathers",
    "wrong",
    "phases",
    "work",
    "memory",
    "descriptors",
    "groups",
    "saturated",
    "trace_hash",
}
PARTS: dict[type[msgspec.Struct], set[str]] = {
    Environment: {"version", "python", "kernel", "cores", "memory_bytes", "nofile", "loop"},
    RunWarning: {"code", "text"},
    RunError: {"what", "evidence", "cause", "next", "rank", "phase", "peer", "worker", "waiting"},
    Waiting: {"rank", "phase", "for"},
    Formation: {"name", "seconds", "ranks_per_s", "roots"},
    AllGather: {
        *("name", "record_bytes", "seconds", "steps", "of_steps", "transfers"),
        *("transfers_per_s", "algbw", "busbw", "wrong"),
    },
    Phase: {"name", "mean_s", "p50_s", "p99_s", "max_s", "cpu_s", "kind", "within"},
    WorkByRole: {"ranks", "root", "store", "controller"},
    Work: {
        *("messages", "bytes", "connections", "retries", "requests", "syscalls"),
        *("cpu_s", "peak_rss_bytes"),
    },
    Memory: {"rss_bytes_per_rank", "peak_rss_bytes", "kernel_socket_bytes"},
    Descriptors: {"held_per_rank", "peak_per_worker"},
    Group: {"kind", "count", "size", "seconds", "connections", "requests", "wrong"},
    Limit: {"name", "have", "need", "because", "remedy"},
    Name: {"name", "text"},
    Row: {"metric", "base", "candidate", "ratio", "verdict"},
    Operand: {"role", "kind", "names", "text"},
    LogFile: {"name", "lines", "nccl_lines", "init_timings", "bootstrap_timings", "torn"},
    LogPhase: {"name", "within", "ranks", "mean_s", "p50_s", "p99_s", "max_s", "share"},
    LogCommunicator: {"nranks", "seen", "unseen", "phases", "late", "findings"},
    LateRank: {"rank", "seen", "late_s", "text"},
    EttPoint: {
        *("n", "plan", "isolation", "ett", "low", "high", "first_order"),
        *("checkpoint_interval_s", "parts"),
    },
    CalibratedValue: {"name", "value", "low", "high", "unit"},
}


def strategy_for(kind: Any) -> st.SearchStrategy[Any]:
    """Values of a msgspec type, as its own inspection describes it."""
    return of_info(msgspec.inspect.type_info(kind))


def of_info(info: msgspec.inspect.Type) -> st.SearchStrategy[Any]:
    inspect = msgspec.inspect
    match info:
        case inspect.StructType():
            fields = {
                msgspec_field.name: of_info(msgspec_field.type) for msgspec_field in info.fields
            }
            return st.builds(info.cls, **fields)
        case inspect.UnionType():
            return st.one_of([of_info(one) for one in info.types])
        case inspect.LiteralType():
            return st.sampled_from(info.values)
        case inspect.ListType():
            return st.lists(of_info(info.item_type), max_size=2)
        case inspect.DictType():
            return st.dictionaries(of_info(info.key_type), of_info(info.value_type), max_size=2)
        case inspect.VarTupleType():
            return st.lists(of_info(info.item_type), max_size=2).map(tuple)
        case inspect.TupleType():
            return st.tuples(*map(of_info, info.item_types))
        case inspect.NoneType():
            return st.none()
        case inspect.BoolType():
            return st.booleans()
        case inspect.IntType():
            return st.integers(-(2**63), 2**63 - 1)
        case inspect.FloatType():
            return st.floats(allow_nan=False, allow_infinity=False)
        case inspect.StrType():
            return st.text(max_size=8)
    raise AssertionError(f"no strategy for {info}")


@given(strategy_for(RunResult))
def test_a_run_comes_back_from_json_as_it_was(result: RunResult) -> None:
    data = to_json(result)
    assert from_json(data) == result
    assert data.endswith(b"}\n")
    assert set(json.loads(data)) >= RUN


OTHERS = (DoctorResult, NamesResult, CompareResult, EttResult, CalibrateResult)


@given(st.one_of(*map(strategy_for, OTHERS)))
def test_the_other_documents_come_back_too(
    result: DoctorResult | NamesResult | CompareResult | EttResult | CalibrateResult,
) -> None:
    assert decode(to_json(result), type(result)) == result  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("result", "schema", "keys"),
    [
        (RunResult(ok=True, exit_code=0), "emucoll.run/1", RUN),
        (DoctorResult(ok=True), "emucoll.doctor/1", {*EVERYWHERE, "fits", "limits", "estimate"}),
        (NamesResult(ok=True), "emucoll.names/1", {*EVERYWHERE, "names"}),
        (CompareResult(ok=True), "emucoll.compare/1", {*EVERYWHERE, "rows", "communicators"}),
        (EttResult(ok=True), "emucoll.ett/1", {*EVERYWHERE, "inputs", "points"}),
        (CalibrateResult(ok=True), "emucoll.calibrate/1", {*EVERYWHERE, "file", "values"}),
    ],
)
def test_a_key_without_a_value_is_null_and_never_absent(
    result: AnyResult, schema: str, keys: set[str]
) -> None:
    document = json.loads(to_json(result))
    assert document["schema"] == result.schema
    assert result.schema == schema
    assert next(iter(document)) == "schema"
    assert keys <= set(document)


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_the_parts_have_the_keys_of_the_contract(part: type[msgspec.Struct]) -> None:
    assert PARTS[part] <= set(part.__struct_encode_fields__)
    assert part.__struct_config__.omit_defaults is False


def test_every_role_and_sum_is_there_in_an_empty_run() -> None:
    document = json.loads(to_json(RunResult(ok=True, exit_code=0)))
    assert document["work"] == dict.fromkeys(["ranks", "root", "store", "controller"])
    assert set(document["memory"]) == PARTS[Memory]
    assert document["wrong"] is None
    assert document["saturated"] is None


def test_waiting_is_spelt_for() -> None:
    result = failure("stuck")
    assert result.error is not None
    error = msgspec.structs.replace(result.error, waiting=[Waiting(rank=6, phase="recv", for_=7)])
    document = json.loads(to_json(msgspec.structs.replace(result, error=error)))
    assert document["error"]["waiting"] == [{"rank": 6, "phase": "recv", "for": 7}]


def test_injections_are_told_apart_by_their_target() -> None:
    spec = Spec(
        nranks=8,
        inject=(
            RankFault(rank=7, what="corrupt", where="last"),
            ServerKill(server="root"),
            WorkerKill(worker=1),
        ),
    )
    document = json.loads(to_json(failure("x", spec=spec)))
    assert [one["target"] for one in document["spec"]["inject"]] == ["rank", "server", "worker"]
    assert from_json(to_json(failure("x", spec=spec))).spec == spec


def test_keys_of_a_later_version_are_ignored() -> None:
    document = json.loads(to_json(failure("x")))
    document["added"] = {"later": 1}
    document["error"]["added"] = 1
    assert from_json(json.dumps(document).encode()) == failure("x")


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "not a result of emucoll"),
        (b"{", "not a result of emucoll"),
        (b"[]", "not a result of emucoll"),
        (b"\xff\xfe", "not a result of emucoll"),
        (b'{"ok":true,"exit_code":0}', "schema"),
        (b'{"schema":"emucoll.run/2","ok":true}', "emucoll.run/2"),
        (b'{"schema":"emucoll.run/1","ok":true}', "exit_code"),
        (b'{"schema":"emucoll.run/1","ok":1,"exit_code":0}', r"\$.ok"),
        (to_json(NamesResult(ok=True)), "of emucoll.names/1, not of emucoll.run/1"),
    ],
)
def test_what_is_no_run_is_refused_with_the_reason(data: bytes, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        from_json(data)


def test_a_failure_before_anything_ran_is_a_whole_document() -> None:
    document = json.loads(to_json(failure("no formation is called 'x'", next="use ring")))
    assert document["ok"] is False
    assert document["exit_code"] == 2
    assert document["error"]["what"] == "no formation is called 'x'"
    assert document["error"]["next"] == "use ring"
    assert document["error"]["waiting"] == []
    assert document["spec"] is None
    assert document["formation"] is None


def test_a_failure_with_a_spec_repeats_what_was_asked_for() -> None:
    result = failure("does not fit", spec=Spec(nranks=10**30, seed=5), exit_code=3)
    assert (result.nranks, result.seed, result.exit_code) == (10**30, 5, 3)
    assert from_json(to_json(result)) == result


def test_a_name_that_is_not_utf8_still_gives_one_document() -> None:
    document = json.loads(to_json(failure("bad \udcff", spec=Spec(nranks=1, out="d\udcff"))))
    assert document["error"]["what"] == "bad \\udcff"
    assert document["spec"]["out"] == "d\\udcff"


def test_bandwidth_is_that_of_nccl_tests() -> None:
    nranks, record, seconds = 8, 1000, 0.5
    algbw, busbw = bandwidth(nranks, record, nranks * (nranks - 1), seconds)
    assert algbw == pytest.approx(nranks * record / seconds / 1e9)
    assert busbw == pytest.approx(nranks * record / seconds / 1e9 * (nranks - 1) / nranks)


def test_bandwidth_of_the_first_steps_counts_only_what_they_moved() -> None:
    algbw, busbw = bandwidth(98304, 28, 256 * 98304, 2.0)
    assert algbw == pytest.approx(257 * 28 / 2e9)
    assert busbw == pytest.approx(256 * 28 / 2e9)


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_no_time_gives_no_bandwidth(seconds: float) -> None:
    assert bandwidth(1, 28, 0, seconds) == (None, None)


def test_defaults_are_not_shared() -> None:
    first, second = RunResult(ok=True, exit_code=0), RunResult(ok=True, exit_code=0)
    first.phases.append(Phase(name="rest"))
    first.warnings.append(RunWarning(code="a", text="b"))
    assert second.phases == []
    assert second.warnings == []


def test_kind_of_a_phase_may_be_charged() -> None:
    kinds: list[Literal["charged", "projected"]] = ["charged", "projected"]
    for kind in kinds:
        result = RunResult(ok=True, exit_code=0, phases=[Phase(name="topo", kind=kind)])
        assert from_json(to_json(result)).phases[0].kind == kind
