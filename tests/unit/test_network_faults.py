"""Faults of hosts and links: what the command line says, and the rules that come of it."""

import pytest

from emucoll.errors import UsageError
from emucoll.sim.faults import RTO_S, Link, Links
from harness.network_faults import (
    HostFault,
    LinkFault,
    format_network_fault,
    parse_network_fault,
    rule_of,
)
from harness.spec import Spec, check, format_injection, parse_injection


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("host=3:slow=10", HostFault(host=3, what="slow", factor=10.0)),
        ("host=3:dead@5s", HostFault(host=3, what="dead", at_s=5.0)),
        ("link=0-3/4-7:delay=0.001s", LinkFault(hosts=(0, 3), others=(4, 7), delay_s=0.001)),
        ("link=2/store:loss=0.01", LinkFault(hosts=(2, 2), others=(-1, -1), loss=0.01)),
        ("link=0/1:cut@2s", LinkFault(hosts=(0, 0), others=(1, 1), cut_from_s=2.0)),
        ("link=0/1:cut@2s-9s", LinkFault(hosts=(0, 0), others=(1, 1), cut_from_s=2, cut_to_s=9)),
    ],
)
def test_what_is_read_is_what_is_written(text: str, fault: HostFault | LinkFault) -> None:
    assert parse_injection(text) == fault
    assert format_injection(fault) == format_network_fault(fault) == text


def test_a_time_may_have_any_unit() -> None:
    assert parse_injection("rank=7:crash@1500ms") == parse_injection("rank=7:crash@1.5s")
    assert format_injection(parse_injection("rank=7:crash@1500ms")) == "rank=7:crash@1.5s"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("host=3:slow=0.5", "expected a factor above 1"),
        ("host=3:dead@soon", "'soon' is not a time"),
        ("link=3-0/4:delay=1ms", "3-0 is no range of hosts"),
        ("link=0/1:loss=1.5", "expected a share between 0 and 1"),
        ("link=0/1:loss=0.1.1", "'0.1.1' is no number"),
        ("link=0/1:cut@3s-2s", "the cut ends before it begins"),
        ("link=0/1:cuts@3s", "did you mean 'link=0/8-15:cut@2s-9s'?"),
        ("hots=0:dead@3s", "did you mean 'host=0:dead@5s'?"),
        ("rank=0:crash@", "did you mean 'rank=0:crash@5s'?"),
    ],
)
def test_what_cannot_be_read(text: str, says: str) -> None:
    with pytest.raises(UsageError, match=r"--inject|not a time") as caught:
        parse_injection(text)
    assert says in str(caught.value)


@pytest.mark.parametrize("text", ["host=2:dead@1s", "link=0/1-2:loss=0.1", "rank=9:crash@1s"])
def test_who_is_not_there(text: str) -> None:
    spec = Spec(nranks=9, world="virtual", cluster="x", inject=(parse_injection(text),))
    with pytest.raises(UsageError, match="there is no"):
        check(spec)


@pytest.mark.parametrize("text", ["host=0:dead@1s", "link=0/0:loss=0.1", "rank=3:crash@1s"])
def test_real_processes_have_no_such_fault(text: str) -> None:
    with pytest.raises(UsageError, match="it is of --world virtual"):
        check(Spec(nranks=9, inject=(parse_injection(text),)))


# -- the rules


def draws(*numbers: float) -> Links:
    rest = iter(numbers)
    return Links([Link(range(2), range(2, 4), loss=0.5)], lambda: next(rest))


def test_what_is_lost_is_sent_again_after_twice_as_long_each_time() -> None:
    assert draws(0.9).late_s(0, 2, 0.0) == 0.0
    assert draws(0.1, 0.9).late_s(0, 2, 0.0) == RTO_S
    assert draws(0.1, 0.2, 0.3, 0.9).late_s(3, 1, 0.0) == pytest.approx(RTO_S * (1 + 2 + 4))
    assert draws().late_s(0, 1, 0.0) == 0.0, "within one side nothing is drawn"


def test_delays_add_up() -> None:
    rules = [Link(range(4), range(4), delay_s=1.0), Link(range(1), range(1, 2), delay_s=0.5)]
    links = Links(rules, lambda: 0.0)
    assert (links.late_s(0, 1, 0.0), links.late_s(0, 2, 0.0)) == (1.5, 1.0)
    assert links.late_s(9, 2, 0.0) == 0.0


def test_a_cut_holds_back_until_tcp_tries_again_after_its_end() -> None:
    links = Links([Link(range(1), range(1, 2), cut_from_s=1.0, cut_to_s=2.0)], lambda: 0.0)
    assert links.late_s(0, 1, 0.9) == 0.0
    # Sent at 1 s: again after 0.2, 0.6 and 1.4 s, the last of them behind the end.
    assert links.late_s(0, 1, 1.0) == pytest.approx(1.4)
    assert links.late_s(1, 0, 2.0) == 0.0


def test_what_a_cut_without_an_end_holds_back_never_comes() -> None:
    rule = rule_of(HostFault(host=1, what="dead", at_s=3.0), 4)
    assert rule is not None
    links = Links([rule], lambda: 0.0)
    assert links.late_s(1, 3, 3.0) is None
    assert links.late_s(-1, 1, 4.0) is None
    assert links.late_s(1, 3, 2.9) == 0.0
    assert links.late_s(0, 3, 9.0) == 0.0


def test_a_slow_host_is_no_rule_of_the_network() -> None:
    assert rule_of(HostFault(host=1, what="slow", factor=3.0), 4) is None
    assert parse_network_fault("rank=3:raise") is None
