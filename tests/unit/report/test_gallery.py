"""README's pictures show what the code says of the committed results today, and README shows all of them."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rtxscale.analysis.conclude import conclude

from . import made_dossiers as made

sys.path.insert(0, str(Path(__file__).parents[2]))

import gallery

README = Path(__file__).parents[3] / "README.md"


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    run = made.golden_run(tmp_path_factory.mktemp("gallery"), environment=[])
    return list(gallery.gallery(run, conclude(run)))


def test_no_picture_is_stale_in_content(pictures):
    stale = [one.name for one in pictures if gallery.mark_of(one.path.read_bytes()) != one.digest]
    assert stale == [], "draw them anew: python tests/gallery.py"


def test_readme_shows_every_picture_and_no_other(pictures):
    shown = set(re.findall(r"tests/golden/pictures/([\w-]+)\.png", README.read_text()))
    assert shown == {one.name for one in pictures} == {path.stem for path in gallery.PICTURES.glob("*.png")}


def test_another_number_is_another_content_and_its_last_digits_are_not():
    assert gallery.digest([{"rate": 4345.21}]) != gallery.digest([{"rate": 4345.31}])
    assert gallery.digest([{"rate": 0.1 + 0.2}]) == gallery.digest([{"rate": 0.3}])


def test_a_picture_keeps_its_mark_and_stays_a_picture(pictures):
    png = pictures[0].path.read_bytes()
    again = gallery.marked(png[:33] + png[33:], "0" * 64)
    assert gallery.mark_of(again) == "0" * 64
    assert again[:8] == b"\x89PNG\r\n\x1a\n"
    assert again.endswith(png[-12:])
