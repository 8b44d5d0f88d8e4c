"""Model FLOPs utilisation: what the model needs, over the documented dense peak of the card with fp32 accumulation.

None where the model's FLOPs were not recorded, or no peak is documented of the card in the precision that the trial
computed in; the note says which. A peak stands for no other precision than its own. Beside it the same over the roof,
the rate of matrix products in the trial's precision that the sessions measured, which needs no known card. Called by
`analysis.interpret`.

    MFU = throughput x FLOPs per unit of work / (GPUs x peak)      roof utilisation = the same / (GPUs x roof)
"""

from __future__ import annotations

import polars as pl

from rtxscale.analysis.frames import empty, positive, shaped
from rtxscale.analysis.tables import MFU
from rtxscale.devices.gpus import find_gpu

NOT_RECORDED = "the model's FLOPs per unit of work are not recorded"
TERA = 1e12


def mfu_table(cells: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """One row per cell on GPUs with a throughput; `mfu` is null and `note` says why where it cannot be known."""
    rows = cells.filter(pl.col("throughput_per_s").is_not_null() & (pl.col("device") != "cpu").fill_null(value=True))
    if not rows.height:
        return empty(MFU)
    flops, roof = positive("flops_per_work"), positive("roof_tflops")
    facts = counted.group_by("cell_id").agg(
        flops.drop_nulls().first(), pl.col("precision").drop_nulls().first(), roof.mean()
    )
    rows = rows.join(facts, on="cell_id", how="left", maintain_order="left")
    rows = rows.join(_peaks(rows), on=["device_name", "precision"], how="left", maintain_order="left")
    card = pl.col("device_name").fill_null("the card, which is not named")
    reason = (
        pl.when(pl.col("flops_per_work").is_null())
        .then(pl.lit(NOT_RECORDED))
        .when(pl.col("peak_tflops").is_null())
        .then(pl.format("no documented peak of {} in {}", card, pl.col("precision").fill_null("an unknown precision")))
    )
    needed = pl.col("flops_per_work") / (pl.col("gpus") * TERA)
    per_work = {
        "mfu": pl.when(reason.is_null()).then(needed / pl.col("peak_tflops")),
        "roof_utilisation": needed / pl.col("roof_tflops"),
    }
    throughput = {"": "throughput_per_s", "_low": "throughput_low", "_high": "throughput_high"}
    found = {
        f"{name}{end}": pl.col(column) * share for name, share in per_work.items() for end, column in throughput.items()
    }
    return shaped(rows.with_columns(note=reason, **found), MFU)


def _peaks(rows: pl.DataFrame) -> pl.DataFrame:
    """Peak and source of every card and precision of which one is documented."""
    found = [
        {"device_name": name, "precision": precision, "peak_tflops": peak, "source": card.source_of("peaks")}
        for name, precision in rows.select("device_name", "precision").drop_nulls().unique().iter_rows()
        if (card := find_gpu(name)) is not None and (peak := card.peak_tflops(precision)) is not None
    ]
    schema = {"device_name": pl.String, "precision": pl.String, "peak_tflops": pl.Float64, "source": pl.String}
    return pl.DataFrame(found, schema=schema)
