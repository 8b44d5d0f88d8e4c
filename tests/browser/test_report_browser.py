"""The report in a real browser: every chart is drawn, nothing is complained about, nothing is requested."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rtxscale.report.page import write_report

sys.path.insert(0, str(Path(__file__).parents[1] / "unit"))

from report import made_runs

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--virtual-time-budget=20000"),
    *("--enable-logging=stderr", "--dump-dom"),
)
HOSTILE = "</script><script>document.title='owned'</script><img src=x onerror=alert(1)> \"'"

pytestmark = pytest.mark.skipif(BROWSER is None, reason="needs chromium or google-chrome on the PATH")


def opened(path, profile, width):
    words = [BROWSER, *FLAGS, f"--user-data-dir={profile}", f"--window-size={width},2000", path.as_uri()]
    return subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)


@pytest.mark.parametrize("width", [500, 1280])
@pytest.mark.parametrize("hostile", ["", HOSTILE])
def test_all_charts_are_drawn_and_nothing_is_said(tmp_path, width, hostile):
    made = made_runs.h200_run(tmp_path / "results", visits=1 if hostile else 2, hostile=hostile)
    page = write_report(made.run, made.conclusions, tmp_path / "report.html")
    done = opened(page, tmp_path / "profile", width)
    assert 'data-drawn="10"' in done.stdout
    assert "chart failed" not in done.stdout
    assert len(re.findall(r'<svg[^>]+class="marks"', done.stdout)) == 10
    assert "<title>nccl-resnet50: scaling report</title>" in done.stdout
    assert not [line for line in done.stderr.splitlines() if "CONSOLE" in line]
