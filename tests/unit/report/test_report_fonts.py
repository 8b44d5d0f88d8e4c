"""Reports and pictures carry their typeface: they look the same on a machine that does not have it."""

from __future__ import annotations

import base64
import re

import vl_convert

from rtxscale.report.charts.export import write_charts
from rtxscale.report.charts.figures import figures
from rtxscale.report.fonts import font_faces, register_fonts, with_fonts

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="200" height="40"><text y="30" font-family="{}">Rg 12</text></svg>'


def test_the_page_and_every_svg_hold_the_typeface_and_ask_for_nothing(cpu, tmp_path):
    faces = re.findall(r"url\((data:font/ttf;base64,([^)]+))\)", font_faces())
    fonts = [base64.b64decode(data) for _, data in faces]
    assert [font[:4] for font in fonts] == [b"\x00\x01\x00\x00"] * 2
    assert fonts[0] != fonts[1]
    drawn = figures(cpu.run, cpu.conclusions)[:1]
    (path,) = write_charts(drawn, tmp_path / "charts", ("svg",))
    text = path.read_text()
    assert text.count("@font-face") == 2
    assert 'font-family="Roboto' in text
    assert not re.search(r"url\((?!data:|#)", text)


def test_pictures_are_drawn_with_it_whatever_the_machine_has():
    register_fonts()
    ours, unheard_of = (vl_convert.svg_to_png(SVG.format(name)) for name in ("Roboto", "No Such Typeface"))
    assert ours != unheard_of


def test_the_typeface_stands_behind_the_opening_tag_only():
    assert with_fonts('<svg width="1"><g/></svg>').startswith('<svg width="1"><style>@font-face{')
    assert with_fonts('<svg width="1"><g/></svg>').endswith("</style><g/></svg>")
