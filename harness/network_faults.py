"""Faults of a modelled cluster: slow and dead hosts, links that are late, lose or are cut.

What `--inject` says of them, as data; only virtual time has hosts and links.
"""

import re
from typing import Literal, TypeAlias

import msgspec

from emucoll.errors import UsageError
from emucoll.sim.faults import Link
from harness.units import parse_time

STORE = -1
"""The host of the store."""


class HostFault(msgspec.Struct, frozen=True, kw_only=True, tag_field="target", tag="host"):
    """One host: all of its processes are `factor` times as slow, or silent from `at_s` on."""

    host: int
    what: Literal["slow", "dead"]
    factor: float | None = None
    at_s: float | None = None


class LinkFault(msgspec.Struct, frozen=True, kw_only=True, tag_field="target", tag="link"):
    """Between hosts `hosts[0]` … `hosts[1]` and `others[0]` … `others[1]`, both ways."""

    hosts: tuple[int, int]
    others: tuple[int, int]
    delay_s: float = 0.0
    loss: float = 0.0
    cut_from_s: float | None = None
    cut_to_s: float | None = None


NetworkFault: TypeAlias = HostFault | LinkFault
FORMS = (
    "host={n}:slow=10",
    "host={n}:dead@5s",
    "link={n}/8-15:delay=1ms",
    "link={n}/8-15:loss=0.01",
    "link={n}/8-15:cut@2s-9s",
)
EXPECTED = (
    "host=H:slow=FACTOR, host=H:dead@T, link=A-B/C-D:delay=T, link=A-B/C-D:loss=SHARE, "
    "link=A-B/C-D:cut@T or cut@T-T (hosts, or store)"
)
_HOST = re.compile(r"host=(?P<host>\d{1,9}):(?:slow=(?P<factor>[\d.]+)|dead@(?P<at>.+))", re.ASCII)
_SIDE = r"(?:store|\d{1,9}(?:-\d{1,9})?)"
_LINK = re.compile(
    rf"link=(?P<hosts>{_SIDE})/(?P<others>{_SIDE}):"
    r"(?:delay=(?P<delay>.+)|loss=(?P<loss>[\d.]+)|cut@(?P<start>[^-]+)(?:-(?P<end>.+))?)",
    re.ASCII,
)


def parse_network_fault(text: str) -> NetworkFault | None:
    """The fault, or None for a text that is of no such form. Raises UsageError."""
    if match := _HOST.fullmatch(text):
        host = int(match["host"])
        if match["factor"] is None:
            return HostFault(host=host, what="dead", at_s=parse_time(match["at"]))
        factor = _number(text, match["factor"])
        if not 1 < factor <= 1e6:
            raise UsageError(f"--inject {text!r}: expected a factor above 1, as in slow=10")
        return HostFault(host=host, what="slow", factor=factor)
    match = _LINK.fullmatch(text)
    if match is None:
        return None
    hosts, others = _side(text, match["hosts"]), _side(text, match["others"])
    if match["delay"] is not None:
        return LinkFault(hosts=hosts, others=others, delay_s=parse_time(match["delay"]))
    if match["loss"] is not None:
        loss = _number(text, match["loss"])
        if not 0 < loss < 1:
            raise UsageError(f"--inject {text!r}: expected a share between 0 and 1; cut@T is all")
        return LinkFault(hosts=hosts, others=others, loss=loss)
    start = parse_time(match["start"])
    end = None if match["end"] is None else parse_time(match["end"])
    if end is not None and end <= start:
        raise UsageError(f"--inject {text!r}: the cut ends before it begins")
    return LinkFault(hosts=hosts, others=others, cut_from_s=start, cut_to_s=end)


def _number(text: str, digits: str) -> float:
    try:
        return float(digits)
    except ValueError:
        raise UsageError(f"--inject {text!r}: {digits!r} is no number") from None


def _side(text: str, side: str) -> tuple[int, int]:
    if side == "store":
        return STORE, STORE
    first, _, last = side.partition("-")
    ends = int(first), int(last or first)
    if ends[0] > ends[1]:
        raise UsageError(f"--inject {text!r}: {side} is no range of hosts")
    return ends


def format_network_fault(fault: NetworkFault) -> str:
    """The text that `parse_network_fault` reads as `fault`."""
    match fault:
        case HostFault(what="slow"):
            return f"host={fault.host}:slow={fault.factor:g}"
        case HostFault():
            return f"host={fault.host}:dead@{fault.at_s:g}s"
    sides = "/".join(map(_format_side, (fault.hosts, fault.others)))
    if fault.delay_s:
        return f"link={sides}:delay={fault.delay_s:g}s"
    if fault.loss:
        return f"link={sides}:loss={fault.loss:g}"
    end = "" if fault.cut_to_s is None else f"-{fault.cut_to_s:g}s"
    return f"link={sides}:cut@{fault.cut_from_s:g}s{end}"


def _format_side(side: tuple[int, int]) -> str:
    first, last = side
    if first == STORE:
        return "store"
    return str(first) if first == last else f"{first}-{last}"


def check_network_fault(fault: NetworkFault, hosts: int) -> None:
    """Raise UsageError for a host that is not there."""
    named = (fault.host,) if isinstance(fault, HostFault) else (*fault.hosts, *fault.others)
    for host in named:
        if host >= hosts:
            raise UsageError(
                f"--inject {format_network_fault(fault)}: there is no host {host}, expected 0 to "
                f"{hosts - 1}"
            )


def rule_of(fault: NetworkFault, hosts: int) -> Link | None:
    """As a rule of the network; None for one that is none of it."""
    if isinstance(fault, LinkFault):
        return Link(
            range(fault.hosts[0], fault.hosts[1] + 1),
            range(fault.others[0], fault.others[1] + 1),
            fault.delay_s,
            fault.loss,
            fault.cut_from_s,
            fault.cut_to_s,
        )
    if fault.what == "dead":
        itself = range(fault.host, fault.host + 1)
        return Link(itself, range(STORE, hosts), cut_from_s=fault.at_s)
    return None
