"""The page as a whole: every section in its order, or a line about why it is not there."""

from collections.abc import Callable
from pathlib import Path

import msgspec

from emucoll.errors import UsageError
from harness.report.html import counts, environment, flames, path, ranks, servers, time, verdict
from harness.report.html.material import Material, load_material
from harness.report.html.parts import Section
from harness.results.report import Missing, ReportResult
from harness.results.storage import REPORT_FILE, check_file_writable, save_file

_SECTIONS: tuple[Callable[[Material], Section | Missing], ...] = (
    verdict.section,
    time.section,
    flames.section,
    ranks.section,
    path.section,
    servers.section,
    counts.section,
    environment.section,
)


def write_report(directory: str, out: str | None = None) -> ReportResult:
    """Write the page about `directory`, to `directory`/report.html unless told otherwise, and what
    other programs show of the samples into `directory`. Raises UsageError.
    """
    material = load_material(directory)
    file = str(Path(directory) / REPORT_FILE) if out is None else out
    check_file_writable(file)
    parts = [make(material) for make in _SECTIONS]
    shown = [each for each in parts if isinstance(each, Section)]
    missing = [each for each in parts if isinstance(each, Missing)]
    page = render_page(material, shown, missing).encode(errors="backslashreplace")
    beside = flames.files_beside(material)
    for name, data in beside.items():
        save_file(data, str(Path(directory) / name))
    save_file(page, file)
    return ReportResult(
        ok=True,
        of=material.result.schema,
        file=file,
        bytes=len(page),
        sections=[each.name for each in shown],
        missing=missing,
        beside=[str(Path(directory) / name) for name in beside],
    )


def render_page(material: Material, shown: list[Section], missing: list[Missing]) -> str:
    """HTML. Raises UsageError where a library is missing."""
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise UsageError(
            f"a report needs {error.name}, which is not installed; pip install jinja2 plotly"
        ) from None
    templates = Environment(
        loader=PackageLoader("harness.report.html"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters["json"] = _json
    return templates.get_template("page.html").render(
        title=_title(material),
        sections=shown,
        missing=missing,
        kind=lambda block: type(block).__name__,
        plotly=get_plotlyjs(),
    )


def _json(value: object) -> str:
    """As a script element may hold it: nothing in it ends the element."""
    text = msgspec.json.encode(value).decode()
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _title(material: Material) -> str:
    spec = material.result.spec
    if spec is None:
        return "emucoll"
    what = spec.plan or f"{spec.formation or 'tcpstore'}, {spec.allgather or 'ring-pipelined'}"
    size = f"{spec.nranks:,} ranks" if hasattr(spec, "nranks") else f"towards {spec.target:,} ranks"
    return f"{what}: {size}"
