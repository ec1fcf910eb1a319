"""`emucoll report`: of a real run and of one that failed; and in a real browser, in light and in
dark: all charts drawn, nothing on the console, nothing asked of the network.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from harness.results.codec import decode
from harness.results.report import ReportResult
from tests import browser
from tests.cli.command import CHECKOUT, Commands
from tests.unit.report.results import whole_run
from tests.unit.report.test_html import profile_in, run_in

needs_chromium = pytest.mark.skipif(browser.CHROMIUM is None, reason="Chromium is not installed")
DRAWN = """
[...document.querySelectorAll(".chart")].map((div) => {
  const svg = div.querySelector("svg.main-svg").getBoundingClientRect();
  return {
    name: div.id,
    traces: div.data.length,
    wide: svg.width,
    high: svg.height,
    marks: div.querySelectorAll("path, image, text").length,
  };
})
"""
COLOURS = """
[...document.querySelectorAll(".chart")].map((div) => div._fullLayout.font.color)
"""
IN_THIS_MODE = """
[...document.querySelectorAll(".chart")].every((div) => div._fullLayout.font.color ===
  getComputedStyle(document.documentElement).getPropertyValue("--text").trim())
"""
PRESS_ALL = """
Promise.all([...document.querySelectorAll(".chart")].flatMap((div) =>
  (div.layout.updatemenus ?? []).flatMap((menu) =>
    menu.buttons.map((button) => Plotly.relayout(div, button.args[0])))).map(
      (drawn) => drawn.then(() => 1)))
"""


def chart_names(directory: Path) -> set[str]:
    text = (directory / "report.html").read_text()
    return {each.partition('"')[0] for each in text.split('class="chart" id="')[1:]}


def check_drawn(charts: list[dict[str, Any]], names: set[str]) -> None:
    assert {chart["name"] for chart in charts} == names != set()
    for chart in charts:
        assert chart["traces"] > 0, chart
        assert min(chart["wide"], chart["high"]) > 50, chart
        assert chart["marks"] > 0, chart


def test_a_run_and_its_report(emucoll: Commands, tmp_path: Path) -> None:
    out = tmp_path / "kept"
    assert emucoll("run", "-np", 64, "--workers", 2, "--out", out).exit_code == 0
    ended = emucoll("report", out, "--json")
    document = ended.document
    assert document["schema"] == "emucoll.report/1"
    assert document["of"] == "emucoll.run/1"
    assert document["file"] == str(out / "report.html")
    assert document["bytes"] == (out / "report.html").stat().st_size
    assert document["sections"] == [
        *("verdict", "time", "ranks", "path", "servers", "counts", "environment"),
    ]
    assert {each["what"] for each in document["missing"]} == {"flames"}
    assert decode(ended.out, ReportResult).ok
    text = emucoll("report", out).out.decode()
    assert text.splitlines()[-1].startswith(f"# Report: {out}/report.html, ")
    assert "# MISSING flames: " in text


def test_a_run_that_failed(emucoll: Commands, tmp_path: Path) -> None:
    out = tmp_path / "kept"
    failed = emucoll("run", "-np", 8, "--inject", "rank=3:raise", "--out", out, "--quiet")
    assert failed.exit_code == 1
    document = emucoll("report", out, "--json").document
    assert document["sections"] == ["verdict", "environment"]
    assert "rank 3" in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nowhere",), "is not there: emucoll run"),
        (("run", "--out", "run"), "it is a folder"),
    ],
)
def test_what_is_refused(
    emucoll: Commands, tmp_path: Path, arguments: tuple[str, ...], says: str
) -> None:
    run_in(tmp_path / "run", whole_run())
    ended = emucoll("report", *arguments, "--json", cwd=tmp_path, env={"PYTHONPATH": str(CHECKOUT)})
    assert ended.exit_code == 2
    assert ended.document["schema"] == "emucoll.report/1"
    assert says in ended.error["what"]


def test_templates_are_found_where_the_packages_are_installed(tmp_path: Path) -> None:
    """As a wheel holds them, in whole folders, and not by way of the checkout."""
    installed, elsewhere = tmp_path / "installed", tmp_path / "elsewhere"
    for folder in ("emucoll", "harness", "profiles"):
        leave = shutil.ignore_patterns("__pycache__")
        shutil.copytree(CHECKOUT / folder, installed / folder, ignore=leave)
    run_in(elsewhere, whole_run())
    done = subprocess.run(
        [sys.executable, "-m", "harness.cli.main", "report", "."],
        cwd=elsewhere,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "<style>" in (elsewhere / "report.html").read_text()


@needs_chromium
@pytest.mark.parametrize("of", ["run", "profile"])
def test_a_browser_draws_it_in_light_and_in_dark(tmp_path: Path, of: str) -> None:
    from harness.report.html.page import write_report

    directory = tmp_path / "kept"
    run_in(directory, whole_run()) if of == "run" else profile_in(directory)
    write_report(str(directory))
    names = chart_names(directory)
    with browser.browser(tmp_path) as page:
        page.resize(1280, 900)
        page.prefer("light")
        page.open(directory / "report.html")
        page.until(IN_THIS_MODE)
        check_drawn(page.evaluate(DRAWN), names)
        light = set(page.evaluate(COLOURS))
        page.prefer("dark")
        page.until(IN_THIS_MODE)
        check_drawn(page.evaluate(DRAWN), names)
        assert light.isdisjoint(page.evaluate(COLOURS))
        page.evaluate(PRESS_ALL)
        page.resize(420, 800)
        page.until("document.documentElement.scrollWidth <= 420")
        check_drawn(page.evaluate(DRAWN), names)
        assert page.evaluate("document.querySelectorAll('script').length") == 2 + len(names)
        assert page.errors == []
        assert page.requests == []
