"""The chart library's JavaScript as one text, to be put into a page that must work offline.

vl-convert bundles it, which takes seconds; the result depends on its version alone and is kept in the user's cache
directory. A cache that cannot be read or written costs time, nothing else. Called by `page`.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from functools import cache
from importlib.metadata import version
from pathlib import Path

import altair as alt
import vl_convert

SNIPPET = "window.vegaEmbed=vegaEmbed;"


@cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed of the version Altair writes for, safe inside a script element."""
    path = cache_directory() / f"vega-{vega_lite_version()}-{version('vl-convert-python')}.js"
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        bundle = _closed(vl_convert.javascript_bundle(SNIPPET, vl_version=vega_lite_version()))
        _keep(path, bundle)
        return bundle


def vega_lite_version() -> str:
    """Major and minor version of Vega-Lite, such as `6.4`: the form that vl-convert takes."""
    return ".".join(alt.SCHEMA_VERSION.lstrip("v").split(".")[:2])


def cache_directory() -> Path:
    """`$XDG_CACHE_HOME/rtxscale`, else `~/.cache/rtxscale`."""
    given = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(given) if given else Path.home() / ".cache") / "rtxscale"


def _closed(script: str) -> str:
    # These two sequences would end or nest the script element; inside JavaScript strings the backslash changes nothing.
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _keep(path: Path, text: str) -> None:
    """Write whole or not at all; two writers at once do no harm."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".part")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        Path(name).replace(path)
