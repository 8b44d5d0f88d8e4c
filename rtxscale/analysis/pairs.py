"""Log ratios of otherwise equal cells, paired within a session where they share one, else within a visit.

Pairing removes what the two have in common: the day, the temperature, the session. Several pairs of one question are
averaged within the visit, so the visit stays the replicate; they are the same pairs in every visit, because a mean
over other pairs is another quantity. Called by `analysis.effects` and `analysis.best`.
"""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from rtxscale.analysis.cells import Replicates
from rtxscale.analysis.frames import over_visits

PAIR = {"cell_id": 1, "reference_id": -1}
"""Columns of a pair, each with the sign of its logarithm."""


def paired_moments(pairs: pl.DataFrame, question: list[str], measured: Replicates) -> pl.DataFrame:
    """Moments over visits of ln(cell / reference), one row per distinct `question` that has a visit in common.

    `pairs` has the columns of `question`, `cell_id` and `reference_id`. Result: `question`, `log_mean`, `log_var`,
    `visits`, `pairs` and `pairs_left_out`, the pairs that some visit lacks.
    """
    return contrast_moments(pairs, question, measured, PAIR)


def contrast_moments(
    contrasts: pl.DataFrame, question: list[str], measured: Replicates, signs: Mapping[str, int]
) -> pl.DataFrame:
    """Like `paired_moments` for any sum of signed logarithms; `signs` holds the columns of cells and their signs."""
    key = list(dict.fromkeys([*question, *signs]))
    shared = _differences(contrasts, measured.sessions, ["visit", "session_id"], signs)
    shared = shared.group_by([*key, "visit"], maintain_order=True).agg(pl.col("difference").mean())
    apart = _differences(contrasts, measured.visits, ["visit"], signs).join(shared, on=[*key, "visit"], how="anti")
    differences = pl.concat([shared, apart.select(shared.columns)]).sort([*key, "visit"])
    used = _balanced(differences, question, key)
    per_visit = used.group_by([*question, "visit"], maintain_order=True).agg(pl.col("difference").mean())
    moments = per_visit.group_by(question, maintain_order=True).agg(over_visits("difference"))
    counts = _count(used, question, signs, "pairs").join(_count(differences, question, signs, "all"), on=question)
    counts = counts.with_columns(pairs_left_out=pl.col("all") - pl.col("pairs")).drop("all")
    return moments.join(counts, on=question, maintain_order="left")


def _balanced(differences: pl.DataFrame, question: list[str], key: list[str]) -> pl.DataFrame:
    """The pairs that every visit of their question has; where there is none, those of the visit with most pairs."""
    in_visit = pl.len().over([*question, "visit"])
    counted = differences.with_columns(
        everywhere=pl.len().over(key) == pl.col("visit").n_unique().over(question),
        fullest=in_visit == in_visit.max().over(question),
    ).with_columns(first_fullest=pl.col("visit").filter("fullest").min().over(question))
    used = pl.when(pl.col("everywhere").any().over(question)).then("everywhere")
    return counted.filter(used.otherwise(pl.col("visit") == pl.col("first_fullest"))).select(differences.columns)


def _count(differences: pl.DataFrame, question: list[str], signs: Mapping[str, int], name: str) -> pl.DataFrame:
    contrast = pl.struct(*signs).n_unique().cast(pl.Int64)
    return differences.group_by(question, maintain_order=True).agg(contrast.alias(name))


def _differences(
    contrasts: pl.DataFrame, means: pl.DataFrame, within: list[str], signs: Mapping[str, int]
) -> pl.DataFrame:
    """The signed sum of logarithms of each contrast wherever all of its cells were measured together."""
    joined = contrasts
    for place, column in enumerate(signs):
        logs = means.select(pl.col("cell_id").alias(column), *within, pl.col("log").alias(f"log:{column}"))
        joined = joined.join(logs, on=[column, *(within if place else ())], maintain_order="left")
    return joined.with_columns(difference=sum(sign * pl.col(f"log:{column}") for column, sign in signs.items()))
