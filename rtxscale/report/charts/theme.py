"""The one look of every chart: fonts, grid, accessible colours, for light paper, dark screens and the page.

Colours of series come from Okabe and Ito, darkened or lightened where their contrast on the background falls under
3:1. In the page they are CSS variables, so that the same drawing follows light, dark and print without being redrawn;
exported pictures get the literal palette. Shapes repeat what colour says. Builders name a style or leave the colour
to the configuration; none of them knows a palette. Called by `page` and `export`.

Source: Okabe and Ito, Color Universal Design, 2008.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

FONT = 'Roboto, system-ui, -apple-system, "Segoe UI", "Liberation Sans", "DejaVu Sans", Arial, sans-serif'
"""The first is carried along (`report.fonts`); the others stand in for characters that it lacks."""
SHAPES = {
    "circle": "M6 1.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 1 0 0-9z",
    "square": "M2 2h8v8h-8z",
    "triangle-up": "M6 1.5L11 10.5H1z",
    "diamond": "M6 .5L10.5 6L6 11.5L1.5 6z",
    "cross": "M4.3 1h3.4v3.3H11v3.4H7.7V11H4.3V7.7H1V4.3h3.3z",
    "triangle-down": "M6 10.5L11 1.5H1z",
    "triangle-right": "M10.5 6L1.5 1v10z",
    "triangle-left": "M1.5 6L10.5 1v10z",
}
"""Vega's name of each shape -> the same as an SVG path in a box of 12, for legends set as text."""


@dataclass(frozen=True, kw_only=True)
class Palette:
    """Colours by role. `series` are told apart by people with colour-blindness, in this order."""

    paper: str
    paper_solid: str
    """The paper behind text that is set on a dark shape."""
    ink: str
    faint: str
    """Axis labels and captions."""
    grid: str
    context: str
    """Lines that give context and are not told apart."""
    shade: str
    """Areas behind words and lines."""
    target: str
    series: tuple[str, ...]


LIGHT = Palette(
    paper="#ffffff",
    paper_solid="#ffffff",
    ink="#1b1f24",
    faint="#57606a",
    grid="#e4e7eb",
    context="#c3c9d0",
    shade="#eef1f4",
    target="#a40e26",
    series=("#0072b2", "#d55e00", "#008a64", "#b3528b", "#9a6b00", "#2f8fcb", "#6b5ca5", "#5f6b76"),
)
DARK = Palette(
    paper="#15191e",
    paper_solid="#15191e",
    ink="#e8ebee",
    faint="#a3acb5",
    grid="#2c333b",
    context="#4a545f",
    shade="#1f262d",
    target="#ff8090",
    series=("#56b4e9", "#f0833a", "#2fc69b", "#dc93bd", "#e6b13a", "#9ad0f5", "#a99be0", "#9aa5b0"),
)
PAGE = Palette(
    paper="transparent",
    paper_solid="var(--paper)",
    ink="var(--ink)",
    faint="var(--faint)",
    grid="var(--grid)",
    context="var(--context)",
    shade="var(--shade)",
    target="var(--target)",
    series=tuple(f"var(--series-{number})" for number in range(1, 9)),
)

DIVERGING = ("#c4500a", "#f4f4f2", "#0b6aa8")
"""Slower than the reference, equal, faster: literal, since scales interpolate between them; readable on dark too."""


def legend_columns(labels: tuple[str, ...], width: float) -> int:
    """How many columns of a legend fit into `width` pixels, at about 6.6 pixels a character."""
    longest = max((len(label) for label in labels), default=0)
    return max(1, int(width / (6.6 * longest + 45)))


def css_variables(palette: Palette) -> str:
    """The palette as CSS declarations; `PAGE` refers to them."""
    roles = {name: getattr(palette, name) for name in ("paper", "ink", "faint", "grid", "context", "shade", "target")}
    series = {f"series-{number}": color for number, color in enumerate(palette.series, 1)}
    return "".join(f"--{name}:{color};" for name, color in {**roles, **series}.items())


def _styles(palette: Palette) -> dict[str, Any]:
    """Marks with a name of their own, which charts ask for by `style`."""
    return {
        "context": {"color": palette.context, "strokeWidth": 1, "opacity": 0.5},
        "ideal": {"color": palette.faint, "strokeWidth": 1.5, "strokeDash": [5, 4]},
        "target": {"color": palette.target, "strokeWidth": 1.5, "strokeDash": [2, 3]},
        "target-label": {"color": palette.target, "fontSize": 11},
        "halo": {"stroke": palette.paper_solid, "strokeWidth": 4, "strokeJoin": "round", "fontSize": 11},
        "note-label": {"color": palette.faint, "fontSize": 11},
        "expected": {"color": palette.target, "opacity": 0.1},
        "window": {"color": palette.shade, "opacity": 1},
        "slowdown": {"color": palette.target, "opacity": 0.18},
        "device": {"color": palette.ink, "opacity": 1},
        "device-label": {"color": palette.paper_solid, "fontSize": 12, "fontWeight": 500},
        "bar-label": {"color": palette.paper_solid, "fontSize": 12, "fontWeight": 500},
        "part-label": {"color": palette.ink, "fontSize": 12},
        "reference": {"color": palette.faint, "strokeWidth": 1},
        "interval": {"color": palette.ink, "strokeWidth": 1.5},
    }


def config(palette: Palette) -> dict[str, Any]:
    """The Vega-Lite configuration of that palette."""
    text = {"labelColor": palette.faint, "titleColor": palette.ink, "labelFontSize": 12, "titleFontSize": 12}
    return {
        "background": palette.paper,
        "font": FONT,
        "padding": {"left": 4, "right": 12, "top": 6, "bottom": 4},
        "view": {"stroke": None},
        "axis": {
            **text,
            "titleFontWeight": "normal",
            "domainColor": palette.context,
            "tickColor": palette.context,
            "gridColor": palette.grid,
            "labelPadding": 6,
            "titlePadding": 8,
            "labelOverlap": "greedy",
            "labelSeparation": 6,
        },
        "axisX": {"grid": False},
        "axisY": {"labelLimit": 260},
        "legend": {
            **text,
            "orient": "top",
            "direction": "horizontal",
            "title": None,
            "symbolSize": 70,
            "symbolStrokeWidth": 2,
            "symbolOpacity": 1,
            "rowPadding": 4,
            "columnPadding": 16,
            "labelLimit": 420,
            "offset": 10,
        },
        "header": {"labelColor": palette.ink, "titleColor": palette.ink, "labelFontSize": 12},
        "title": {
            "color": palette.ink,
            "subtitleColor": palette.faint,
            "anchor": "start",
            "fontSize": 15,
            "fontWeight": 500,
            "subtitleFontSize": 12,
            "offset": 12,
        },
        "style": _styles(palette),
        "line": {"strokeWidth": 2},
        "point": {"size": 60, "opacity": 1},
        "rule": {"strokeWidth": 1.5},
        "text": {"color": palette.ink, "fontSize": 12},
        "range": {"category": list(palette.series)},
    }
