"""The report: one HTML file that opens offline, on a phone, in the dark and on paper.

Charts are embedded as JSON and drawn by the bundled chart library; every text is escaped by the template. A content
security policy forbids every request, so that no string from a run can reach the network. Called by `cli`.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

import rtxscale
from rtxscale.analysis.conclusions import Conclusions
from rtxscale.report.charts.theme import DARK, LIGHT, PAGE, config, css_variables
from rtxscale.report.fonts import font_faces
from rtxscale.report.scripts import vega_bundle
from rtxscale.report.sections import content
from rtxscale.report.targets import check_file
from rtxscale.results.read import Run
from rtxscale.spec.declare import Declaration
from rtxscale.spec.printable import OBEYED, printable

RANGE = re.compile(r"(?<![\w.,-])\d[\d.,]*-\d[\d.,]*\d(?![\w-])")
"""An interval of two numbers in a text."""


def write_report(run: Run, conclusions: Conclusions, destination: Path, declaration: Declaration | None = None) -> Path:
    """Write the report whole or not at all; returns its absolute path. `declaration` is what the user knows beside it.

    Raises:
        BadInput: something other than a regular file is there, or its directory is not.
        OSError: `destination` cannot be written.
    """
    destination = check_file(destination)
    text = page(run, conclusions, declaration)
    handle, name = tempfile.mkstemp(dir=destination.parent, prefix=f".{destination.name}-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(destination)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return destination


def page(run: Run, conclusions: Conclusions, declaration: Declaration | None = None) -> str:
    """The report as one HTML text."""
    here = files(__package__)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, finalize=shown_text
    )
    environment.filters |= {"script_json": script_json, "with_code": with_code}
    template = environment.from_string(here.joinpath("page.html").read_text(encoding="utf-8"))
    return template.render(
        **content(run, conclusions, declaration or Declaration()),
        css=here.joinpath("page.css").read_text(encoding="utf-8"),
        fonts=font_faces(),
        light=css_variables(LIGHT),
        dark=css_variables(DARK),
        chart_config={**config(PAGE), "legend": {"disable": True}},
        bundle=vega_bundle(),
        version=rtxscale.__version__,
    )


def shown_text(value: Any) -> Any:
    r"""A text as the page may hold it: what is obeyed instead of shown as its escape; tabs stay.

    >>> shown_text("a\x1b\u202eb") == r"a\x1b\u202eb", shown_text("a\tb") == "a\tb"
    (True, True)
    """
    if not isinstance(value, str) or isinstance(value, Markup):
        return value
    return "\t".join(map(printable, value.split("\t")))


def with_code(text: str) -> Markup:
    """Escaped text in which what stands between backticks is set as code, and no interval is broken over lines.

    >>> print(with_code("`rtxscale show` <b>, 0.93-0.95"))
    <code>rtxscale show</code> &lt;b&gt;, <span class="whole">0.93-0.95</span>
    """
    escaped = RANGE.sub(r'<span class="whole">\g<0></span>', str(escape(shown_text(text))))
    return Markup(re.sub(r"`([^`]{1,200})`", r"<code>\1</code>", escaped))  # noqa: S704  escaped first


def script_json(value: Any) -> str:
    r"""Strict JSON that is safe between script tags: no sequence can end or open an element or a comment.

    >>> print(script_json("</script>"))
    "\u003c/script\u003e"
    """
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return re.sub(f"[<>&]|{OBEYED.pattern}", lambda found: f"\\u{ord(found.group()):04x}", text)
