"""What measured bus bandwidths are held against: NCCL's own model from its log, and the rate of the cards' PCIe link.

Both are expectations, not measurements, and both are there only where the run holds what they are made from. Called by
`charts.figures`; drawn by `charts.bandwidth`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from rtxscale.devices.gpus import find_gpu
from rtxscale.doctor.rates import link_gb_s
from rtxscale.nccl.model import expected_bus_gb_s, read_model
from rtxscale.results.read import Run

PCIE_MAX = re.compile(r"generation (\d+), (\d+) lanes", re.ASCII)


@dataclass(frozen=True, kw_only=True)
class LinkLimit:
    """What a PCIe link carries in one direction after line coding, in GB/s."""

    gb_s: float
    words: str


@dataclass(frozen=True, kw_only=True)
class References:
    """`model` holds rows of operation, gpus, size (B) and busbw (GB/s); `silence` says why one is missing."""

    model: tuple[dict[str, Any], ...] = ()
    limit: LinkLimit | None = None
    silence: str = ""


def references_of(run: Run, bandwidth: pl.DataFrame, cells: pl.DataFrame, device: str = "cuda") -> References:
    """What a run gives to hold its bandwidths against."""
    if bandwidth.is_empty():
        return References()
    if device != "cuda":
        return References(silence="No prediction and no link limit: both are of NCCL on graphics cards.")
    model, limit = tuple(_model(run, bandwidth, cells)), link_limit(run)
    words = []
    if not model:
        words.append("No prediction: the run holds no log of a default cell in which NCCL printed its own model.")
    if limit is None:
        words.append(
            "No link limit: it is drawn for PCIe cards whose driver gave the link, not for NVLink or unknown cards."
        )
    return References(model=model, limit=limit, silence=" ".join(words))


def _model(run: Run, bandwidth: pl.DataFrame, cells: pl.DataFrame) -> Iterator[dict[str, Any]]:
    """What NCCL expects of the default settings at each GPU count, at the sizes that were measured."""
    defaults = cells.filter(pl.col("is_default") & (pl.col("gpus") > 1)).unique("gpus", maintain_order=True)
    measured = bandwidth.select("operation", "size_bytes").unique().sort("operation", "size_bytes")
    for cell_id, gpus in defaults.select("cell_id", "gpus").iter_rows():
        model = read_model(_lines(run, cell_id))
        for operation, size in measured.iter_rows():
            expected = expected_bus_gb_s(model, operation, size, gpus)
            if expected is not None:
                yield {"operation": operation, "gpus": gpus, "size": size, "busbw": round(expected, 3)}


def _lines(run: Run, cell_id: str) -> list[str]:
    """NCCL's lines in one trial of that cell, on rank 0."""
    trials = run.frame("trials").filter((pl.col("cell_id") == cell_id) & (pl.col("outcome") == "ok"))
    trial = trials.select("trial_id", "attempt").head(1)
    own = run.frame("logs").filter((pl.col("source") == "nccl") & (pl.col("rank") == 0))
    rows = own.join(trial, on=["trial_id", "attempt"], how="semi").sort("place").select("line").collect()
    return rows["line"].to_list()


def link_limit(run: Run) -> LinkLimit | None:
    """The slowest card's PCIe link, as its driver gives the maximum; None for cards with NVLink and where unknown."""
    gpus = run.frame("environment").filter(pl.col("subject") == "gpu").select("name", "value").collect()
    names = gpus.filter(pl.col("name").str.ends_with(" name"))["value"].drop_nulls().unique()
    cards = [find_gpu(name) for name in names]
    if not cards or any(card is None or card.nvlink for card in cards):
        return None
    links = gpus.filter(pl.col("name").str.ends_with("pcie max"))["value"].drop_nulls().unique()
    known = [match for match in map(PCIE_MAX.fullmatch, links) if match]
    limits = [(rate, match) for match in known if (rate := link_gb_s(int(match[1]), int(match[2]))) is not None]
    if not limits:
        return None
    rate, match = min(limits, key=lambda pair: pair[0])
    return LinkLimit(gb_s=round(rate, 2), words=f"PCIe {match[1]} x{match[2]} carries {rate:.3g} GB/s in one direction")
