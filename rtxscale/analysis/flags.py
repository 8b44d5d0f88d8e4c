"""Remarks on trials that ended ok, derived from what was measured: a flag is a conclusion, its measure is in the table.

Flagged trials count and are shown: leaving the hot or the slow ones out would be survivorship bias. Called by
`analysis.conclude`.
"""

from __future__ import annotations

import polars as pl

LEAST_SHARES: dict[str, tuple[str, float]] = {
    "host_bound": ("host_bound_share", 0.1),
    "throttled": ("throttle_share", 0.01),
    "power_limited": ("power_cap_share", 0.1),
}
"""Flag -> column, and the share of the window from which on the flag is set."""
NOT_ATTESTED = "not_attested"


def flagged(trials: pl.DataFrame, attestation: pl.DataFrame) -> pl.DataFrame:
    """The trials with their `flags` completed; a flag that somebody else has set stays.

    `not_attested` means that a setting was asked for and nothing shows whether it was honoured.
    """
    unproven = attestation.filter((pl.col("verdict") == "not attested") & (pl.col("requested") != "auto"))
    derived: list[pl.Expr] = [
        pl.when(pl.col(column) >= least).then(pl.lit(flag)) for flag, (column, least) in LEAST_SHARES.items()
    ]
    derived.append(
        pl.when(pl.struct("trial_id", "attempt").is_in(unproven.select(pl.struct("trial_id", "attempt")).to_series()))
        .then(pl.lit(NOT_ATTESTED))
        .otherwise(pl.lit(None, pl.String))
    )
    given = pl.col("flags").fill_null(pl.lit([], pl.List(pl.String)))
    flags = pl.concat_list(given, pl.concat_list(derived)).list.drop_nulls().list.unique().list.sort()
    return trials.with_columns(flags=flags)
