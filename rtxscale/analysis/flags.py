"""Remarks on trials that ended ok, derived from what was measured: a flag is a conclusion, its measure is in the table.

Flagged trials count and are shown: leaving the hot or the slow ones out would be survivorship bias. Called by
`analysis.conclude`.
"""

from __future__ import annotations

import polars as pl

from rtxscale.analysis.conclusions import DRIFTING
from rtxscale.results.outcomes import Outcome

HOST_BOUND = "host_bound"
LEAST_LATE = 0.1
"""Share of steps that a GPU had all but done when its host had enqueued them, from which on a trial is host-bound."""
LEAST_IDLE = 0.05
"""Share of the window in which a GPU has no kernel to run, waits for input left out, that makes a trial host-bound. Of
48 trials on an H200 those whose steps were all equally long had up to 0.02, those that waited for their host 0.07 and
more."""
LEAST_SHARES: dict[str, tuple[str, float]] = {
    "input_bound": ("input_share", 0.1),
    "throttled": ("throttle_share", 0.01),
    "power_limited": ("power_cap_share", 0.1),
}
"""Flag -> column, and the share of the window from which on the flag is set."""
NOT_ATTESTED, POWER_LIMITED, THROTTLED = "not_attested", "power_limited", "throttled"
COARSE_ENERGY = "coarse_energy"
LEAST_UPDATES = 100.0
"""Steps of the slowest energy counter that a window needs: its edges fall between two of them."""
MEANINGS = {
    HOST_BOUND: "the GPUs waited for their host",
    "input_bound": "the GPUs waited for input",
    THROTTLED: "clocks were held back",
    POWER_LIMITED: "at the power limit, as loaded cards are",
    NOT_ATTESTED: "nothing proves that a request was honoured",
    COARSE_ENERGY: "the energy counter made few steps",
    DRIFTING: "their session drifted",
}
"""What a flag says, for people."""
GPU_FACTS = ("uuid", "power limit", "default power limit")


def flagged(trials: pl.DataFrame, attestation: pl.DataFrame, environment: pl.DataFrame) -> pl.DataFrame:
    """The trials with their `flags` completed; a flag that somebody else has set stays.

    `host_bound` means that the GPUs waited for their host: steps were all but done when it had enqueued them, or a GPU
    ran no kernel for a good part of the window. `not_attested` means that a setting was asked for and nothing shows
    whether it was honoured. At its stock power limit a loaded card is `power_limited`, which is normal; at one that
    somebody has lowered it is `throttled`. The energy is `coarse_energy` where its counter made fewer than
    `LEAST_UPDATES` steps in the window.
    """
    attempt = ("trial_id", "attempt")
    unproven = attestation.filter((pl.col("verdict") == "not attested") & (pl.col("requested") != "auto"))
    lowered = pl.col("gpu_uuids").list.eval(pl.element().is_in(lowered_gpus(environment))).list.any()
    derived: list[pl.Expr] = [
        pl.when(pl.col(column) >= least).then(
            pl.when(lowered.fill_null(value=False)).then(pl.lit(THROTTLED)).otherwise(pl.lit(flag))
            if flag == POWER_LIMITED
            else pl.lit(flag)
        )
        for flag, (column, least) in LEAST_SHARES.items()
    ]
    derived.append(pl.when(waits_for_its_host()).then(pl.lit(HOST_BOUND)))
    derived.append(pl.when(is_coarse()).then(pl.lit(COARSE_ENERGY)))
    derived.append(
        pl.when(pl.struct(*attempt).is_in(unproven.select(pl.struct(*attempt)).to_series().implode()))
        .then(pl.lit(NOT_ATTESTED))
        .otherwise(pl.lit(None, pl.String))
    )
    given = pl.col("flags").fill_null(pl.lit([], pl.List(pl.String)))
    flags = pl.concat_list(given, pl.concat_list(derived)).list.drop_nulls().list.unique().list.sort()
    return trials.with_columns(flags=flags)


def waits_for_its_host() -> pl.Expr:
    """Whether a trial's GPUs waited for the host, by either sign of it."""
    late = pl.col("host_bound_share") >= LEAST_LATE
    idle = 1 - pl.col("gpu_busy_share") - pl.col("input_share").fill_null(0.0) >= LEAST_IDLE
    return late.fill_null(value=False) | idle.fill_null(value=False)


def is_coarse() -> pl.Expr:
    """Whether a trial's energy is from a counter of too few steps; how many it made must be known."""
    from_counter = pl.col("energy_source").eq_missing(pl.lit("counter"))
    return from_counter & (pl.col("energy_updates") < LEAST_UPDATES).fill_null(value=False)


def lowered_gpus(environment: pl.DataFrame) -> list[str]:
    """UUIDs of the GPUs whose power limit is below their default; a limit that is not known is taken as stock."""
    named = environment.filter(pl.col("subject") == "gpu").select(
        "node",
        gpu=pl.col("name").str.extract(r"^(gpu\d+) "),
        fact=pl.col("name").str.replace(r"^gpu\d+ ", ""),
        value="value",
    )
    facts = {(row["node"], row["gpu"], row["fact"]): row["value"] for row in named.iter_rows(named=True)}
    gpus = dict.fromkeys((node, gpu) for node, gpu, _ in facts)
    told = [tuple(facts.get((*gpu, fact), "") for fact in GPU_FACTS) for gpu in gpus]
    return [uuid for uuid, limit, default in told if _below(_watts(limit), _watts(default))]


def _watts(value: str) -> float | None:
    """Watts of a value such as `575.0 W`; None where it is not known."""
    number, _, unit = value.partition(" ")
    try:
        return float(number) if unit == "W" else None
    except ValueError:
        return None


def _below(limit: float | None, default: float | None) -> bool:
    return limit is not None and default is not None and limit < default


def with_drift(trials: pl.DataFrame, drift: pl.DataFrame) -> pl.DataFrame:
    """The trials with the flag `drifting` on every ok trial of a session that drifts; `drift` is the drift table."""
    sessions = drift.filter(pl.col("verdict") == DRIFTING)["session_id"]
    drifting = (pl.col("outcome") == Outcome.OK) & pl.col("session_id").is_in(sessions.implode())
    given = pl.col("flags").fill_null(pl.lit([], pl.List(pl.String)))
    more = pl.concat_list(given, pl.lit(DRIFTING)).list.unique().list.sort()
    return trials.with_columns(flags=pl.when(drifting).then(more).otherwise("flags"))
