"""Numbers held against what is known of the card and the link: rules as data, each with conditions and source.

A range applies only under its conditions; elsewhere it is shown as context and judges nothing. What lies outside is
flagged, never hidden or clipped: a surprise is either a fault or news. Called by `analysis.interpret`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from rtxscale.analysis.frames import shaped
from rtxscale.analysis.settings import in_words
from rtxscale.analysis.tables import SANITY
from rtxscale.devices.facts import EFFICIENCY_CONDITIONS, GpuFacts
from rtxscale.devices.gpus import find_gpu

Row = dict[str, Any]

EXPECTED, OUTSIDE, CONTEXT = "as expected", "outside", "context"
AMP = ("fp16", "bf16")
TARGET = 0.9
PCIE_GB_S: dict[str, float] = {
    "PCIe 3 x16": 16 * 8.0 * 128 / 130 / 8,
    "PCIe 4 x16": 16 * 16.0 * 128 / 130 / 8,
    "PCIe 5 x16": 16 * 32.0 * 128 / 130 / 8,
}
"""GB/s in one direction: lanes x GT/s x 128/130 coding / 8 bits; packets take some of it.

Source: PCI Express base specification 3.0, 4.0 and 5.0.
"""


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the rules look at: the conclusions' tables and each cell's settings, by cell id."""

    efficiency: pl.DataFrame
    effects: pl.DataFrame
    bandwidth: pl.DataFrame
    cells: Mapping[str, Mapping[str, Any]]

    def card(self, cell_id: str) -> GpuFacts | None:
        """What is documented of the card that a cell ran on."""
        name = self.cells[cell_id]["device_name"]
        return find_gpu(name) if name else None


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One signal: what is expected, under which conditions, from where; `find` holds a run against it."""

    name: str
    expectation: str
    conditions: str
    source: str
    find: Callable[[Case], Iterator[Row]]


def sanity_table(
    efficiency: pl.DataFrame, effects: pl.DataFrame, bandwidth: pl.DataFrame, cells: pl.DataFrame, counted: pl.DataFrame
) -> pl.DataFrame:
    """One row per rule and number that it can be held against; those outside first."""
    case = Case(efficiency=efficiency, effects=effects, bandwidth=bandwidth, cells=_described(cells, counted))
    rows = [
        {"rule": rule.name, "expectation": rule.expectation, "conditions": rule.conditions, "source": rule.source} | row
        for rule in RULES
        for row in rule.find(case)
    ]
    frame = shaped(pl.DataFrame(rows, schema=SANITY), SANITY)
    rank = pl.col("status").replace_strict({OUTSIDE: 0, EXPECTED: 1}, default=2, return_dtype=pl.Int64)
    return frame.sort(rank, maintain_order=True)


def sanity_remarks(sanity: pl.DataFrame) -> tuple[str, ...]:
    """One sentence per rule that a number breaks."""
    outside = sanity.filter(pl.col("status") == OUTSIDE)
    sentences = []
    for rule in outside["rule"].unique(maintain_order=True):
        rows = outside.filter(pl.col("rule") == rule)
        first = rows.row(0, named=True)
        more = f", and {rows.height - 1} more" if rows.height > 1 else ""
        sentences.append(f"Outside what is expected ({rule}): {first['words']}{more}. Source: {first['source']}.")
    return tuple(sentences)


def _described(cells: pl.DataFrame, counted: pl.DataFrame) -> dict[str, Mapping[str, Any]]:
    settings = counted.group_by("cell_id").agg(pl.col("precision", "compile").drop_nulls().first())
    joined = cells.select("cell_id", "label", "workload", "gpus", "device", "device_name").join(settings, on="cell_id")
    return {row["cell_id"]: row for row in joined.iter_rows(named=True)}


def _unmet(cell: Mapping[str, Any], card: GpuFacts, base_gpus: int) -> str:
    """Which of the conditions of the efficiency ranges a cell does not meet, in words; empty if it meets all."""
    unmet = [
        "" if str(cell["workload"] or "").startswith("vision/") else f"the workload is {cell['workload']}",
        "" if cell["precision"] in AMP else f"precision is {cell['precision'] or 'unknown'}",
        "" if cell["compile"] not in (None, "off") else f"compile is {cell['compile'] or 'unknown'}",
        "" if not card.nvlink else "the card has NVLink",
        "" if base_gpus == 1 else f"the base is {base_gpus} GPUs",
    ]
    return ", ".join(words for words in unmet if words)


def _points(case: Case) -> Iterator[tuple[Row, Mapping[str, Any]]]:
    """Points of weak curves on GPUs, without their bases."""
    for point in case.efficiency.iter_rows(named=True):
        cell = case.cells[point["cell_id"]]
        if point["curve"] == "weak" and point["cell_id"] != point["base_cell_id"] and cell["device"] != "cpu":
            yield point, cell


def _extra_gpu(case: Case) -> Iterator[Row]:
    """The efficiency of each further GPU against the card's documented range."""
    for point, cell in _points(case):
        card = case.card(point["cell_id"])
        if card is None or card.efficiency_range is None:
            continue
        low, high = card.efficiency_range
        scale = point["gpus"] / point["base_gpus"]
        bounds = [
            None if point[name] is None else (point[name] * scale - 1) / (scale - 1)
            for name in ("efficiency_low", "efficiency_high")
        ]
        unmet = _unmet(cell, card, point["base_gpus"])
        words = f"extra-GPU efficiency {point['extra_gpu']:.2f} of {cell['label']}, {card.label}: {low:.2f}-{high:.2f}"
        row = judged(point["extra_gpu"], bounds, (low, high), words, unmet)
        yield row | {"source": card.source_of("efficiency_range"), "cell_id": point["cell_id"], "gpus": point["gpus"]}


def _target(case: Case) -> Iterator[Row]:
    """Weak efficiency against the target for the cards that have one."""
    for point, cell in _points(case):
        card = case.card(point["cell_id"])
        if card is None or not card.p21_target:
            continue
        bounds = [point["efficiency_low"], point["efficiency_high"]]
        words = f"weak efficiency {point['efficiency']:.2f} of {cell['label']}, {card.label}: at least {TARGET}"
        row = judged(point["efficiency"], bounds, (TARGET, None), words, _unmet(cell, card, point["base_gpus"]))
        yield row | {"cell_id": point["cell_id"], "gpus": point["gpus"]}


def _superlinear(case: Case) -> Iterator[Row]:
    """Efficiencies whose whole interval lies above 1."""
    for point in case.efficiency.filter(pl.col("efficiency_low") > 1).iter_rows(named=True):
        label = case.cells[point["cell_id"]]["label"]
        words = f"{point['curve']} efficiency {point['efficiency']:.2f} of {label}: at most 1"
        bounds = [point["efficiency_low"], point["efficiency_high"]]
        row = judged(point["efficiency"], bounds, (None, 1.0), words, "")
        yield row | {"cell_id": point["cell_id"], "gpus": point["gpus"]}


def _link(case: Case) -> Iterator[Row]:
    """The largest bus bandwidth of each cell against what the card's PCIe link carries."""
    fastest = case.bandwidth.filter((pl.col("gpus") > 1) & pl.col("busbw_gb_s").is_not_null()).sort(
        "busbw_gb_s", descending=True
    )
    for point in fastest.unique("cell_id", keep="first", maintain_order=True).iter_rows(named=True):
        card = case.card(point["cell_id"])
        limit = PCIE_GB_S.get(card.link) if card else None
        if card is None or limit is None:
            continue
        unmet = "the card has NVLink, whose bandwidth is not in the table" if card.nvlink else ""
        operation = str(point["operation"]).replace("_", "-")
        words = f"{operation} at {point['busbw_gb_s']:.3g} GB/s in {point['label']}; {card.link} carries {limit:.3g}"
        row = judged(point["busbw_gb_s"], [point["busbw_low"], point["busbw_high"]], (None, limit), words, unmet)
        yield row | {"cell_id": point["cell_id"], "gpus": point["gpus"]}


def _compile(case: Case) -> Iterator[Row]:
    """What compile gains at the most GPUs against what it gains at one; nothing is expected of CPU workers."""
    if any(cell["device"] == "cpu" for cell in case.cells.values()):
        return
    gains = case.effects.filter((pl.col("axis") == "workload.compile") & (pl.col("reference") == "off"))
    for group in gains.partition_by("value", maintain_order=True):
        ordered = group.sort("gpus")
        one, most = ordered.row(0, named=True), ordered.row(-1, named=True)
        if one["gpus"] != 1 or most["gpus"] == 1 or None in (one["ratio"], most["ratio"]):
            continue
        known = None not in (one["ratio_low"], one["ratio_high"], most["ratio_low"], most["ratio_high"])
        bounds = [most["ratio_low"], most["ratio_high"]] if known else [None, None]
        nvlink = any((card := case.card(cell_id)) is not None and card.nvlink for cell_id in case.cells)
        floor = one["ratio_low"] if known else one["ratio"]
        mode = in_words("workload.compile", most["value"])
        words = f"{mode} gains {most['ratio']:.3f} at {most['gpus']} GPUs and {one['ratio']:.3f} at one"
        unmet = "the cards have NVLink" if nvlink else "" if known else "too few visits for an interval"
        row = judged(most["ratio"], bounds, (floor, None), words, unmet)
        yield row | {"gpus": most["gpus"]}


def judged(
    value: float, bounds: Iterable[float | None], expected: tuple[float | None, float | None], words: str, unmet: str
) -> Row:
    """A number against its range: outside only when its whole interval is, or itself where it has none."""
    low, high = (value if bound is None else bound for bound in bounds)
    least, most = expected
    outside = (least is not None and high < least) or (most is not None and low > most)
    status = CONTEXT if unmet else OUTSIDE if outside else EXPECTED
    return {
        "found": value,
        "expected_low": least,
        "expected_high": most,
        "status": status,
        "words": f"{words}; does not apply: {unmet}" if unmet else words,
    }


PLAYBOOK = "measurement playbook, sanity signals"
RULES: tuple[Rule, ...] = (
    Rule(
        name="extra-GPU efficiency",
        expectation="each GPU beyond the first adds what this card is known to add",
        conditions=EFFICIENCY_CONDITIONS,
        source=PLAYBOOK,
        find=_extra_gpu,
    ),
    Rule(
        name="target efficiency",
        expectation=f"weak data-parallel efficiency of at least {TARGET}",
        conditions=EFFICIENCY_CONDITIONS,
        source="measurement playbook, multi-GPU target",
        find=_target,
    ),
    Rule(
        name="superlinear",
        expectation="no efficiency above 1 beyond its interval",
        conditions="any; more cache or memory per GPU, or a slow base, explain it",
        source="horovod issue 1144 and others: mostly a slow base",
        find=_superlinear,
    ),
    Rule(
        name="link limit",
        expectation="no bus bandwidth above what the link carries in one direction",
        conditions="cards without NVLink, all GPUs on the documented link",
        source="PCI Express base specification: lanes x GT/s x 128/130",
        find=_link,
    ),
    Rule(
        name="compile on several GPUs",
        expectation="torch.compile gains at least as much on several GPUs as on one",
        conditions="over PCIe",
        source=PLAYBOOK,
        find=_compile,
    ),
)
