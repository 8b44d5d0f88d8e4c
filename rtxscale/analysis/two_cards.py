"""Two cards against each other: whether what one gains over the other lies where their documented facts put it.

What a GPU limits is limited by its arithmetic or by its memory. So of equal cells on one GPU each, the ratio of the
throughputs lies between that of the peaks and that of the memory bandwidths (Williams et al., Roofline, 2009); below it
something else has a say, such as the host or a power limit. Called by `analysis.compare`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from rtxscale.analysis.frames import shaped
from rtxscale.analysis.sanity import AMP, PLAYBOOK, Row, judged
from rtxscale.analysis.settings import default_at
from rtxscale.analysis.tables import SANITY
from rtxscale.devices.facts import GpuFacts
from rtxscale.devices.gpus import find_gpu

BETWEEN = {
    "rule": "card against card",
    "expectation": "the ratio of throughputs lies between those of the documented peaks and memory bandwidths",
    "conditions": "one GPU each, which decides how long a step takes",
    "source": "Williams et al., Roofline (2009), doi:10.1145/1498765.1498785; each card's documented facts",
}
AVERAGE = {
    "rule": "RTX 5090 over RTX 4090",
    "expectation": "1.44 on average over vision models",
    "conditions": "PyTorch 2.6 nightly, timm, batch 256, fp16 or bf16",
    "source": f"{PLAYBOOK}; a lab's timm benchmark of February 2025",
}
BY_MODEL = AVERAGE | {
    "rule": "RTX 5090 over RTX 4090 by model",
    "expectation": "more for transformers (Swin) than for ResNet-50",
}
NEWER, OLDER = "RTX 5090", "RTX 4090"


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A cell that both runs have, on one known card each: B over A, and what of the cell matters here."""

    a: GpuFacts
    b: GpuFacts
    row: Mapping[str, Any]
    kind: str
    model: str
    precision: str
    compile: str


def card_signals(compared: pl.DataFrame, devices: Iterable[pl.DataFrame], settings: Mapping[str, Any]) -> pl.DataFrame:
    """Signals as in `sanity`, of throughputs compared on one GPU each where the runs' cards are two known ones.

    `compared` has the columns of `compare.COMPARED`, `devices` the `cell_id` and `device_name` of A and of B,
    `settings` each cell's settings by dotted path.
    """
    pairs = list(_pairs(compared, devices, settings))
    rows = [*_between(pairs), *_averages([pair for pair in pairs if {pair.a.label, pair.b.label} == {NEWER, OLDER}])]
    return shaped(pl.DataFrame(rows, schema=SANITY), SANITY)


def _pairs(compared: pl.DataFrame, devices: Iterable[pl.DataFrame], settings: Mapping[str, Any]) -> Iterator[Pair]:
    names = [dict(frame.select("cell_id", "device_name").iter_rows()) for frame in devices]
    shown = compared.filter(
        pl.col("ratio").is_not_null() & (pl.col("quantity") == "throughput") & (pl.col("gpus") == 1)
    )
    for row in shown.iter_rows(named=True):
        a, b = (find_gpu(name) if (name := side.get(row["cell_id"])) else None for side in names)
        if a is None or b is None or a.label == b.label:
            continue
        flat = settings[row["cell_id"]]
        kind = flat.get("workload.kind", "vision")
        paths = ("workload.model", "workload.precision", "workload.compile")
        model, precision, compiled = (flat.get(path) or default_at(path, kind) or "" for path in paths)
        yield Pair(a=a, b=b, row=row, kind=kind, model=model, precision=precision, compile=compiled)


def _between(pairs: Iterable[Pair]) -> Iterator[Row]:
    """Each cell against the two ratios, where both are documented."""
    for pair in pairs:
        peaks = (pair.b.peak_tflops(pair.precision), pair.a.peak_tflops(pair.precision))
        bandwidths = (pair.b.bandwidth_gb_s, pair.a.bandwidth_gb_s)
        if None in (*peaks, *bandwidths):
            continue
        peak, bandwidth = (above / below for above, below in (peaks, bandwidths))  # type: ignore[operator]  # see above
        row = pair.row
        words = (
            f"{pair.b.label} over {pair.a.label} {row['ratio']:.2f} in ({row['label']}): peaks {peak:.2f}, memory "
            f"bandwidths {bandwidth:.2f}"
        )
        found = judged(row["ratio"], [row["ratio_low"], row["ratio_high"]], _sorted(peak, bandwidth), words, "")
        yield BETWEEN | found | {"cell_id": row["cell_id"], "gpus": row["gpus"]}


def _sorted(one: float, other: float) -> tuple[float, float]:
    return min(one, other), max(one, other)


def _averages(pairs: Iterable[Pair]) -> Iterator[Row]:
    """What vision models gain on average, and transformers beyond ResNet-50, from the older to the newer card."""
    gains: dict[str, dict[tuple[str, str], list[float]]] = {}
    for pair in pairs:
        if pair.kind == "vision" and pair.precision in AMP:
            gain = float(np.log(pair.row["ratio"])) * (1 if pair.b.label == NEWER else -1)
            gains.setdefault(pair.model, {}).setdefault((pair.precision, pair.compile), []).append(gain)
    if not gains:
        return
    mean = float(np.exp(np.mean([np.log(_mean(found, found)) for found in gains.values()])))
    models = f"{len(gains)} model{'s' * (len(gains) > 1)}"
    words = f"{NEWER} over {OLDER} {mean:.2f} on average over {models}, where a lab found 1.44"
    yield AVERAGE | judged(mean, [None, None], (None, None), words, "the source gives a number without a range")
    plain = gains.get("resnet50", {})
    for model in sorted(model for model in gains if model.startswith("swin")):
        if shared := sorted(gains[model].keys() & plain.keys()):
            one, other = (_mean(found, shared) for found in (gains[model], plain))
            words = f"{NEWER} over {OLDER} {one:.2f} with {model} and {other:.2f} with resnet50"
            yield BY_MODEL | judged(one / other, [None, None], (1.0, None), words, "")


def _mean(gains: Mapping[tuple[str, str], list[float]], settings: Iterable[tuple[str, str]]) -> float:
    """The mean ratio over these settings, each counting once."""
    return float(np.exp(np.mean([np.mean(gains[one]) for one in settings])))
