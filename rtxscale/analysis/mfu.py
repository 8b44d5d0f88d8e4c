"""Model FLOPs utilisation: what the model needs, over the documented dense peak of the card with fp32 accumulation.

None where the model's FLOPs were not recorded, the card's peak is not documented, or the precision is not the one that
the peak is documented for; the note says which. Beside it the same over the roof, the rate of matrix products in that
precision that the sessions measured, which needs no known card. Called by `analysis.interpret`.

    MFU = throughput x FLOPs per unit of work / (GPUs x peak)      roof utilisation = the same / (GPUs x roof)
"""

from __future__ import annotations

import polars as pl

from rtxscale.analysis.frames import empty, shaped
from rtxscale.analysis.tables import MFU
from rtxscale.devices.gpus import find_gpu

PEAK_PRECISION = "bf16"
NOT_RECORDED = "the model's FLOPs per unit of work are not recorded"
TERA = 1e12


def mfu_table(cells: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """One row per cell on GPUs with a throughput; `mfu` is null and `note` says why where it cannot be known."""
    rows = cells.filter(pl.col("throughput_per_s").is_not_null() & (pl.col("device") != "cpu").fill_null(value=True))
    if not rows.height:
        return empty(MFU)
    facts = counted.group_by("cell_id").agg(
        pl.col("flops_per_work", "precision").drop_nulls().first(), pl.col("roof_tflops").mean()
    )
    rows = rows.join(facts, on="cell_id", how="left", maintain_order="left")
    known = {name: find_gpu(name) for name in rows["device_name"].drop_nulls().unique()}
    peaks = {
        name: card.bf16_tflops for name, card in known.items() if card is not None and card.bf16_tflops is not None
    }
    sources = {
        name: card.source_of("bf16_tflops") for name, card in known.items() if card is not None and name in peaks
    }
    name = pl.col("device_name")
    rows = rows.with_columns(
        peak_tflops=name.replace_strict(peaks, default=None, return_dtype=pl.Float64),
        source=name.replace_strict(sources, default=None, return_dtype=pl.String),
    )
    reason = (
        pl.when(pl.col("flops_per_work").is_null())
        .then(pl.lit(NOT_RECORDED))
        .when(pl.col("peak_tflops").is_null())
        .then(pl.format("no documented peak of {}", name.fill_null("the card, which is not named")))
        .when((pl.col("precision") != PEAK_PRECISION).fill_null(value=True))
        .then(
            pl.format(
                "the documented peak is that of bf16; the precision is {}", pl.col("precision").fill_null("unknown")
            )
        )
    )
    needed = pl.col("flops_per_work") / (pl.col("gpus") * TERA)
    per_work = {
        "mfu": pl.when(reason.is_null()).then(needed / pl.col("peak_tflops")),
        "roof_utilisation": pl.when(pl.col("roof_tflops") > 0).then(needed / pl.col("roof_tflops")),
    }
    throughput = {"": "throughput_per_s", "_low": "throughput_low", "_high": "throughput_high"}
    found = {
        f"{name}{end}": pl.col(column) * share for name, share in per_work.items() for end, column in throughput.items()
    }
    return shaped(rows.with_columns(note=reason, **found), MFU)
