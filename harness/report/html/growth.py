"""Of a profile: init time over the sizes by phase, every series with the law that carries it to the
target, and the findings.
"""

from collections.abc import Sequence

from harness.analysis.growth_curve import curve
from harness.report.html.material import Material
from harness.report.html.parts import (
    OTHER,
    PALETTE,
    TEXT,
    Block,
    Chart,
    Json,
    Section,
    Table,
    Text,
    count,
    label,
    layout,
    seconds,
    size,
)
from harness.results.profile import Finding, Growing, ProfileResult
from harness.results.report import Missing

_SHOWN = 12
"""Series of one chart; the rest can be switched on in its legend."""
_MOST = 20
_Y_TITLES = {"s": "seconds", "B": "bytes", "": "number"}
_SYMBOLS = {"measured": "circle", "simulated": "diamond-open"}


def of_profile(material: Material) -> Section | Missing:
    """Missing where the profile came to no figure."""
    result = material.result
    assert isinstance(result, ProfileResult)
    if result.spec is None or not result.figures:
        return Missing(
            what="time",
            why="the profile ended before it had figures",
            next=f"emucoll profile … --out {material.again}, once what failed is mended",
        )
    target = result.spec.target
    figures = [each for each in result.figures if each.function is None]
    blocks: list[Block] = _stacked(figures, target)
    for name, unit, what in (
        ("growth-seconds", "s", "Seconds of one rank or server"),
        ("growth-bytes", "B", "Bytes of all ranks, or of a server"),
        ("growth-counts", "", "Connections and requests, of all ranks or of a server"),
    ):
        group = [each for each in figures if each.unit == unit and any(each.values)]
        if group:
            blocks.append(_series(name, unit, what, group, target))
    if result.findings:
        blocks.append(_findings(result.findings))
    blocks.append(_figures(result.figures))
    return Section("time", "What grows, and to what", blocks)


def _stacked(figures: Sequence[Growing], target: int) -> list[Block]:
    """Bars of the simulated seconds, whose sum is the time until the last rank is done."""
    parts = [each for each in figures if each.kind == "simulated" and each.unit == "s"]
    if not parts:
        return [Text("Virtual time told nothing: there is no time to stack.", "quiet")]
    sizes = sorted({n for each in parts for n in each.sizes} | {target})
    told = {_name(each): _by_size(each, target) for each in parts}
    largest = sorted(told, key=lambda name: -max(told[name].get(n, 0.0) for n in sizes[-1:]))
    total_s = sum(told[name].get(sizes[-1], 0.0) for name in told)
    named = [name for name in largest if told[name].get(sizes[-1], 0.0) >= 0.005 * total_s]
    named = named[: len(PALETTE)]
    rest = [name for name in largest if name not in named]
    rows = [(name, told[name], PALETTE[at]) for at, name in enumerate(named)]
    if rest:
        merged = {n: sum(told[name].get(n, 0.0) for name in rest) for n in sizes}
        rows.append(("all else", merged, OTHER))
    x = [f"{n:,}" for n in sizes]
    bars = [
        {
            "type": "bar",
            "name": name,
            "x": x,
            "y": [values.get(n) for n in sizes],
            "marker": {"color": colour},
            "hovertemplate": "%{x} ranks: %{y:.4g} s<extra>%{fullData.name}</extra>",
        }
        for name, values, colour in rows
    ]
    caption = "Init time by phase, in virtual time along the critical path"
    figure = {
        "data": bars,
        "layout": layout(
            "ranks",
            "seconds",
            barmode="stack",
            xaxis={"type": "category"},
            legend={"traceorder": "reversed"},
            updatemenus=[_share_menu()],
            margin={"t": 50},
        ),
    }
    return [Chart("stacked", figure, 430, caption)]


def _by_size(each: Growing, target: int) -> dict[int, float]:
    told = dict(zip(each.sizes, each.values, strict=True))
    if each.at_target is not None:
        told.setdefault(target, each.at_target)
    return told


def _share_menu() -> Json:
    """Seconds, or shares of the whole at each size."""
    return _menu(
        [
            ("seconds", {"barnorm": "", "yaxis.title.text": "seconds"}),
            ("shares", {"barnorm": "percent", "yaxis.title.text": "% of the whole"}),
        ]
    )


def _menu(choices: Sequence[tuple[str, Json]]) -> Json:
    return {
        "type": "buttons",
        "direction": "right",
        "x": 0,
        "xanchor": "left",
        "y": 1.02,
        "yanchor": "bottom",
        "showactive": False,
        "bgcolor": "var(--panel)",
        "bordercolor": "var(--grid)",
        "font": {"color": TEXT, "size": 11},
        "buttons": [
            {"label": text, "method": "relayout", "args": [change]} for text, change in choices
        ],
    }


def _series(name: str, unit: str, what: str, group: Sequence[Growing], target: int) -> Chart:
    """Points where something was run or played, and lines of the law from there to the target."""
    group = sorted(group, key=lambda each: -(each.at_target or each.values[-1]))[:_MOST]
    traces: list[Json] = []
    for at, each in enumerate(group):
        colour = PALETTE[at % len(PALETTE)]
        shared = {"legendgroup": str(at), "visible": True if at < _SHOWN else "legendonly"}
        points = [(n, value) for n, value in zip(each.sizes, each.values, strict=True) if value > 0]
        traces.append(
            {
                "type": "scatter",
                "mode": "lines+markers" if each.simulated_at_target else "markers",
                "name": f"{_name(each)}, {each.resource} {each.kind}",
                "x": [n for n, _ in points],
                "y": [value for _, value in points],
                "marker": {"color": colour, "symbol": _SYMBOLS[each.kind], "size": 8},
                "line": {"color": colour, "width": 1},
                "hovertemplate": _hover(unit),
                **shared,
            }
        )
        line = _carried(each, target)
        if line is not None:
            traces.append(_law(each, line, colour, unit, shared))
    of_y: Json = {"type": "log", "dtick": 1 if unit == "s" else "D2"}
    of_y |= {"exponentformat": "power"} if unit == "s" else {"tickformat": "~s"}
    sizes = sorted({n for each in group for n in each.sizes} | {target})
    figure = {
        "data": traces,
        "layout": layout(
            "ranks",
            _Y_TITLES[unit],
            xaxis={"type": "log", "tickmode": "array", "tickvals": sizes, "tickformat": ",d"},
            yaxis=of_y,
            updatemenus=[_scales(of_y["dtick"])],
            margin={"t": 50},
            shapes=[_at(target)],
        ),
    }
    caption = f"{what}: points were run here (filled) or played (open), dashed lines are laws"
    return Chart(name, figure, max(380, 130 + 19 * len(group)), caption)


def _scales(dtick: int | str) -> Json:
    """Both axes by the power or by the number; `dtick` is what suits the former."""
    keys = ("xaxis.type", "xaxis.tickmode", "yaxis.type", "yaxis.tickmode", "yaxis.dtick")
    scales = {
        "log–log": ("log", "array", "log", "linear", dtick),
        "linear": ("linear", "auto", "linear", "auto", None),
    }
    return _menu([(name, dict(zip(keys, each, strict=True))) for name, each in scales.items()])


def _carried(each: Growing, target: int) -> tuple[list[float], list[float]] | None:
    """From the largest size that was run here or played on the way."""
    before = [(n, value) for n, value in zip(each.sizes, each.values, strict=True) if n < target]
    if each.at_target is None or not before:
        return None
    return curve(each.law, before[-1], (target, each.at_target))


def _law(
    each: Growing, line: tuple[list[float], list[float]], colour: str, unit: str, shared: Json
) -> Json:
    exponent = "" if each.exponent is None else f", exponent {_exponent(each)}"
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"{_name(each)}: {label(each.law)}{exponent}",
        "showlegend": False,
        "x": line[0],
        "y": line[1],
        "line": {"color": colour, "dash": "dash", "width": 1.5},
        "hovertemplate": _hover(unit),
        **shared,
    }


def _hover(unit: str) -> str:
    return f"%{{x:,.0f}} ranks: %{{y:.4g}} {unit}<extra>%{{fullData.name}}</extra>"


def _at(target: int) -> Json:
    """A line where the target is."""
    return {
        "type": "line",
        "x0": target,
        "x1": target,
        "yref": "paper",
        "y0": 0,
        "y1": 1,
        "line": {"color": "var(--muted)", "dash": "dot", "width": 1},
    }


def _name(each: Growing) -> str:
    return label(f"{each.entity} {each.phase}")


def _findings(findings: Sequence[Finding]) -> Table:
    rows = []
    for each in findings:
        rows.append(
            (
                each.entity,
                each.phase,
                each.resource,
                " or ".join(each.laws) or each.law,
                each.kind,
                " · ".join(filter(None, (each.location, each.known_fix))) or "-",
                _exponent(each),
                _amount(each.at_target, each.resource),
                "-" if each.share_at_target is None else f"{each.share_at_target:.1%}",
            )
        )
    head = (
        *("who", "phase", "of", "law", "kind", "where, and what avoids it"),
        *("exponent", "at the target", "share there"),
    )
    return Table(head, rows, words=6, caption="Findings, the worst at the target first")


def _figures(figures: Sequence[Growing]) -> Table:
    """All of them, those of functions too."""
    rows = [
        (
            each.entity,
            each.phase if each.function is None else each.function,
            each.resource,
            each.law,
            each.kind,
            _exponent(each),
            *(_amount(value, each.resource) for value in (each.values[0], each.values[-1])),
            "-" if each.at_target is None else _amount(each.at_target, each.resource),
        )
        for each in figures
        if each.values
    ]
    head = (
        *("who", "phase or function", "of", "law", "kind"),
        *("exponent", "at the smallest", "at the largest", "at the target"),
    )
    return Table(head, rows, words=5, caption="All figures", is_folded=True)


def _exponent(each: Finding | Growing) -> str:
    if each.exponent is None:
        return "-"
    if each.low is None or each.high is None:
        return f"{each.exponent:.2f}"
    return f"{each.exponent:.2f} [{each.low:.2f}, {each.high:.2f}]".replace("-0.00", "0.00")


def _amount(value: float, resource: str) -> str:
    if resource in ("cpu", "wait"):
        return seconds(value)
    return size(value) if resource == "memory" else count(value)
