"""The one typeface of reports and pictures, carried inside them: Roboto, so that they look the same everywhere.

The files and their licence are in the folder `roboto`. Characters beyond Latin come from the reader's own fonts.
Called by `page` and `export`; the theme only names the family.
"""

from __future__ import annotations

import base64
from functools import cache
from importlib.resources import as_file, files

import vl_convert

FOLDER = "roboto"
WEIGHTS = (400, 500)
"""Regular, and what headings are set in."""


@cache
def font_faces() -> str:
    """The typeface as CSS, its files inside as data; no request is made for it."""
    folder = files(__package__).joinpath(FOLDER)
    faces = []
    for weight in WEIGHTS:
        data = base64.b64encode(folder.joinpath(f"roboto-{weight}.ttf").read_bytes()).decode("ascii")
        faces.append(
            f'@font-face{{font-family:"Roboto";font-weight:{weight};'
            f'src:url(data:font/ttf;base64,{data}) format("truetype")}}'
        )
    return "".join(faces)


def with_fonts(svg: str) -> str:
    """The same picture with the typeface inside."""
    start = svg.index("<svg")
    end = svg.index(">", start) + 1
    return f"{svg[:end]}<style>{font_faces()}</style>{svg[end:]}"


@cache
def register_fonts() -> None:
    """Let pictures be drawn with the typeface on machines that do not have it; once a process."""
    with as_file(files(__package__).joinpath(FOLDER)) as folder:
        vl_convert.register_font_directory(str(folder))
