"""What the confirmation of selected cells found: the gain over the default in sessions that selected nothing.

The best of many cells is chosen partly for its luck, and what chose it cannot judge it. Trials of stage `confirm` are
of one selected cell and its default alone, so that their gain needs no widening for the choice; the family of all
confirmed cells of a run is corrected by Holm. A selection stays what it was when it was first confirmed. Called by
`analysis.conclude`, and by `cli.confirm` for what is to be confirmed.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from rtxscale.analysis.cells import Replicates, replicates
from rtxscale.analysis.conclusions import CONFIRMED_FASTER, CONFIRMED_SLOWER, NEEDS_VISITS, NOT_CONFIRMED, UNCONFIRMED
from rtxscale.analysis.counted import counted_trials, settled_trials
from rtxscale.analysis.frames import empty, moments, series, shaped
from rtxscale.analysis.pairs import paired_moments
from rtxscale.analysis.tables import CONFIRMED
from rtxscale.stats.compare import holm, ratio_test

SIGNIFICANT = 0.05
ALIKE = ["gpus", "batch_per_gpu", "global_batch", "rest"]
"""What a cell and its default have in common."""
PAIR = ["cell_id", "reference_id"]


def confirmed_table(
    trials: pl.DataFrame, cells: pl.DataFrame, measured: Replicates, best: pl.DataFrame
) -> pl.DataFrame:
    """One row per confirmed cell and curve.

    `trials` holds the rows of stage `confirm` as they are; `cells` is `CellTable.frame`, `measured` and `best` what the
    sweep itself says.
    """
    pairs = _pairs(trials, cells)
    if not pairs.height:
        return empty(CONFIRMED)
    confirming = replicates(counted_trials(settled_trials(trials)))
    rows = pairs.join(paired_moments(pairs.select(PAIR), PAIR, confirming), on=PAIR, how="left", maintain_order="left")
    test = ratio_test(moments(rows))
    rows = rows.with_columns(
        series("gain", test.ratio - 1),
        series("gain_low", test.low - 1),
        series("gain_high", test.high - 1),
        series("p_holm", holm(test.p_value)),
        pl.col("visits").fill_null(0),
    ).with_columns(verdict=_verdict())
    rows = rows.join(_selected_gains(pairs, measured), on=PAIR, how="left", maintain_order="left").rename(
        {"reference_id": "default_cell_id"}
    )
    apart = pl.col("throughput_per_s") / pl.col("default_throughput_per_s") - 1
    curves = best.select("curve", "default_cell_id").unique(maintain_order=True)
    rows = rows.join(curves, on="default_cell_id", how="left", maintain_order="left")
    rows = rows.with_columns(selected_gain=pl.coalesce("selected_gain", apart))
    return shaped(rows.sort("curve", "gpus", "label", descending=[True, False, False]), CONFIRMED)


def _pairs(trials: pl.DataFrame, cells: pl.DataFrame) -> pl.DataFrame:
    """Every cell with a trial of stage `confirm`, however it ended, beside the default that it is compared with."""
    tried = cells.filter(pl.col("cell_id").is_in(trials["cell_id"].unique().implode()) & ~pl.col("is_default"))
    default = cells.filter("is_default").sort("cell_id").unique(ALIKE, keep="first", maintain_order=True)
    reference = default.select(
        *ALIKE,
        pl.col("cell_id").alias("reference_id"),
        pl.col("throughput_per_s").alias("default_throughput_per_s"),
    )
    columns = [*ALIKE, "cell_id", "label", "throughput_per_s"]
    return tried.select(columns).join(reference, on=ALIKE, nulls_equal=True, maintain_order="left")


def _selected_gains(pairs: pl.DataFrame, measured: Replicates) -> pl.DataFrame:
    """The gain that the same pair shows in the sweep itself, over the visits that have both."""
    found = paired_moments(pairs.select(PAIR), PAIR, measured)
    return found.select(*PAIR, selected_gain=pl.col("log_mean").exp() - 1)


def _verdict() -> pl.Expr:
    significant = pl.col("p_holm") < SIGNIFICANT
    return (
        pl.when(pl.col("p_holm").is_null())
        .then(pl.lit(NEEDS_VISITS))
        .when(significant & (pl.col("gain") > 0))
        .then(pl.lit(CONFIRMED_FASTER))
        .when(significant & (pl.col("gain") < 0))
        .then(pl.lit(CONFIRMED_SLOWER))
        .otherwise(pl.lit(NOT_CONFIRMED))
    )


def with_confirmation(best: pl.DataFrame, confirmed: pl.DataFrame) -> pl.DataFrame:
    """The table of best cells with the confirmation's verdict where there is one."""
    if not confirmed.height:
        return best
    key = ["curve", "default_cell_id"]
    found = confirmed.unique(key, keep="first", maintain_order=True).select(
        *key, pl.col("cell_id").alias("confirmed_id"), pl.col("verdict").alias("found")
    )
    rows = best.join(found, on=key, how="left", nulls_equal=True, maintain_order="left")
    same = pl.col("cell_id") == pl.col("confirmed_id")
    is_default = pl.col("cell_id") == pl.col("default_cell_id")
    verdict = (
        pl.when(pl.col("confirmed_id").is_null() | is_default)
        .then("verdict")
        .when(same & (pl.col("found") == NEEDS_VISITS))
        .then(pl.lit(f"{UNCONFIRMED}: its confirmation {NEEDS_VISITS}"))
        .when(same)
        .then("found")
        .otherwise(pl.lit(f"{UNCONFIRMED}: another cell was confirmed"))
    )
    return rows.with_columns(verdict=verdict).drop("confirmed_id", "found")


def pairs_to_confirm(best: pl.DataFrame, confirmed: pl.DataFrame) -> list[dict[str, str]]:
    """`cell_id`, `default_cell_id` and `label` of what a confirmation has to measure, by GPU count.

    What has been confirmed before stays; beside it the best cells of the groups that were not, where they are not the
    default.
    """
    columns = ["gpus", "cell_id", "default_cell_id", "label"]
    selected = best.filter(pl.col("cell_id") != pl.col("default_cell_id"))
    rows = pl.concat([confirmed.select(columns), selected.select(columns)]).drop_nulls("default_cell_id")
    rows = rows.unique("default_cell_id", keep="first", maintain_order=True)
    return rows.sort("gpus", "label").select("cell_id", "default_cell_id", "label").to_dicts()


def confirmation_remarks(trials: pl.DataFrame, confirmed: pl.DataFrame, best: pl.DataFrame) -> Iterator[str]:
    """What a reader must know beside the confirmed gains; `trials` holds the rows of stage `confirm`."""
    settled = settled_trials(trials)
    lost = settled.height - counted_trials(settled).height
    if lost:
        yield (
            f"{lost} of {settled.height} trials of the confirmation did not end ok with a sound number and are not "
            "counted."
        )
    now = best.select("curve", "default_cell_id", pl.col("cell_id").alias("now"), pl.col("label").alias("now_label"))
    changed = confirmed.join(now, on=["curve", "default_cell_id"], maintain_order="left")
    changed = changed.filter(pl.col("now") != pl.col("cell_id")).unique("cell_id", maintain_order=True)
    for row in changed.iter_rows(named=True):
        yield (
            f"Confirmed is ({row['label']}), the best cell when it was selected; by now it is ({row['now_label']}). "
            "The selection stays, as a second choice would need a second confirmation: start a fresh run for that."
        )
