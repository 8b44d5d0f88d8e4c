"""The check of a planted effect: a delay that was added to every step must be found, neither more nor less.

Called by `cli.selftest`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl

from rtxscale.analysis.selftest.verdicts import (
    FAILED,
    INCONCLUSIVE,
    PASSED,
    PLANTED,
    Check,
    Evidence,
    is_delayed,
    known,
)
from rtxscale.analysis.settings import Settings
from rtxscale.stats.differences import mean_interval
from rtxscale.stats.intervals import CONFIDENCE

CAPPED_SHARE = 0.05
"""At the power cap for more than this share of the window, a GPU that is kept idle for a while clocks higher after."""


def check_delays(evidence: Evidence) -> Check:
    """Extra milliseconds per step of delayed cells over their twins in the same session, against what was planted.

    Milliseconds per step are the window's over its number of steps, as throughput is. One difference a visit, its mean
    with Student's interval; with k delays each interval is widened to 1 - 0.05/k, so that all of them together are
    right in 95 of 100 runs (Bonferroni). An interval that misses the delay fails; one that cannot tell it from nothing
    says nothing.

    A card that is given a pause runs the rest of its step faster: on two H200s a pause of 16 ms in steps of 20 ms gave
    back 0.5 ms. So, where there are several delays, the least of them is what the others are compared with, and what
    it gave back itself is told, not judged. Where GPUs ran at their power cap each further millisecond gives something
    back: then a miss is the machine's, and inconclusive.
    """
    delays = delayed_cells(evidence.settings)
    differences = _differences(evidence, delays)
    judged = [delay for delay in delays if not delay["is_base"]]
    confidence = 1 - (1 - CONFIDENCE) / max(len(judged), 1)
    rows = tuple(_row(delay, differences, confidence) for delay in judged)
    if not rows:
        return Check(name="planted", verdict=INCONCLUSIVE, said="no delayed cell beside one with less delay or none")
    bases = tuple(_row(delay, differences, CONFIDENCE) for delay in delays if delay["is_base"])
    capped = _capped(evidence.counted)
    verdict = _verdict(rows, capped=capped)
    said = "; ".join([*map(_sentence, rows), *map(_base_sentence, bases)])
    if verdict == INCONCLUSIVE and capped and any(row["contains"] is False for row in rows):
        said += "; the GPUs ran at their power cap, where a pause speeds up what follows"
    return Check(name="planted", verdict=verdict, said=said, rows=rows + bases)


def delayed_cells(settings: Mapping[str, Settings]) -> list[dict[str, Any]]:
    """Each delayed cell with those it is compared with, by delay: they differ from it in nothing but what is planted.

    `planted_ms`: its delay over theirs. `is_base`: the least of several delays, compared with none at all.
    """
    plain: dict[str, list[str]] = {}
    delayed: dict[tuple[str, Any], list[tuple[float, str]]] = {}
    for cell_id, item in settings.items():
        if is_delayed(item):
            twins = delayed.setdefault((_unplanted(item), item.flat.get(f"{PLANTED}delay_rank")), [])
            twins.append((float(item.flat[f"{PLANTED}delay_ms"]), cell_id))
        else:
            plain.setdefault(_unplanted(item), []).append(cell_id)
    return [
        {
            "cell_id": cell_id,
            "references": [twin for twin_ms, twin in twins if twin_ms == base_ms] if delay_ms > base_ms else none,
            "base_ms": base_ms if delay_ms > base_ms else 0.0,
            "planted_ms": delay_ms - base_ms if delay_ms > base_ms else delay_ms,
            "delay_rank": rank,
            "is_base": delay_ms == base_ms < max(twins)[0],
        }
        for (unplanted, rank), twins in delayed.items()
        for none, base_ms in [(plain.get(unplanted, []), min(twins)[0])]
        for delay_ms, cell_id in sorted(twins)
        if delay_ms > base_ms or none
    ]


def _unplanted(item: Settings) -> str:
    return "\x1f".join(f"{path}={value}" for path, value in item.flat.items() if not path.startswith(PLANTED))


def _differences(evidence: Evidence, delays: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Extra milliseconds per step of each delayed cell, one value a visit; several references are averaged first."""
    within = ["cell_id", "visit", "session_id"]
    steps = (
        evidence.counted.filter(pl.col("window_s").is_not_null() & (pl.col("window_steps") > 0))
        .with_columns(step_ms=1000 * pl.col("window_s") / pl.col("window_steps"))
        .group_by(within, maintain_order=True)
        .agg(pl.col("step_ms").mean())
    )
    found: dict[str, list[float]] = {}
    for delay in delays:
        reference = (
            steps.filter(pl.col("cell_id").is_in(delay["references"]))
            .group_by("visit", "session_id")
            .agg(pl.col("step_ms").mean().alias("reference_ms"))
        )
        both = steps.filter(pl.col("cell_id") == delay["cell_id"]).join(reference, on=["visit", "session_id"])
        extra = both.group_by("visit").agg((pl.col("step_ms") - pl.col("reference_ms")).mean().alias("extra_ms"))
        found[delay["cell_id"]] = extra.sort("visit")["extra_ms"].to_list()
    return found


def _row(delay: Mapping[str, Any], differences: Mapping[str, list[float]], confidence: float) -> dict[str, Any]:
    extra = differences[delay["cell_id"]]
    interval = mean_interval(extra, confidence)
    low, high, planted = known(interval.low), known(interval.high), delay["planted_ms"]
    inside = None if low is None or high is None else low <= planted <= high
    return {
        "planted_ms": planted,
        "base_ms": delay["base_ms"],
        "delay_rank": delay["delay_rank"],
        "is_base": delay["is_base"],
        "recovered_ms": known(interval.estimate),
        "low_ms": low,
        "high_ms": high,
        "confidence": confidence,
        "visits": len(extra),
        "contains": inside,
        "contains_nothing": None if low is None or high is None else low <= 0 <= high,
    }


def _verdict(rows: Sequence[Mapping[str, Any]], *, capped: bool) -> str:
    if any(row["contains"] is False for row in rows):
        return INCONCLUSIVE if capped else FAILED
    if any(row["contains"] is None or row["contains_nothing"] for row in rows):
        return INCONCLUSIVE
    return PASSED


def _sentence(row: Mapping[str, Any]) -> str:
    where = "" if row["delay_rank"] is None else f" on rank {row['delay_rank']}"
    beyond = f" beyond {row['base_ms']:g}" if row["base_ms"] else ""
    planted = f"{row['planted_ms']:g} ms{beyond}{where}"
    if row["recovered_ms"] is None:
        return f"{planted} not measured"
    if row["low_ms"] is None:
        return f"{planted} found as {row['recovered_ms']:.3g} ms, without an interval"
    return f"{planted} found as {row['recovered_ms']:.4g} ({row['low_ms']:.4g} to {row['high_ms']:.4g})"


def _base_sentence(row: Mapping[str, Any]) -> str:
    if row["recovered_ms"] is None:
        return f"a pause of {row['planted_ms']:g} ms has no twin without one"
    back_ms = row["planted_ms"] - row["recovered_ms"]
    return f"a pause of {row['planted_ms']:g} ms itself gives back {back_ms:.3g} ms of the step"


def _capped(counted: pl.DataFrame) -> bool:
    share = counted["power_cap_share"].drop_nulls()
    return bool(share.len()) and float(share.max() or 0.0) > CAPPED_SHARE  # type: ignore[arg-type]  # a float column
