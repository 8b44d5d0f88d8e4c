"""The page: complete, offline, safe with any string, small."""

from __future__ import annotations

import json
import os
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from rtxscale.errors import BadInput
from rtxscale.report import page as page_module
from rtxscale.report import scripts
from rtxscale.report.page import page, script_json, write_report
from rtxscale.report.targets import check_file

MIB = 2**20
LOADS = {"src", "href", "data", "poster", "action", "srcset"}


@pytest.fixture
def small_bundle(monkeypatch):
    monkeypatch.setattr(page_module, "vega_bundle", lambda: "window.vegaEmbed=null;")


@pytest.fixture(scope="module")
def h200_page(h200):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(page_module, "vega_bundle", lambda: "window.vegaEmbed=null;")
        return page(h200.run, h200.conclusions)


class Elements(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.tags, self.links, self.texts, self.scripts = [], [], [], []
        self._open = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.links += [value for name, value in attrs if name in LOADS]
        self._open = (tag, dict(attrs))
        if tag == "script":
            self.scripts.append([dict(attrs), ""])

    def handle_endtag(self, tag):
        self._open = None

    def handle_data(self, data):
        if self._open and self._open[0] == "script":
            self.scripts[-1][1] += data
        else:
            self.texts.append(data)


def test_the_page_holds_the_answer_and_everything_behind_it(h200, h200_page):
    shown = "".join(Elements(h200_page).texts)
    assert h200.conclusions.headline in shown
    for words in (
        "Weak scaling: efficiency",
        "Best cells",
        "Effect of each setting",
        "all-reduce: bus bandwidth against message size",
        "CUDA out of memory",
        "Power",
        "What NCCL and PyTorch really did",
        "2.11.0+cu128",
        "quick: not publishable",
        "quick profile: not publishable",
        "block means within 5 %",
        "2, in 10 sessions",
        "Which NCCL settings scale ResNet-50 best here?",
    ):
        assert words in shown, words
    assert all(remark in shown for remark in h200.conclusions.remarks)


def test_nothing_is_loaded_from_anywhere(h200_page):
    elements = Elements(h200_page)
    assert all(link.startswith("#") for link in elements.links)
    assert not {"link", "img", "iframe", "object", "base"} & set(elements.tags)
    assert "default-src 'none'" in h200_page
    assert "@import" not in h200_page
    # The typeface is data, and nothing else is pointed at.
    assert h200_page.count("url(") == h200_page.count("url(data:font/ttf;base64,") == 2


def test_every_chart_has_its_spec(h200_page):
    elements = Elements(h200_page)
    specs = {
        attrs["id"]: json.loads(body) for attrs, body in elements.scripts if attrs.get("type") == "application/json"
    }
    holders = re.findall(r'data-spec="([^"]+)"', h200_page)
    assert len(holders) == 11
    assert set(holders) | {"chart-config"} == set(specs)


def test_hostile_text_is_text(hostile, small_bundle):
    text = page(hostile.run, hostile.conclusions)
    elements = Elements(text)
    assert "<script>alert" not in text
    assert "49" not in "".join(part for part in elements.texts if "7*7" in part)
    assert any("</script><script>alert(1)</script>" in part for part in elements.texts)
    # 10 specs, the configuration, the bundle and the page's own script: nothing added, nothing cut off.
    assert len(elements.scripts) == len([a for a, _ in elements.scripts if a.get("type") == "application/json"]) + 2
    for attrs, body in elements.scripts:
        if attrs.get("type") == "application/json":
            json.loads(body)


def test_json_in_scripts_cannot_end_them_and_is_strict():
    nasty = {"a": "</script><!-- & \u2028\u2029"}
    assert not set("<>&\u2028\u2029") & set(script_json(nasty))
    assert json.loads(script_json(nasty)) == nasty
    with pytest.raises(ValueError, match="JSON"):
        script_json({"a": float("nan")})


def test_an_empty_run_still_has_a_page(empty, small_bundle):
    shown = " ".join(Elements(page(empty.run, empty.conclusions)).texts)
    assert empty.conclusions.headline in shown
    assert "unknown" in shown


def test_the_file_is_whole_or_absent(cpu, small_bundle, tmp_path, monkeypatch):
    path = write_report(cpu.run, cpu.conclusions, tmp_path / "report.html")
    assert path.is_absolute()
    assert list(path.parent.iterdir()) == [path]
    before = path.read_text()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(page_module.Path, "replace", full)
    with pytest.raises(OSError, match="No space"):
        write_report(cpu.run, cpu.conclusions, path)
    assert list(path.parent.iterdir()) == [path]
    assert path.read_text() == before


def test_only_a_regular_file_is_replaced(cpu, small_bundle, tmp_path):
    target, pipe, link = tmp_path / "file", tmp_path / "pipe", tmp_path / "link"
    target.write_text("mine")
    os.mkfifo(pipe)
    link.symlink_to(target)
    found = {tmp_path: "a directory", pipe: "a pipe", link: "a symbolic link", Path("/dev/full"): "a device"}
    for place, words in found.items():
        with pytest.raises(BadInput, match=f"found {words}; expected a regular file"):
            check_file(place)
    for place in (pipe, link, tmp_path / "missing" / "report.html", target / "report.html"):
        with pytest.raises(BadInput, match="nothing was written"):
            write_report(cpu.run, cpu.conclusions, place)
    assert sorted(tmp_path.iterdir()) == [target, link, pipe]
    assert pipe.is_fifo()
    assert target.read_text() == "mine"
    assert write_report(cpu.run, cpu.conclusions, target).read_text().startswith("<!DOCTYPE html>")


def test_the_real_file_is_small_and_complete(h200, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    scripts.vega_bundle.cache_clear()
    path = write_report(h200.run, h200.conclusions, tmp_path / "report.html")
    assert path.stat().st_size < 5 * MIB
    text = path.read_text()
    assert text.count("window.vegaEmbed=") == 1
    assert not re.search(r"<script[^>]+src=", text)
    # The bundle is kept, and what is kept is what is used.
    (kept,) = (tmp_path / "cache" / "rtxscale").iterdir()
    assert kept.read_text() in text
    kept.write_text("kept();")
    scripts.vega_bundle.cache_clear()
    assert scripts.vega_bundle() == "kept();"
    scripts.vega_bundle.cache_clear()


def test_a_cache_that_cannot_be_written_does_no_harm(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("not a directory")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr(scripts.vl_convert, "javascript_bundle", lambda *_, **__: "x('</script>');")
    scripts.vega_bundle.cache_clear()
    assert scripts.vega_bundle() == "x('<\\/script>');"
    scripts.vega_bundle.cache_clear()
