"""Profiles of training jobs: those that ship, and files that are not right."""

from collections.abc import Callable
from pathlib import Path

import pytest

from emucoll.errors import UsageError
from harness.profile import names
from harness.training.inputs import make_inputs
from harness.training.profile import LAYOUT, load_profile
from harness.training.spec import EttSpec

WRITE = Callable[[str], str]

WHOLE = """
text = "a job"
n = { value = 1024, source = "a paper" }

[failures]
per_1000_node_days = { value = 6.5, source = "a paper" }
[failures.causes]
source = "a paper"
[failures.causes.value]
"GPU" = 3

[recovery]
restart = { value = "10min", low = "5min", high = "15min", assumption = "a guess" }
"""


@pytest.fixture
def written(tmp_path: Path) -> WRITE:
    def write(text: str) -> str:
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return str(path)

    return write


def test_those_that_ship_are_whole_and_give_reasons() -> None:
    assert names("training") == ["ft-hsdp-98k", "h100-98k", "llama3-16k"]
    for name in names("training"):
        profile = load_profile(name)
        assert profile.text
        assert all(len(value.why) > 5 for value in profile.values.values())


def test_llama_3_has_the_published_counts() -> None:
    values = load_profile("llama3-16k").values
    assert values["failures.count"].value == values["failures.causes"].value == 419
    assert values["failures.causes"].counts["faulty GPU"] == 148
    inputs = make_inputs(EttSpec(profile="llama3-16k"), load_profile("llama3-16k"))
    assert inputs.sizes == (16384,)
    assert round(inputs.per_1000_node_days, 2) == 3.79
    assert inputs.counted == 419
    assert inputs.write_s == pytest.approx(2.43)
    assert inputs.restart_s + inputs.init_s == 600


def test_98304_gpus_fail_every_18_minutes_in_both() -> None:
    for name, minutes in (("ft-hsdp-98k", 18.0), ("h100-98k", 18.03)):
        inputs = make_inputs(EttSpec(profile=name), load_profile(name))
        assert inputs.sizes == (98304,)
        assert 1440 / (12288 * inputs.per_1000_node_days / 1000) == pytest.approx(minutes, abs=0.01)
        assert inputs.detection_s + inputs.restart_s + inputs.init_s == 600


def test_a_file_of_ones_own(written: WRITE) -> None:
    profile = load_profile(written(WHOLE))
    assert profile.values["recovery.restart"][:3] == (600.0, 300.0, 900.0)
    assert profile.values["failures.causes"].counts == {"GPU": 3}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("restart =", "restrat =", "unknown key 'recovery.restrat': did you mean 'recovery.rest"),
        ('"10min"', "600", "recovery.restart.value is 600: the unit is missing: expected a time"),
        ('"10min"', '"600"', "recovery.restart.value is '600': the unit is missing"),
        ('"10min"', '"-10min"', "recovery.restart.value: '-10min' is negative: expected a time"),
        ('"10min"', '"10GB"', "recovery.restart.value: '10GB': no unit 'GB'"),
        ('"10min"', '"20min"', "expected low ≤ value ≤ high"),
        ("6.5", "-6.5", "failures.per_1000_node_days.value is -6.5: expected a number, 0 or more"),
        ("6.5", "inf", "failures.per_1000_node_days.value is inf: expected a number, 0 or more"),
        ("6.5", "true", "failures.per_1000_node_days.value is True: expected a number"),
        ("6.5", '"6.5"', "failures.per_1000_node_days.value is '6.5': expected a number"),
        ("1024", "0", "n.value is 0: expected a whole number, 1 or more"),
        ("1024", "10.5", "n.value is 10.5: expected a whole number, 1 or more"),
        (', source = "a paper" }', "}", "expected where it is from: either source or assumption"),
        ('assumption = "a guess"', 'assumption = ""', "either source or assumption, in words"),
        ("assumption =", "guess =", "recovery.restart: unknown part 'guess'"),
        ('"GPU" = 3', '"GPU" = 0', "failures.causes.value.'GPU' is 0: expected a whole number"),
        ('"GPU" = 3', "", "failures.causes: expected value, a table of whole numbers"),
        ("text =", "text = 3 #", "text is 3: expected words"),
        ("n =", "n = =", "it is no TOML"),
        (
            "[recovery]",
            '[isolation]\nconfined_share = { value = 1.5, source = "a" }\n[recovery]',
            "isolation.confined_share.value is 1.5: expected a number from 0 to 1",
        ),
        (
            "[failures]",
            '[failures]\ncount = { value = 5, source = "a" }\n'
            'observed = { value = "5h", source = "a" }',
            "failures.count and failures.per_1000_node_days: expected one of them, not both",
        ),
        (
            "[recovery]",
            '[checkpoint]\nsize = { value = "5GB", source = "a" }\n[recovery]',
            "checkpoint.size: expected storage.sustained beside it",
        ),
        (
            "[recovery]",
            '[storage]\nsustained = { value = "5GB", source = "a" }\n'
            'peak = { value = "4GB", source = "a" }\n[recovery]',
            "storage.peak: expected at least storage.sustained",
        ),
        ("n =", 'job_length = { value = "0s", source = "a" }\nn =', "job_length is 0: expected mo"),
        ("n =", 'replicas = { value = 1, source = "a" }\nn =', "replicas is 1: expected at least"),
    ],
)
def test_what_is_wrong_names_file_key_and_what_was_expected(
    written: WRITE, old: str, new: str, says: str
) -> None:
    assert old in WHOLE
    path = written(WHOLE.replace(old, new, 1))
    with pytest.raises(UsageError) as raised:
        load_profile(path)
    assert says in str(raised.value)
    assert str(raised.value).startswith(path)


def test_size_and_write_exclude_each_other(written: WRITE) -> None:
    reason = 'source = "a paper"'
    text = f"""{WHOLE}
        [storage]
        sustained = {{ value = "1TB", {reason} }}
        [checkpoint]
        size = {{ value = "1TB", {reason} }}
        write = {{ value = "1s", {reason} }}
    """
    with pytest.raises(UsageError, match=r"checkpoint\.write: it follows from checkpoint\.size"):
        load_profile(written(text))


def test_names_and_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="did you mean 'llama3-16k'"):
        load_profile("llama-16k")
    with pytest.raises(UsageError, match="No such file"):
        load_profile(str(tmp_path / "none.toml"))
    with pytest.raises(UsageError, match="directory"):
        load_profile(f"{tmp_path}/")
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="it is no TOML"):
        load_profile(str(tmp_path / "bytes.toml"))


def test_every_input_of_a_profile_says_where_it_is_from() -> None:
    profile = load_profile("h100-98k")
    listed = make_inputs(EttSpec(profile="h100-98k", restart_s=5.0), profile).listed
    origins = {each.name: each.origin for each in listed}
    assert origins["recovery.restart"] == "flag"
    assert origins["recovery.init"] == "profile"
    assert origins["checkpoint.write"] == "calculated"
    assert len(origins) == len(listed)
    assert profile.values.keys() - {"failures.causes"} <= origins.keys()
    assert origins.keys() - {"checkpoint.write", "checkpoint.write at peak"} <= LAYOUT.keys()
