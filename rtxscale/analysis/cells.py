"""Cells and their replicates: one mean per cell and visit, because the replicate is the session, not the repeat.

Within a visit the mean is over repeats, then over the GPUs (slots) that a 1-GPU baseline ran on in turn: the same ones
in every visit. Called by `analysis.conclude`; everything later works on these small frames.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from rtxscale.analysis.conclusions import is_import
from rtxscale.analysis.frames import moments, over_visits, positive, series, shaped
from rtxscale.analysis.settings import (
    BATCH_AXES,
    DEFAULTS,
    SIZE_AXES,
    UNTOLD,
    Settings,
    held_count,
    in_words,
    is_communication,
    read_settings,
)
from rtxscale.analysis.tables import CELLS
from rtxscale.spec.cell import as_text
from rtxscale.spec.sweep import SUBJECT_AXES
from rtxscale.stats.intervals import geometric_mean_interval

LARGEST = 1e100
"""Means and squares of numbers up to this are finite."""


@dataclass(frozen=True, kw_only=True)
class Replicates:
    """Throughput of cells: `sessions` per cell, visit and session, `visits` per cell and visit (column `log`)."""

    sessions: pl.DataFrame
    visits: pl.DataFrame


@dataclass(frozen=True, kw_only=True)
class CellTable:
    """All cells with counted trials.

    `frame` has the columns of `CELLS` and the axes, and beside them study, work per step, device, the keys
    `communication` and `rest`, the words `series` and `defaults` and the moments `log_mean`, `log_var`, `visits`.
    """

    frame: pl.DataFrame
    settings: dict[str, Settings]
    axes: tuple[str, ...]

    def shown(self) -> pl.DataFrame:
        """The frame that goes into the conclusions."""
        columns = {f"axis:{axis}": pl.String() for axis in self.axes}
        return shaped(self.frame, {**CELLS, **columns})


def replicates(counted: pl.DataFrame) -> Replicates:
    """Means per session and per visit, and their logarithms, of the trials that have a throughput.

    Or another quantity in its place: numbers too large for means to be finite are left out.
    """
    throughput = pl.col("throughput_per_s")
    rows = counted.filter(throughput.abs() <= LARGEST).sort("trial_id")
    sessions = rows.group_by("cell_id", "visit", "session_id", maintain_order=True).agg(throughput.mean())
    slots = rows.group_by("cell_id", "visit", "slot", maintain_order=True).agg(throughput.mean())
    visits = slots.filter(_in_every_visit()).group_by("cell_id", "visit", maintain_order=True).agg(throughput.mean())
    log = throughput.log().alias("log")
    return Replicates(sessions=sessions.with_columns(log), visits=visits.with_columns(log))


def uneven_slots(counted: pl.DataFrame) -> pl.DataFrame:
    """Cells whose visits lack some of their GPUs: how many `slots` they have, how many are `common` to all visits."""
    rows = counted.filter(pl.col("throughput_per_s").is_not_null())
    seen = rows.group_by("cell_id", "slot").agg(pl.col("visit").n_unique().alias("seen"))
    visits = rows.group_by("cell_id").agg(pl.col("visit").n_unique().alias("visits"))
    common = (pl.col("seen") == pl.col("visits")).sum().alias("common")
    found = seen.join(visits, on="cell_id").group_by("cell_id").agg(pl.len().alias("slots"), common)
    return found.filter(pl.col("common") < pl.col("slots"))


def _in_every_visit() -> pl.Expr:
    """Rows (one per cell, visit and slot) of slots that all visits of their cell have; all rows where there is none."""
    common = pl.len().over("cell_id", "slot") == pl.col("visit").n_unique().over("cell_id")
    return common | ~common.any().over("cell_id")


def with_every_slot() -> pl.Expr:
    """Rows of visits that have all slots of their cell; all rows of a cell where no visit has."""
    whole = pl.col("slot").n_unique().over("cell_id", "visit") == pl.col("slot").n_unique().over("cell_id")
    return whole | ~whole.any().over("cell_id")


def slot_spread(counted: pl.DataFrame) -> pl.DataFrame:
    """Per 1-GPU cell that ran on several GPUs: how many, and (fastest - slowest) / mean of their throughputs.

    Over the visits that all of them have, if there are any: visits differ as well.
    """
    throughput = pl.col("throughput_per_s")
    rows = counted.filter(throughput.is_not_null()).filter(with_every_slot())
    slots = rows.group_by("cell_id", "slot").agg(throughput.mean())
    spread = (throughput.max() - throughput.min()) / throughput.mean()
    return (
        slots.group_by("cell_id")
        .agg(pl.len().alias("slots"), spread.alias("slot_spread"), throughput.min().alias("slowest"))
        .filter(pl.col("slots") > 1)
    )


def cell_table(counted: pl.DataFrame, measured: Replicates, axes_as_written: Mapping[str, Sequence[Any]]) -> CellTable:
    """Summarise every cell; the axes of the sweep come with their values, both in the order written."""
    facts = _facts(counted)
    axes = tuple(axes_as_written)
    held = held_count(facts["cell_json"], axes)
    settings = {
        cell_id: read_settings(cell_json, cell_id, axes, held)
        for cell_id, cell_json in facts.select("cell_id", "cell_json").iter_rows()
    }
    frame = facts.join(_moments(measured), on="cell_id", how="left", maintain_order="left")
    frame = frame.with_columns(_declared(settings, frame, name) for name in ("batch_per_gpu", "global_batch"))
    frame = frame.with_columns(_setting_columns(settings, frame["cell_id"].to_list(), axes))
    told = [axis for axis in axes if is_communication(axis)]
    untold = is_import(counted) and not told
    frame = _with_labels(frame, settings, axes, (held, UNTOLD if untold else DEFAULTS))
    frame = frame.with_columns(_defaults(told if is_import(counted) else None))
    frame = frame.sort("gpus", *_as_written(axes_as_written), "label", "cell_id", nulls_last=True)
    return CellTable(frame=frame, settings=settings, axes=axes)


def _as_written(axes: Mapping[str, Sequence[Any]]) -> Iterator[pl.Expr]:
    """The place of each cell's model and the like among the values of its axis."""
    for axis in (axis for axis in SUBJECT_AXES if axis in axes):
        places = {as_text(value): place for place, value in enumerate(axes[axis])}
        yield pl.col(f"axis:{axis}").replace_strict(places, default=None, return_dtype=pl.Int64)


def _facts(counted: pl.DataFrame) -> pl.DataFrame:
    first = ("cell_json", "gpus", "batch_per_gpu", "global_batch", "work_unit", "study", "device")
    return (
        counted.sort("trial_id")
        .group_by("cell_id", maintain_order=True)
        .agg(
            *(pl.col(name).drop_nulls().first() for name in first),
            pl.col("workload").drop_nulls().first().fill_null("an unnamed workload"),
            pl.len().alias("trials"),
            pl.col("visit").n_unique().alias("sessions"),
            pl.col("step_time_p50_s").mean(),
            positive("power_w").mean(),
            pl.col("temperature_max_c").max(),
            pl.col("memory_peak_mib").max(),
            (pl.col("work") / pl.col("window_steps")).mean().alias("work_per_step"),
            pl.col("device_names").list.sort().list.join(" + ").drop_nulls().first().alias("device_name"),
            pl.col("flags")
            .list.explode(empty_as_null=False)
            .drop_nulls()
            .unique()
            .sort()
            .str.join(", ")
            .alias("flags"),
        )
    )


def _moments(measured: Replicates) -> pl.DataFrame:
    frame = measured.visits.group_by("cell_id", maintain_order=True).agg(over_visits("log"))
    interval = geometric_mean_interval(moments(frame))
    return frame.with_columns(
        series("throughput_per_s", interval.estimate),
        series("throughput_low", interval.low),
        series("throughput_high", interval.high),
    )


def revalued(frame: pl.DataFrame, measured: Replicates) -> pl.DataFrame:
    """The cells of `CellTable.frame` with another quantity where throughput stands, such as work per joule.

    `measured` are the replicates of that quantity: `replicates` of trials that have it as `throughput_per_s`. What
    compares throughputs then compares it.
    """
    moments = _moments(measured)
    kept = frame.drop([name for name in moments.columns if name != "cell_id"])
    return kept.join(moments, on="cell_id", how="left", maintain_order="left")


def _declared(settings: dict[str, Settings], frame: pl.DataFrame, name: str) -> pl.Series:
    """A batch as the rows say it, else as their cell does: older rows lack the column."""
    texts = (settings[cell_id].flat.get(f"workload.{name}") for cell_id in frame["cell_id"])
    whole = [int(text) if text is not None and text.isdecimal() else None for text in texts]
    return frame[name].zip_with(frame[name].is_not_null(), pl.Series(name, whole, dtype=pl.Int64))


def _setting_columns(settings: dict[str, Settings], cells: list[str], axes: tuple[str, ...]) -> list[pl.Series]:
    known = [settings[cell_id] for cell_id in cells]
    return [
        pl.Series("communication", [item.communication for item in known], dtype=pl.String),
        pl.Series("rest", [item.rest for item in known], dtype=pl.String),
        pl.Series("rest_alone", [item.rest_alone for item in known], dtype=pl.String),
        pl.Series("is_default", [item.is_default for item in known], dtype=pl.Boolean),
        *(pl.Series(f"axis:{axis}", [item.values[axis] for item in known], dtype=pl.String) for axis in axes),
    ]


def _defaults(told: list[str] | None) -> pl.Expr:
    """Column `defaults`: what a cell without settings of the communication is known to have had, in words.

    `told` are the settings that an import speaks of, None where the trials are ours.
    """
    if told is not None:
        named = " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told)
        return pl.lit(f"{named} on auto" if told else UNTOLD).alias("defaults")
    on_cpu = (pl.col("device") == "cpu").fill_null(value=False)
    return pl.when(on_cpu).then(pl.lit(DEFAULTS)).otherwise(pl.lit("NCCL's and DDP's defaults")).alias("defaults")


def _with_labels(
    frame: pl.DataFrame, settings: dict[str, Settings], axes: tuple[str, ...], words: tuple[str, str]
) -> pl.DataFrame:
    """Add `label` (the whole cell) and `series` (without GPU count and batch) in words.

    `words` are the layout's held count, which the series keeps, and what a cell without settings is called.
    """
    held, plain = words
    kept = [axis for axis in axes if axis not in SIZE_AXES]
    batches = [axis for axis in axes if axis in BATCH_AXES]
    ordered = [axis for axis in kept if not is_communication(axis)] + [axis for axis in kept if is_communication(axis)]
    known = [settings[cell_id] for cell_id in frame["cell_id"]]
    layouts = _layout_words(known, axes, held)
    series_words = [
        ", ".join([*words, *item.words(ordered)]) or plain for words, item in zip(layouts, known, strict=True)
    ]
    labels = [
        ", ".join(
            [
                f"gpus {gpus}",
                *([item.layout] if item.layout else []),
                *item.words(batches),
                *(item.words(ordered) or [plain] * (gpus > 1)),
            ]
        )
        for gpus, item in zip(frame["gpus"], known, strict=True)
    ]
    frame = frame.with_columns(
        pl.Series("label", labels, dtype=pl.String), pl.Series("series", series_words, dtype=pl.String)
    )
    batch = pl.format("{}, batch {} per GPU", "label", "batch_per_gpu")
    return frame.with_columns(label=pl.when(pl.col("label").is_duplicated()).then(batch).otherwise("label"))


def _layout_words(known: list[Settings], axes: tuple[str, ...], held: str) -> list[list[str]]:
    """What tells the curves of a sweep apart by where their workers are: the held count and the placement."""
    several = len({item.flat.get(held) for item in known} - {None}) > 1
    paths = [*([held] if several else []), *(["placement"] if "placement" in axes else [])]
    return [[in_words(path, item.flat[path]) for path in paths if path in item.flat] for item in known]
