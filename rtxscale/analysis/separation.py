"""How many more visits would probably tell the two fastest cells apart: an estimate, said as one.

Starts from the paired log ratios of the two cells over the visits that have both; with few visits their variance is
itself a guess, which the sentence says. Called by `analysis.interpret`.
"""

from __future__ import annotations

from collections.abc import Iterator

import polars as pl

from rtxscale.analysis.best import GROUP
from rtxscale.analysis.cells import Replicates
from rtxscale.analysis.efficiency import BATCH_OF_CURVE, on_curve
from rtxscale.analysis.frames import moments
from rtxscale.analysis.pairs import PAIR, paired_moments
from rtxscale.stats.compare import ratio_test
from rtxscale.stats.sample_size import MOST, sessions_needed

FEW = 4
"""Below this many visits the variance is known within a factor of four at best."""


def separation_remarks(cells: pl.DataFrame, measured: Replicates) -> tuple[str, ...]:
    """For the largest GPU count of each curve: what it would take to tell the two fastest cells apart.

    Two cells that are the fastest of both curves are spoken of once.
    """
    sentences = (sentence for curve in BATCH_OF_CURVE for sentence in _of_curve(cells, measured, curve))
    return tuple(dict.fromkeys(sentences))


def _of_curve(cells: pl.DataFrame, measured: Replicates, curve: str) -> Iterator[str]:
    known = on_curve(cells, curve).filter(pl.col("throughput_per_s").is_not_null())
    largest = known.filter(pl.col("gpus") == pl.col("gpus").max())
    groups = largest.filter(pl.len().over(GROUP) > 1).sort("constant", descending=True, nulls_last=True)
    if not groups.height:
        return
    group = groups.partition_by(GROUP, maintain_order=True)[0]
    first, second = group.sort("throughput_per_s", "cell_id", descending=[True, False]).head(2).to_dicts()
    pair = pl.DataFrame({"cell_id": [first["cell_id"]], "reference_id": [second["cell_id"]]})
    found = paired_moments(pair, list(PAIR), measured)
    if not found.height or found["visits"][0] < 2:
        return
    test = ratio_test(moments(found))
    if float(test.p_value[0]) < 0.05:
        return
    mean, variance, visits = found.row(0, named=True)["log_mean"], found["log_var"][0], found["visits"][0]
    yield _sentence(first["label"], second["label"], mean, variance, visits)


def _sentence(first: str, second: str, mean: float, variance: float, visits: int) -> str:
    needed = sessions_needed(mean, variance)
    names = f"({first}) from ({second}), which differ by {abs(mean):.2%} over {visits} visits"
    rough = ": a rough estimate" if visits < FEW else ": an estimate"
    if needed is None:
        return f"More than {MOST} visits would be needed to tell {names}{rough}; take either."
    more = max(1, needed - visits)
    return f"About {more} more visit{'s' if more > 1 else ''} would probably tell {names}{rough}."
