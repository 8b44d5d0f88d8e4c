"""Figures as PNG and SVG files, on white paper, with their titles drawn in.

The page sets titles as text; a picture that travels alone needs its own. Called by `cli.report`.
"""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import vl_convert

from rtxscale.report.charts.figure import Figure, drawable
from rtxscale.report.charts.theme import LIGHT, Palette, config, legend_columns
from rtxscale.report.fonts import register_fonts, with_fonts
from rtxscale.report.scripts import vega_lite_version
from rtxscale.report.targets import check_directory, check_file

WIDTH = 720
SCALE = 2.0
WRAP = 110
CLIP = re.compile(r'((?:id="|url\(#)clip)(\d+)')


def write_charts(figures: list[Figure], directory: Path, formats: tuple[str, ...] = ("png", "svg")) -> list[Path]:
    """Write every figure in each format; returns the paths in order.

    Raises:
        BadInput: the directory cannot be, or something other than a regular file has a picture's name in it.
        OSError: a picture cannot be written.
    """
    register_fonts()
    directory = check_directory(directory)
    directory.mkdir(exist_ok=True)
    paths = []
    for figure in figures:
        spec = picture_spec(figure)
        for kind in formats:
            path = check_file(directory / f"{figure.key}.{kind}")
            path.write_bytes(_rendered(spec, kind))
            paths.append(path)
    return paths


def picture_spec(figure: Figure, palette: Palette = LIGHT) -> dict[str, Any]:
    """The figure's specification with a fixed width, its title and its caption."""
    spec = figure.spec()
    caption = figure.caption.replace("`", "")  # marks code, which a picture does not set apart
    title = drawable({"text": figure.title, "subtitle": textwrap.wrap(caption, WRAP)})
    look = config(palette)
    look["legend"]["columns"] = legend_columns(figure.labels, WIDTH)
    return {**spec, "width": WIDTH, "title": title, "config": look}


def _rendered(spec: dict[str, Any], kind: str) -> bytes:
    if kind == "svg":
        return with_fonts(renumbered(str(vl_convert.vegalite_to_svg(spec, vl_version=vega_lite_version())))).encode()
    return bytes(vl_convert.vegalite_to_png(spec, vl_version=vega_lite_version(), scale=SCALE))


def renumbered(svg: str) -> str:
    """The same picture with its clip paths numbered from 0: Vega counts on from the picture before.

    >>> renumbered('<g clip-path="url(#clip7)"/><clipPath id="clip7">')
    '<g clip-path="url(#clip0)"/><clipPath id="clip0">'
    """
    places: dict[str, int] = {}
    return CLIP.sub(lambda found: f"{found[1]}{places.setdefault(found[2], len(places))}", svg)
