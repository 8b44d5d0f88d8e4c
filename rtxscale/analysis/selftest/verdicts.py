"""Verdicts of the instrument's checks: what a verdict is, the measured cells they look at, and equal arms (A/A).

A check plants something whose answer is known and looks whether the tool finds it. Pure: rows of results in, a verdict
out; `selftest.delays`, `selftest.equality` and `selftest.reference` hold the other checks, `selftest.simulated` makes
rows without a machine. Called by `cli.selftest`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from rtxscale.analysis.cells import Replicates, replicates
from rtxscale.analysis.counted import counted_trials, of_stage, settled_trials
from rtxscale.analysis.frames import moments
from rtxscale.analysis.headline import too_wide
from rtxscale.analysis.pairs import paired_moments
from rtxscale.analysis.settings import Settings, read_settings
from rtxscale.stats.compare import ratio_test
from rtxscale.stats.shares import share_interval

PASSED, FAILED, INCONCLUSIVE, REPORTED, NOT_RUN = "passed", "failed", "inconclusive", "reported", "not run"
"""`inconclusive`: noise or a missing part decides, not the tool. `reported`: a figure without a bar."""

ALPHA = 0.05
"""Share of equal pairs that the paired test may call different."""

ENOUGH_PAIRS = 60
"""With fewer verdicts only a gross fault can be seen."""

ARM, PLANTED = "planted.arm", "planted."


@dataclass(frozen=True, kw_only=True)
class Check:
    """One check's verdict, one sentence on what was found (or why it was not run), and the figures behind it."""

    name: str
    verdict: str
    said: str
    rows: tuple[Mapping[str, Any], ...] = ()

    @property
    def text(self) -> str:
        """The verdict as people read it.

        >>> not_run("bandwidth", "all_reduce_perf is not on the PATH").text
        'not run: all_reduce_perf is not on the PATH'
        """
        return f"{NOT_RUN}: {self.said}" if self.verdict == NOT_RUN else self.verdict


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What a run measured: the trials that count, their replicates, and the settings of each cell by its id."""

    counted: pl.DataFrame
    measured: Replicates
    settings: Mapping[str, Settings]


def not_run(name: str, why: str) -> Check:
    """A check without an answer, and why."""
    return Check(name=name, verdict=NOT_RUN, said=why)


def evidence_of(trials: pl.DataFrame) -> Evidence:
    """The sweep's own trials that count, as every analysis counts them."""
    counted = counted_trials(settled_trials(of_stage(trials, "sweep")))
    cells = counted.select("cell_id", "cell_json").unique(subset="cell_id", maintain_order=True)
    settings = {cell_id: read_settings(cell_json, cell_id, ()) for cell_id, cell_json in cells.iter_rows()}
    return Evidence(counted=counted, measured=replicates(counted), settings=settings)


def check_equal_arms(evidence: Evidence, name: str = "aa") -> Check:
    """How often the paired test calls two names of one cell different: not more and not less than `ALPHA` says.

    Arms are paired once each, so that the verdicts are independent, and each pair goes through the paired test that
    compares two settings of a sweep, at `ALPHA`, without a correction for many tests. The share of "different" comes
    with its exact interval; the check passes where `ALPHA` is inside. By chance it fails at most once in twenty times.
    """
    pairs = arm_pairs(evidence.settings)
    tested = paired_moments(pairs, ["pair"], evidence.measured)
    test = ratio_test(moments(tested))
    rows = tuple(
        {"pair": pair, "visits": visits, "ratio": known(ratio), "p_value": known(p_value)}
        for pair, visits, ratio, p_value in zip(tested["pair"], tested["visits"], test.ratio, test.p_value, strict=True)
    )
    p_values = [row["p_value"] for row in rows if row["p_value"] is not None]
    if not p_values:
        return Check(name=name, verdict=INCONCLUSIVE, said="no pair of arms has two visits in common", rows=rows)
    different = sum(p_value < ALPHA for p_value in p_values)
    share = share_interval(different, len(p_values))
    said = (
        f"{different} of {len(p_values)} equal pairs called different: {share.estimate:.1%} "
        f"({share.low:.1%} to {share.high:.1%}), {ALPHA:.0%} expected"
    )
    if len(p_values) < ENOUGH_PAIRS:
        said += f"; fewer than {ENOUGH_PAIRS} pairs show only a gross fault"
    return Check(name=name, verdict=PASSED if share.low <= ALPHA <= share.high else FAILED, said=said, rows=rows)


def arm_pairs(settings: Mapping[str, Settings]) -> pl.DataFrame:
    """Disjoint pairs of cells that differ in nothing but their arm's name, in order of the names; no planted delay."""
    alike: dict[str, list[tuple[str, str]]] = {}
    for cell_id, item in settings.items():
        arm = item.flat.get(ARM)
        if arm is not None and not is_delayed(item):
            alike.setdefault(item.other_than(ARM), []).append((arm, cell_id))
    pairs = [
        {"pair": f"{first[0]} and {second[0]}", "cell_id": first[1], "reference_id": second[1]}
        for arms in alike.values()
        for first, second in zip(sorted(arms)[::2], sorted(arms)[1::2], strict=False)
    ]
    return pl.DataFrame(pairs, schema={"pair": pl.String(), "cell_id": pl.String(), "reference_id": pl.String()})


def is_delayed(settings: Settings) -> bool:
    """Whether the cell has a planted delay."""
    return f"{PLANTED}delay_ms" in settings.flat


def bounds(low: Any, high: Any) -> tuple[float | None, float | None]:
    """Bounds of a ratio for JSON: None where there are none, or where they say nothing.

    >>> bounds(0.99, 1.01), bounds(1e-9, 1e9), bounds(float("nan"), float("nan"))
    ((0.99, 1.01), (None, None), (None, None))
    """
    found = known(low), known(high)
    return (None, None) if too_wide(*found) else found


def known(value: Any) -> float | None:
    """A number for JSON: None where it is not finite."""
    number = float(value)
    return number if math.isfinite(number) else None
