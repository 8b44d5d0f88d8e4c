"""README's pictures, drawn by the code from results that are committed: `python tests/gallery.py` draws them anew.

Each picture carries a digest of what it shows, so that `tests/unit/report/test_gallery.py` can tell one that is stale
in content without drawing it. The report itself is photographed by Chromium; without one its picture is left as it is.
"""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent / "unit"))

import polars as pl
from PIL import Image
from report.made_dossiers import GOLDEN, golden_run

from rtxscale.analysis.conclude import conclude
from rtxscale.analysis.conclusions import Conclusions
from rtxscale.report.charts.export import write_charts
from rtxscale.report.charts.figure import Figure
from rtxscale.report.charts.figures import figures
from rtxscale.report.charts.topology import topology_figures
from rtxscale.report.key_numbers import key_numbers
from rtxscale.report.page import write_report
from rtxscale.report.trial_counts import trial_counts
from rtxscale.results.read import Run, polars_schema

PICTURES = GOLDEN / "pictures"
REPORT = "report"
CHARTS = ("weak-efficiency", "heat-2", "effects", "bandwidth-all_reduce")
TOPOLOGY = "topo_6gpu_pix_node_sys_ansi.txt"
MARK = b"rtxscale content"
SCREEN = (1280, 1180)
DIGITS = 6
"""Significant digits that count as content; the last ones may differ between machines."""


@dataclass(frozen=True, kw_only=True)
class Picture:
    """One picture: its file, what draws it, and the digest of what it shows."""

    name: str
    digest: str
    figure: Figure | None = None

    @property
    def path(self) -> Path:
        """Where it is committed."""
        return PICTURES / f"{self.name}.png"


def gallery(run: Run, conclusions: Conclusions) -> Iterator[Picture]:
    """Every picture of the gallery, as it should be."""
    drawn = {figure.key: figure for figure in [*figures(run, conclusions), *_topologies()]}
    for name in (*CHARTS, "topology"):
        yield Picture(name=name, figure=drawn[name], digest=digest(content_of(drawn[name])))
    first = [content_of(figure) for figure in drawn.values() if figure.section == "scaling"]
    numbers = [[one.label, one.value, one.detail] for one in key_numbers(conclusions, "GPUs", trial_counts(run))]
    yield Picture(name=REPORT, digest=digest([conclusions.headline, numbers, *conclusions.remarks, *first]))


def _topologies() -> Iterator[Figure]:
    """Six GPUs on two sockets, as nvidia-smi prints them on somebody's machine."""
    text = (GOLDEN / "topology" / TOPOLOGY).read_text()
    row = {"node": "machine", "subject": "doctor", "name": "text of nvidia-smi topo -m", "value": text}
    return topology_figures(pl.DataFrame([row], schema=polars_schema("environment")))


def content_of(figure: Figure) -> Any:
    """What a chart says, whatever it looks like."""
    return [figure.title, figure.caption, list(figure.labels), figure.datasets]


def digest(content: Any) -> str:
    """SHA-256 of data as canonical JSON, numbers rounded."""
    return hashlib.sha256(json.dumps(rounded(content), sort_keys=True).encode()).hexdigest()


def rounded(value: Any) -> Any:
    """The same data with `DIGITS` significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS - 1}e}")
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    return [rounded(item) for item in value] if isinstance(value, list | tuple) else value


def small(png: bytes) -> bytes:
    """The same picture with 256 colours, which is all that charts have: a fifth of the bytes."""
    packed = io.BytesIO()
    Image.open(io.BytesIO(png)).convert("RGB").quantize(256, dither=Image.Dither.NONE).save(
        packed, "PNG", optimize=True
    )
    return packed.getvalue()


def marked(png: bytes, text: str) -> bytes:
    """The picture with its digest as a text chunk behind the header."""
    body = b"tEXt" + MARK + b"\0" + text.encode()
    chunk = struct.pack(">I", len(body) - 4) + body + struct.pack(">I", zlib.crc32(body))
    return png[:33] + chunk + png[33:]


def mark_of(png: bytes) -> str | None:
    """The digest that a picture carries."""
    place = 8
    while place < len(png):
        length, kind = struct.unpack(">I4s", png[place : place + 8])
        name, _, text = png[place + 8 : place + 8 + length].partition(b"\0")
        if kind == b"tEXt" and name == MARK:
            return text.decode()
        place += 12 + length
    return None


def photographed(page: Path, folder: Path) -> bytes | None:
    """The first screen of a report; None without a Chromium."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        return None
    flags = (
        *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--hide-scrollbars"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
        *("--virtual-time-budget=20000", "--force-device-scale-factor=1.5"),
    )
    size = f"--window-size={SCREEN[0]},{SCREEN[1]}"
    words = [browser, *flags, f"--user-data-dir={folder / 'profile'}", size, f"--screenshot={folder / 'page.png'}"]
    subprocess.run([*words, page.as_uri()], check=True, capture_output=True, timeout=120)
    return (folder / "page.png").read_bytes()


def main() -> None:
    """Draw every picture and write it where README shows it from."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = golden_run(folder, environment=[])
        conclusions = conclude(run)
        for picture in gallery(run, conclusions):
            if picture.figure is not None:
                (path,) = write_charts([picture.figure], folder / "charts", ("png",))
                png: bytes | None = path.read_bytes()
            else:
                png = photographed(write_report(run, conclusions, folder / "report.html"), folder)
            if png is None:
                print(f"{picture.path}: left as it is: no chromium on the PATH")
                continue
            picture.path.write_bytes(marked(small(png), picture.digest))
            print(picture.path)


if __name__ == "__main__":
    main()
