"""What the code of each role did on its CPU, and which of it will matter at the target.

`files_beside` makes the same for other programs: a flame graph as SVG and a speedscope file a role.
"""

import msgspec

from emucoll import __version__
from harness.analysis.flames import Carried, Flame, Profile, merge, prune, speedscope, unknown_share
from harness.report.flame_svg import flame_svg
from harness.report.html.material import Material
from harness.report.html.parts import (
    OTHER,
    Block,
    Chart,
    Json,
    Legend,
    Section,
    Text,
    count,
    label,
    layout,
    seconds,
)
from harness.results.profile import Growing, ProfileResult
from harness.results.report import Missing
from harness.results.samples import Sampled
from harness.results.storage import FLAMES, ROLES, SPEEDSCOPE

_ROW_PX = 22
_LEAST_SHARE = 0.002
"""Of the whole: narrower bars cannot be seen."""
_PACKAGES = {"emucoll": "var(--c4)", "harness": "var(--c5)", "everything else": "var(--other)"}
_FEW = 1000
"""Samples of a role, below which chance may make a law."""
_STEEPEST = 2.0
"""Exponents from here on have the last colour."""
_UNKNOWN = -0.4
"""The place of no exponent on the scale."""


def section(material: Material) -> Section | Missing:
    """Missing where nothing was sampled."""
    by_role = _by_role(material)
    if not by_role:
        is_profile = isinstance(material.result, ProfileResult)
        return Missing(
            what="flames",
            why="no stack was sampled (samples.json)" if is_profile else "a run is not sampled",
            next="emucoll profile … --out DIR samples what the code of each role does",
        )
    blocks: list[Block] = []
    if isinstance(material.result, ProfileResult) and material.result.spec is not None:
        blocks.append(
            Text(
                "At the target: as wide as a function's own CPU would be there, by the law of that "
                "function; coloured by the exponent with which it, and all that it calls, grows.",
                "quiet",
            )
        )
        target = material.result.spec.target
        for role, sampled in by_role.items():
            blocks += _scaling(role, sampled[-1], material.result.figures, target)
    blocks.append(Text("As sampled, at the largest size:", "quiet"))
    blocks.append(Legend(list(_PACKAGES.items())))
    for role, sampled in by_role.items():
        blocks.append(_sampled(role, sampled[-1]))
    return Section("flames", "Where the CPU goes", blocks)


def files_beside(material: Material) -> dict[str, bytes]:
    """By name what other programs show."""
    files = {}
    for role, sampled in _by_role(material).items():
        last = sampled[-1]
        flame = prune(merge(role, last.stacks, _seconds(last)), least_share=0.0005)
        title = f"{role}, {count(last.n)} ranks: {seconds(flame.total_s[0])} of CPU a bring-up"
        profiles = [
            Profile(f"{role}, {count(each.n)} ranks", each.stacks, _seconds(each))
            for each in sampled
        ]
        document = speedscope(f"emucoll {role}", profiles, f"emucoll {__version__}")
        files[f"{role}{FLAMES}"] = flame_svg(flame, title).encode(errors="backslashreplace")
        files[f"{role}{SPEEDSCOPE}"] = msgspec.json.encode(document)
    return files


def _by_role(material: Material) -> dict[str, list[Sampled]]:
    """Of the roles that we know, those that were seen to do something; sizes ascend."""
    samples = [] if material.samples is None else material.samples.sampled
    found = {}
    for role in ROLES:
        mine = sorted((each for each in samples if each.role == role), key=lambda each: each.n)
        if mine and any(mine[-1].counts):
            found[role] = mine
    return found


def _seconds(sampled: Sampled) -> list[float]:
    """Of CPU by stack, in one bring-up, of all processes of the role."""
    each_s = sampled.every_s / max(1, sampled.bring_ups)
    return [number * each_s for number in sampled.counts]


def _sampled(role: str, sampled: Sampled) -> Chart:
    flame = prune(merge(role, sampled.stacks, _seconds(sampled)), _LEAST_SHARE)
    colours = [_PACKAGES[_package(name)] for name in flame.names]
    caption = f"{role}: {count(sum(sampled.counts))} samples at {count(sampled.n)} ranks"
    figure = _icicle(flame, {"colors": colours})
    return Chart(f"flame-{role}", figure, _height(flame), caption)


def _package(function: str) -> str:
    """By the file that it is in."""
    _, _, file = function.rpartition(" (")
    parts = file.replace("\\", "/").split("/")
    return next((name for name in _PACKAGES if name in parts), "everything else")


def _scaling(role: str, sampled: Sampled, figures: list[Growing], target: int) -> list[Block]:
    laws = _laws(role, sampled.n, figures)
    if not laws:
        return [Text(f"{role}: no law is known of any of its functions.", "quiet")]
    # Samples of ranks are of all ranks together: what one of them takes is what grows.
    each = 1 / sampled.n if role == "rank" else 1.0
    spent_s = [value * each for value in _seconds(sampled)]
    flame = prune(merge(role, sampled.stacks, spent_s, laws), _LEAST_SHARE)
    marker = _by_exponent(flame)
    whose = "one rank" if role == "rank" else f"the {role}"
    samples = sum(sampled.counts)
    caption = (
        f"{role} at {count(target)} ranks: {seconds(flame.total_s[0])} of CPU of {whose}, by the "
        f"laws of its functions ({count(samples)} samples at {count(sampled.n)} ranks)"
    )
    blocks: list[Block] = [
        Chart(f"scaling-{role}", _icicle(flame, marker), _height(flame), caption)
    ]
    if samples < _FEW:
        few = f"So few samples tell little of how a function of {role} grows: see its exponent's"
        blocks.append(Text(f"{few} range under All figures before you believe a width.", "quiet"))
    unknown = unknown_share(sampled.stacks, sampled.counts, laws)
    if unknown > 0.005:
        blocks.append(
            Text(
                f"{unknown:.0%} of the samples of {role} are in functions of which no law is "
                f"known: they are as wide as at {count(sampled.n)} ranks.",
                "quiet",
            )
        )
    return blocks


def _by_exponent(flame: Flame) -> Json:
    """The colours of what is known begin at 0; a strip below is that of all else."""
    strip = -_UNKNOWN / (_STEEPEST - _UNKNOWN)
    middle = (1 + strip) / 2
    return {
        "colors": [_UNKNOWN if each is None else max(0.0, each) for each in flame.exponents],
        "cmin": _UNKNOWN,
        "cmax": _STEEPEST,
        "colorscale": [
            [0, OTHER],
            [strip, OTHER],
            [strip, "var(--low)"],
            [middle, "var(--middle)"],
            [1, "var(--high)"],
        ],
        "showscale": True,
        "colorbar": {
            "title": {"text": "exponent", "side": "right"},
            "thickness": 12,
            "outlinewidth": 0,
            "tickvals": [_UNKNOWN / 2, 0, 1, _STEEPEST],
            "ticktext": ["not known", "0", "1", "2 or more"],
        },
    }


def _laws(role: str, n: int, figures: list[Growing]) -> dict[str, Carried]:
    """By function, of those that were measured at the size that was sampled."""
    found = {}
    for each in figures:
        if each.function is None or each.entity != role or each.at_target is None:
            continue
        value = dict(zip(each.sizes, each.values, strict=True)).get(n, 0.0)
        if value > 0:
            found[each.function] = Carried(each.at_target / value, each.exponent)
    return found


def _icicle(flame: Flame, marker: Json) -> Json:
    names = [label(name) for name in flame.names]
    whole_s = flame.total_s[0] or 1.0
    told = [
        f"{seconds(total)}, {total / whole_s:.1%}; itself {seconds(own)}"
        + ("" if exponent is None else f"; exponent {exponent:.2f}")
        for total, own, exponent in zip(flame.total_s, flame.own_s, flame.exponents, strict=True)
    ]
    trace = {
        "type": "icicle",
        "ids": list(map(str, range(len(names)))),
        "labels": names,
        "parents": ["" if parent < 0 else str(parent) for parent in flame.parents],
        "values": flame.total_s,
        "branchvalues": "total",
        "tiling": {"orientation": "v", "pad": 1},
        "pathbar": {"visible": False},
        "leaf": {"opacity": 1},
        "marker": {**marker, "line": {"width": 0}},
        "customdata": told,
        "textinfo": "label",
        "textposition": "middle left",
        "hovertemplate": "%{label}<br>%{customdata}<extra></extra>",
    }
    return {
        "data": [trace],
        "layout": layout(
            margin={"l": 0, "r": 0, "t": 4, "b": 4},
            uniformtext={"mode": "hide", "minsize": 10},
        ),
        "config": {"displayModeBar": False},
    }


def _height(flame: Flame) -> int:
    return max(180, 30 + _ROW_PX * (1 + max(flame.depths)))
