"""The GPUs of a machine and the links between them, drawn from what `nvidia-smi topo -m` printed before the sweep.

GPUs of one NUMA node stand side by side; the nearer the link, the thicker the line. Network devices are named in the
caption only: their lines would hide those between GPUs. Called by `charts.figures`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import altair as alt
import polars as pl

from rtxscale.report.charts.figure import Figure, chart_of, series_color, tooltips
from rtxscale.topology.drawing import Drawing, DrawnDevice, DrawnLink, draw
from rtxscale.topology.smi import TOPOLOGY_COMMAND, parse_topology

SUBJECT, NAME = "doctor", f"text of {TOPOLOGY_COMMAND}"
UNKNOWN = "unknown"
MACHINES = 4
"""Most machines drawn, each different one once."""
_HINTS = tooltips(pair="pair", series="link", meaning="means")
SPAN = 1.3
"""Reach of the axes around the circle of radius 1."""


def topology_figures(environment: pl.DataFrame) -> Iterator[Figure]:
    """One drawing per different topology; none where the tool gave no matrix, or of a single GPU."""
    texts = environment.filter((pl.col("subject") == SUBJECT) & (pl.col("name") == NAME))
    found = texts.group_by("value", maintain_order=True).agg(pl.col("node").unique().sort()).head(MACHINES)
    for place, row in enumerate(found.iter_rows(named=True), start=1):
        topology = parse_topology(_as_printed(row["value"] or ""))
        drawing = draw(topology, nics=False)
        if len(drawing.devices) > 1:
            where = f", {_machines(row['node'])}" if found.height > 1 else ""
            yield _figure(drawing, topology.nics, f"topology-{place}" if found.height > 1 else "topology", where)


def _as_printed(text: str) -> str:
    """The tool's own text: results hold what a terminal would obey as escapes."""
    return text.replace("\\t", "\t").replace("\\x1b", "\x1b")


def _machines(nodes: list[str]) -> str:
    return f"machine {nodes[0][:8]}" if len(nodes) == 1 else f"{len(nodes)} machines"


def _figure(drawing: Drawing, nics: Sequence[str], key: str, where: str) -> Figure:
    gpus = sorted(drawing.devices, key=lambda device: (device.numa or "", _number(device.name)))
    places = {device.name: _place(index, len(gpus)) for index, device in enumerate(gpus)}
    links = sorted(drawing.links, key=lambda link: -(math.inf if link.distance is None else link.distance))
    labels = _labels(links)
    rows = [_link(link, places) for link in links]
    return Figure(
        key=key,
        section="topology",
        title=f"Links between {len(gpus)} GPUs{where}",
        caption=_caption(links, gpus, nics),
        chart=_layers(labels, {row["series"]: row["width"] for row in rows}, len(gpus)),
        datasets={
            "links": rows,
            "gpus": [_gpu(device, places[device.name]) for device in gpus],
        },
        labels=tuple(labels),
        shaped=False,
    )


def _number(name: str) -> int:
    digits = name.removeprefix("GPU")
    return int(digits) if digits.isdecimal() else 0


def _place(index: int, count: int) -> tuple[float, float]:
    """On a circle, the first at the left; two stand side by side."""
    angle = math.pi - 2 * math.pi * index / count
    return round(math.cos(angle), 4), round(math.sin(angle), 4)


def _labels(links: Sequence[DrawnLink]) -> list[str]:
    """Kinds of links, nearest first."""
    return list(dict.fromkeys(link.label or UNKNOWN for link in reversed(links)))


def _link(link: DrawnLink, places: dict[str, tuple[float, float]]) -> dict[str, Any]:
    (x, y), (x2, y2) = places[link.a], places[link.b]
    return {
        "series": link.label or UNKNOWN,
        "pair": f"{link.a} to {link.b}",
        "meaning": link.meaning or UNKNOWN,
        "width": 1.0 if link.distance is None else max(1.0, 7.0 - link.distance * 0.8),
        "x": x,
        "y": y,
        "x2": x2,
        "y2": y2,
    }


def _gpu(device: DrawnDevice, place: tuple[float, float]) -> dict[str, Any]:
    numa = f"NUMA node {device.numa}" if device.numa else "NUMA node unknown"
    return {"name": device.name.replace("GPU", "GPU "), "numa": numa, "x": place[0], "y": place[1]}


def _caption(links: Sequence[DrawnLink], gpus: Sequence[DrawnDevice], nics: Sequence[str]) -> str:
    counts = Counter((link.label or UNKNOWN, link.meaning or UNKNOWN) for link in reversed(links))
    words = "; ".join(f"{label}: {meaning} ({_pairs(count)})" for (label, meaning), count in counts.items())
    numa = {device.numa for device in gpus if device.numa}
    words += f". GPUs on {len(numa)} NUMA nodes." if len(numa) > 1 else "."
    if nics:
        words += f" Not drawn: {len(nics)} network device{'s' if len(nics) > 1 else ''}."
    return (
        f"As `{TOPOLOGY_COMMAND}` printed it. {words} How two GPUs hang together says nothing about P2P being allowed."
    )


def _pairs(count: int) -> str:
    return "1 pair" if count == 1 else f"{count} pairs"


def _layers(labels: list[str], widths: dict[str, float], count: int) -> alt.TopLevelMixin:
    """Links by kind, the farthest at the bottom, then the GPUs."""
    reach = SPAN if count > 2 else 1.0
    x = alt.X("x:Q", axis=None, scale=alt.Scale(domain=[-SPAN, SPAN], nice=False))
    y = alt.Y("y:Q", axis=None, scale=alt.Scale(domain=[-reach, reach], nice=False))
    links = chart_of("links").encode(x=x, y=y, x2="x2:Q", y2="y2:Q", color=series_color(labels), tooltip=_HINTS)
    gpus = chart_of("gpus")
    return alt.layer(
        *(
            links.transform_filter(alt.FieldEqualPredicate(field="series", equal=label)).mark_rule(
                strokeWidth=widths[label], opacity=0.85
            )
            for label in reversed(labels)
        ),
        gpus.mark_point(shape="square", size=2600, filled=True, style="device").encode(
            x=x, y=y, tooltip=tooltips(name="device", numa="place")
        ),
        gpus.mark_text(style="device-label").encode(x=x, y=y, text="name:N"),
    ).properties(width="container", height=300 if count > 2 else 90)
