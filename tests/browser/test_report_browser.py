"""The report in a real Chromium, on a phone, on a desk and in the dark: drawn whole, silent, offline, nothing cut."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest

from rtxscale.analysis.conclude import conclude
from rtxscale.analysis.tables import CONFIRMED
from rtxscale.report.charts.figures import figures
from rtxscale.report.page import write_report

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from report import made_dossiers, made_runs, test_report_budget, test_report_confirmed, test_report_drift

sync_api = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
]
HOSTILE = (
    "</script><script>document.title='owned'</script><img src=x onerror=alert(1)> \"' \u202eevil 🔥 " + "y" * 10_000
)
A4 = 695
"""Width of a page without its margins, in CSS pixels."""
SCREENS = {"phone": (360, "light"), "desk": (1280, "light"), "dark": (1280, "dark")}
CUT = """() => {
  const cut = [];
  const width = document.documentElement.clientWidth;
  document.querySelectorAll("details").forEach(function (one) { one.open = true; });
  const texts = "h1, h2, h3, p, li, dt, dd, figcaption, summary, button, th, td, strong";
  document.querySelectorAll(texts).forEach(function (one) {
    const box = one.getBoundingClientRect();
    const scrolls = one.closest(".scroll, pre, .question, #vg-tooltip-element");
    if (!scrolls && (box.left < -1 || box.right > width + 1)) { cut.push(one.textContent.slice(0, 60)); }
    if (one.scrollWidth > one.clientWidth + 1 && getComputedStyle(one).overflowX === "hidden") {
      cut.push(one.textContent.slice(0, 60));
    }
  });
  document.querySelectorAll(".chart svg text").forEach(function (one) {
    const box = one.getBoundingClientRect();
    if (box.width && (box.left < -1 || box.right > width + 1)) { cut.push("chart: " + one.textContent.slice(0, 60)); }
    if (one.textContent.includes("\\u2026")) { cut.push("shortened: " + one.textContent.slice(0, 60)); }
  });
  return cut;
}"""
CONTRAST = """(selector) => {
  const parts = function (color) { return color.match(/[\\d.]+/g).slice(0, 3).map(Number); };
  const light = function (color) {
    const [r, g, b] = parts(color).map(function (value) {
      const share = value / 255;
      return share <= 0.03928 ? share / 12.92 : Math.pow((share + 0.055) / 1.055, 2.4);
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ink = light(getComputedStyle(document.querySelector(selector)).color);
  const paper = light(getComputedStyle(document.body).backgroundColor);
  return (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
}"""

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome on the PATH")


@pytest.fixture(scope="module")
def browser():
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Name -> the report, and how many charts it has: made up, measured on two H200s, and full of hostile text."""
    root = tmp_path_factory.mktemp("pages")
    golden = made_dossiers.golden_run(root / "golden")
    made = made_runs.h200_run(root / "made")
    confirmed = pl.DataFrame(test_report_confirmed.ROWS, schema=CONFIRMED)
    every = replace(
        made.conclusions, budget=test_report_budget.budget(), confirmed=confirmed, **test_report_drift.frames()
    )
    hostile = made_runs.h200_run(root / "hostile", visits=1, hostile=HOSTILE)
    runs = {
        "made": (made.run, every),
        "measured": (golden, conclude(golden)),
        "hostile": (hostile.run, hostile.conclusions),
    }
    return {
        name: (write_report(run, conclusions, root / f"{name}.html"), len(figures(run, conclusions)))
        for name, (run, conclusions) in runs.items()
    }


@pytest.fixture
def opened(browser):
    """Opens a page and waits until it is drawn; what it said and what it asked for is in the lists."""
    contexts = []

    def open_page(path, width, scheme, **more):
        context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme, **more)
        contexts.append(context)
        page = context.new_page()
        page.said, page.asked = [], []
        page.on("console", lambda message: page.said.append(message.text))
        page.on("pageerror", lambda error: page.said.append(str(error)))
        page.on("request", lambda request: page.asked.append(request.url))
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()


def drawn(page):
    page.wait_for_function("document.documentElement.dataset.drawn", timeout=60_000)
    return page


@pytest.mark.parametrize(
    ("name", "screen"), [*((name, screen) for name in ("made", "measured") for screen in SCREENS), ("hostile", "phone")]
)
def test_every_chart_is_drawn_nothing_is_said_asked_for_or_cut(opened, pages, name, screen):
    path, charts = pages[name]
    page = drawn(opened(path, *SCREENS[screen]))
    assert page.evaluate("document.documentElement.dataset.drawn") == str(charts)
    assert page.locator(".chart svg.marks").count() == charts
    assert page.locator(".chart.failed").count() == 0
    assert page.evaluate("document.querySelectorAll('.chart svg').length") == charts
    assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS[screen][0]
    cut = page.evaluate(CUT)
    assert [text for text in cut if name != "hostile" or not text.startswith("shortened")] == []
    assert page.said == []
    assert page.asked == [path.as_uri()]
    assert page.title() == "nccl-resnet50: scaling report"
    assert page.evaluate("document.fonts.check('16px Roboto') && document.fonts.size") == 2


FIVE_LINES = 112
"""Height of a row of a table with five lines in a cell, in CSS pixels."""
LINES = """() => {
  document.querySelectorAll("details").forEach(function (one) { one.open = true; });
  return Array.from(document.querySelectorAll(".scroll tbody tr")).map(function (row) { return row.offsetHeight; });
}"""
SCROLLED = """() => Array.from(document.querySelectorAll(".scroll")).filter(function (box) {
  return box.scrollWidth > box.clientWidth;
}).map(function (box) {
  box.scrollLeft = box.scrollWidth;
  const first = box.querySelector("td");
  return [box.scrollLeft > 0, first.getBoundingClientRect().left - box.getBoundingClientRect().left, first.offsetWidth];
})"""


@pytest.mark.parametrize("name", ["made", "measured"])
def test_on_a_phone_wide_tables_scroll_in_their_box_instead_of_growing_tall(opened, pages, name):
    page = drawn(opened(pages[name][0], *SCREENS["phone"]))
    assert max(page.evaluate(LINES)) <= FIVE_LINES
    boxes = page.evaluate(SCROLLED)
    assert boxes
    assert all(moved and abs(left) < 1 and width <= 0.45 * SCREENS["phone"][0] for moved, left, width in boxes)
    assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS["phone"][0]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_on_its_paper(opened, pages, scheme):
    page = drawn(opened(pages["made"][0], 1280, scheme))
    for selector in ("h1", ".note", "nav a", "figcaption", ".badge.warning", ".legend button"):
        assert page.evaluate(CONTRAST, selector) >= 4.5, selector
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 200) == (scheme == "dark")


def test_a_point_leads_to_the_rows_of_its_trials(opened, pages):
    page = drawn(opened(pages["measured"][0], 1280, "light"))
    assert page.locator("tr.lit").count() == 0
    page.locator("#chart-weak-efficiency .mark-symbol path").last.click()
    lit = page.locator("tr.lit")
    assert lit.count() > 0
    assert len({row.get_attribute("data-cell") for row in lit.all()}) == 1
    assert page.evaluate("document.getElementById('trial-rows').open")
    box = lit.first.bounding_box()
    assert 0 <= box["y"] <= 800


def test_series_are_chosen_in_the_legend_and_rows_by_words(opened, pages):
    page = drawn(opened(pages["made"][0], 1280, "light"))
    points = page.locator("#chart-weak-efficiency .mark-symbol path")
    before = points.count()
    button = page.locator("#chart-weak-efficiency").locator("xpath=..").locator("button").first
    button.click()
    page.wait_for_function(
        "before => document.querySelectorAll('#chart-weak-efficiency .mark-symbol path').length < before", arg=before
    )
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    page.wait_for_function(
        "before => document.querySelectorAll('#chart-weak-efficiency .mark-symbol path').length === before", arg=before
    )
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    rows = page.locator("#cells tbody tr:visible")
    every = rows.count()
    page.locator("#cells input.filter").fill("tree disabled")
    assert 0 < rows.count() < every
    assert all("tree" in text and "disabled" in text for text in rows.all_inner_texts())


def test_without_scripts_and_on_paper_the_numbers_are_there(opened, pages):
    path, _ = pages["measured"]
    page = opened(path, 1280, "light", java_script_enabled=False)
    assert page.locator("noscript").inner_text().startswith("The charts need JavaScript")
    assert "6,620" in page.locator("#scaling table").first.inner_text()
    page = drawn(opened(path, 1280, "dark"))
    page.emulate_media(media="print", color_scheme="dark")
    assert page.evaluate("getComputedStyle(document.querySelector('h1')).color") == "rgb(27, 31, 36)"
    assert not page.locator("nav").is_visible()


def test_a_print_has_charts_of_its_width_and_opens_what_a_reader_could_not(opened, pages):
    path, charts = pages["measured"]
    page = drawn(opened(path, 1280, "light"))
    folded = "Array.from(document.querySelectorAll('details')).map(one => one.open)"
    before = page.evaluate(folded)
    widths = "Array.from(document.querySelectorAll('.chart svg')).map(one => one.getBoundingClientRect().width)"
    assert max(page.evaluate(widths)) > A4
    page.set_viewport_size({"width": A4, "height": 980})
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    printed = page.evaluate(widths)
    assert len(printed) == charts
    assert max(printed) <= A4
    assert page.evaluate("document.documentElement.scrollWidth") <= A4
    assert page.locator("#unknown table").is_visible(), "what is unknown is printed"
    assert not page.locator("#trials table").is_visible(), "a table of 169 rows is not"
    page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert page.evaluate(folded) == before
    assert page.pdf(format="A4").startswith(b"%PDF-")


def test_hostile_text_is_shown_as_text(opened, pages):
    page = drawn(opened(pages["hostile"][0], 1280, "light"))
    assert "<script>document.title='owned'</script>" in page.inner_text(".question")
    assert page.locator("img").count() == 0
