"""One chart ready to be shown, and the pieces that several charts share.

A `Figure` carries its words apart from the drawing, so that the page can set them as text that wraps and is read aloud,
and its rows apart from the chart, which Altair would copy and check over and over. Field names are our own: names from
a sweep, with their dots, colons and brackets, are only ever values. Called by the chart builders, `page` and `export`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt

from rtxscale.report.charts.theme import LIGHT, SHAPES, config
from rtxscale.report.numbers import finite, plain, short
from rtxscale.spec.printable import printable

LABEL_LIMIT = 90
LINE = 20
"""Characters of a line of a long label on a narrow screen."""
WRAPPED = (
    f"width < 320 ? slice(split(replace(datum.label, regexp('(.{{1,{LINE}}})(?: +|$)', 'g'), '$1\\n'), '\\n'), 0, -1) "
    ": datum.label"
)
"""What an axis of settings shows: on a narrow screen in several lines, broken between words."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A chart and its words. `key` is unique in a report and fit for a file name; `section` groups figures."""

    key: str
    section: str
    title: str
    caption: str
    chart: alt.TopLevelMixin
    datasets: dict[str, list[dict[str, Any]]]
    """Rows of each name that `chart` refers to."""
    labels: tuple[str, ...] = ()
    """Legend entries in the order of colours and shapes."""
    shaped: bool = True
    """Whether series differ in shape too."""
    wide: bool = False
    """Whether it needs the whole width of the page."""

    def spec(self) -> dict[str, Any]:
        """Vega-Lite specification with its rows: strict JSON, long texts shortened, every text safe to draw."""
        rows = {name: [_clean(row) for row in rows] for name, rows in self.datasets.items()}
        drawing: dict[str, Any] = drawable(self.chart.to_dict())
        return {**drawing, "datasets": rows}

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """How a notebook shows it: drawn where Vega-Lite can be, else its words."""
        version = alt.SCHEMA_VERSION.lstrip("v").partition(".")[0]
        drawn = {**self.spec(), "config": config(LIGHT)}
        return {f"application/vnd.vegalite.v{version}+json": drawn, "text/plain": f"{self.title}. {self.caption}"}


def chart_of(name: str) -> alt.Chart:
    """A chart of the figure's rows of that name."""
    return alt.Chart(alt.NamedData(name))


def drawable(spec: Any) -> Any:
    r"""The same data with its texts `printable`: a picture is XML, which has no place for control characters.

    >>> drawable({"title": ["im\x1bages"], "size": 1})
    {'title': ['im\\x1bages'], 'size': 1}
    """
    if isinstance(spec, str):
        return printable(spec)
    if isinstance(spec, dict):
        return {name: drawable(item) for name, item in spec.items()}
    return [drawable(item) for item in spec] if isinstance(spec, list) else spec


def any_known(rows: Iterable[Mapping[str, Any]], field: str) -> bool:
    """Whether any row has a number there; Vega complains about layers without any."""
    return any(finite(row[field]) is not None for row in rows)


def series_color(labels: list[str]) -> alt.Color:
    """Colour of each series, in the theme's order."""
    return alt.Color("series:N", scale=alt.Scale(domain=_domain(labels)))


def series_shape(labels: list[str]) -> alt.Shape:
    """Shape of each series: repeats the colour for those who cannot tell it."""
    shapes = [shape_of(index) for index in range(len(labels))]
    return alt.Shape("series:N", scale=alt.Scale(domain=_domain(labels), range=shapes))


def shape_of(index: int) -> str:
    """Vega's name of the shape of the series at that place."""
    return tuple(SHAPES)[index % len(SHAPES)]


def tooltips(**titles: str) -> list[alt.Tooltip]:
    """Tooltip entries of text fields: field name -> title."""
    return [alt.Tooltip(f"{name}:N", title=title) for name, title in titles.items()]


def _clean(row: Mapping[str, Any]) -> dict[str, Any]:
    return {name: short(value, LABEL_LIMIT) if isinstance(value, str) else value for name, value in plain(row).items()}


def _domain(labels: list[str]) -> list[str]:
    return [short(label, LABEL_LIMIT) for label in labels]
