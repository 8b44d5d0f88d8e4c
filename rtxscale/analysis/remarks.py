"""What a reader must know beside the numbers: what did not count, which bases were used, what looks suspicious.

One function per remark; each returns no sentence where there is nothing to say. Called by `analysis.conclude`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from rtxscale.analysis.bandwidth import bandwidth_remarks
from rtxscale.analysis.cells import CellTable, slot_spread, uneven_slots
from rtxscale.analysis.conclusions import Advice
from rtxscale.analysis.counted import not_counted
from rtxscale.analysis.drift_remarks import drift_remarks
from rtxscale.analysis.effects import compared_cells
from rtxscale.analysis.efficiency import ABOVE_ONE, SUPERLINEAR
from rtxscale.analysis.flags import MEANINGS
from rtxscale.analysis.headline import TOO_WIDE, too_wide
from rtxscale.analysis.settings import differing, is_knob
from rtxscale.results.outcomes import Outcome
from rtxscale.stats.rounding import fixed, places

SHOWN = 4
"""Examples in one kind of remark; the rest is counted."""
TOLERANCE = 0.005
"""Relative difference of measured and declared work per step that counts as equal."""
MORE_SESSIONS = (
    "Import a table with rows of several independent sessions: told apart by a column visit, or by rows: sessions in "
    "the mapping"
)
"""What gives an imported cell of one visit another."""
SAMPLES = ("image", "sample")
"""Units of work that a batch is counted in; of others, such as tokens, a sample has many."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Everything that remarks are made from; `axes` holds the values of each axis as written in the sweep.

    `settled` and `counted` are the sweep's own trials, without sentinels.
    """

    settled: pl.DataFrame
    counted: pl.DataFrame
    collectives: pl.DataFrame
    cells: CellTable
    efficiency: pl.DataFrame
    effects: pl.DataFrame
    drift: pl.DataFrame
    axes: Mapping[str, Sequence[Any]]
    advice: Advice

    @property
    def finish(self) -> str:
        """What completes an unfinished run, as a sentence."""
        return _sentence(self.advice.finish)


def remarks(evidence: Evidence) -> tuple[str, ...]:
    """All remarks, the most important first."""
    makers = (
        _not_counted,
        _invariant,
        _unreadable,
        _without_base,
        _suspicious,
        _drift,
        _one_visit,
        _uneven_slots,
        _left_out_pairs,
        _bases,
        _different_devices,
        _collectives,
        _silent_axes,
        _flags,
        _profile,
    )
    return tuple(sentence for maker in makers for sentence in maker(evidence))


def _not_counted(evidence: Evidence) -> Iterator[str]:
    settled = evidence.settled
    failed = settled.filter(pl.col("outcome") != Outcome.OK)
    if failed.height:
        counts = failed.group_by("outcome").len().sort(["len", "outcome"], descending=[True, False]).iter_rows()
        shown = ", ".join(f"{count} {outcome}" for outcome, count in counts)
        be = "is" if failed.height == 1 else "are"
        yield f"{failed.height} of {settled.height} trials did not end ok and {be} not counted: {shown}."
    broken = not_counted(settled)
    if broken:
        words = ", ".join(f"{count} {reason}" for reason, count in broken)
        many = sum(count for _, count in broken)
        yield f"{many} ok {'trial is' if many == 1 else 'trials are'} not counted: {words}."


def _invariant(evidence: Evidence) -> Iterator[str]:
    """The study's constant, from the data: work of a step is the global batch, and that is batch times GPUs."""
    cells = evidence.cells.frame
    declared = pl.col("batch_per_gpu") * pl.col("gpus") != pl.col("global_batch")
    done = (pl.col("work_per_step") / pl.col("global_batch") - 1).abs() > TOLERANCE
    broken = cells.filter(declared | (done & pl.col("work_unit").is_in(SAMPLES)))
    if broken.height:
        one = _worker(evidence)
        yield (
            f"The study's invariant does not hold in {_some(broken['label'])}: global batch, batch per "
            f"{one} times {one}s and the work measured per step differ; their efficiencies compare unequal work."
        )


def _unreadable(evidence: Evidence) -> Iterator[str]:
    """Cells whose settings an older or a newer rtxscale did not write, or not so that they can be read."""
    unknown = evidence.cells.frame.filter(pl.col("cell_id").is_in(_without_settings(evidence.cells)))
    if unknown.height:
        yield (
            f"The settings of {_some(unknown['label'])} cannot be read from the column cell_json, so they are compared "
            "with nothing: no efficiency, effect or gain. Show the run with the rtxscale that measured it, or measure "
            "it again."
        )


def _without_settings(cells: CellTable) -> list[str]:
    return [cell_id for cell_id, settings in cells.settings.items() if not settings.flat]


def _without_base(evidence: Evidence) -> Iterator[str]:
    readable = ~pl.col("cell_id").is_in(_without_settings(evidence.cells))
    cells = evidence.cells.frame.filter(pl.col("throughput_per_s").is_not_null() & readable)
    used = pl.concat([evidence.efficiency["cell_id"], evidence.efficiency["base_cell_id"]])
    left = cells.filter(~pl.col("cell_id").is_in(used.implode()))
    one = _worker(evidence)
    several, single = left.filter(pl.col("gpus") > 1), left.filter(pl.col("gpus") == 1)
    if several.height:
        imported, missing = evidence.advice.imported, "add 1 to the axis gpus"
        if imported or (cells["gpus"] == 1).any():
            verb = "import" if imported else "measure"
            missing = f"{verb} one {one} with their batch (weak: per {one}, strong: global) and settings"
        again = "" if imported else ", or run the sweep again if its base failed"
        yield (
            f"No efficiency for {_some(several['label'])}: no smaller {one} count with the same batch and settings has "
            f"a result; {missing}{again}."
        )
    if not single.height or evidence.efficiency.height:
        return
    if several.height:
        yield f"No efficiency from {_some(single['label'])}: no larger {one} count has the same batch and settings."
    else:
        results = "results of more" if evidence.advice.imported else "more"
        told = differing(single["label"].to_list())
        named = f" ({_first(told)})" if told else ""
        yield f"Only one {one} has a result{named}: {evidence.advice.run} {results} {one}s for an efficiency."


def _suspicious(evidence: Evidence) -> Iterator[str]:
    for mark, words in ((SUPERLINEAR, "superlinear"), (ABOVE_ONE, "above 1")):
        found = evidence.efficiency.filter(pl.col("note").str.contains(mark, literal=True))
        if not found.height:
            continue
        bases = evidence.cells.frame.filter(pl.col("cell_id").is_in(found["base_cell_id"].implode()))
        shown = "; ".join(_rate(row) for row in bases.head(SHOWN).iter_rows(named=True))
        many = "1 efficiency is" if found.height == 1 else f"{found.height} efficiencies are"
        yield (
            f"Suspicious: {many} {words} (largest {max(found['efficiency']):.3f}, not clipped). "
            f"Check the base first: {shown}."
        )


def _drift(evidence: Evidence) -> Iterator[str]:
    yield from drift_remarks(evidence.drift)


def _one_visit(evidence: Evidence) -> Iterator[str]:
    cells = evidence.cells.frame
    single = cells.filter(pl.col("sessions") < 2)
    if single.height:
        advice = evidence.advice.more_visits
        if evidence.advice.imported:
            advice = "an output of nccl-tests is one session" if evidence.collectives.height else MORE_SESSIONS
        was = "was" if single.height == 1 else "were"
        yield (
            f"{single.height} of {cells.height} cells {was} measured in one visit only: no interval; repeats within a "
            f"session do not replace it. {_sentence(advice)}"
        )


def _uneven_slots(evidence: Evidence) -> Iterator[str]:
    """A mean over other GPUs in each visit would show the GPUs' difference as one of visits."""
    labels = evidence.cells.frame.select("cell_id", "label")
    uneven = labels.join(uneven_slots(evidence.counted), on="cell_id", maintain_order="left")
    partly, apart = uneven.filter(pl.col("common") > 0), uneven.filter(pl.col("common") == 0)
    if partly.height:
        named = [f"{row['label']}: {row['common']} of {row['slots']} GPUs" for row in partly.iter_rows(named=True)]
        yield f"Only the GPUs that every visit has count in {_some(named)}. {evidence.finish}"
    if apart.height:
        yield (
            f"No GPU was measured in every visit in {_some(apart['label'])}: its visits are means over different GPUs. "
            f"{evidence.finish}"
        )


def _left_out_pairs(evidence: Evidence) -> Iterator[str]:
    short = evidence.effects.filter(pl.col("pairs_left_out") > 0)
    if not short.height:
        return
    one, rows = _worker(evidence), list(short.iter_rows(named=True))
    named = [
        f"{row['axis']} {row['value']} at {row['gpus']} {one}{'s' if row['gpus'] > 1 else ''}: "
        f"{row['pairs_left_out']} of {row['pairs'] + row['pairs_left_out']}"
        for row in rows[:SHOWN]
    ]
    more = f"; {len(rows) - SHOWN} more comparisons" if len(rows) > SHOWN else ""
    yield (
        "Effects leave out the pairs of cells that some visit lacks, until the run is complete "
        f"({'; '.join(named)}{more}). {evidence.finish}"
    )


def _bases(evidence: Evidence) -> Iterator[str]:
    used = evidence.efficiency.unique(["curve", "base_cell_id"], maintain_order=True)
    cells = evidence.cells.frame.join(slot_spread(evidence.counted), on="cell_id", how="left", maintain_order="left")
    for row in used.head(SHOWN).iter_rows(named=True):
        base = cells.row(by_predicate=pl.col("cell_id") == row["base_cell_id"], named=True)
        relative = (
            ""
            if row["base_gpus"] == 1
            else f", so efficiencies are relative to {row['base_gpus']} {_worker(evidence)}s"
        )
        spread = ""
        if base["slots"]:
            spread = f"; measured on {base['slots']} GPUs in turn, which differ by {100 * base['slot_spread']:.1f} %"
        yield f"Base of the {row['curve']} curve: {_rate(base)}{spread}{relative}."
    if used.height > SHOWN:
        yield f"{used.height - SHOWN} more bases were used; see the efficiency table."


def _different_devices(evidence: Evidence) -> Iterator[str]:
    names = evidence.cells.frame["device_name"].drop_nulls().unique().sort()
    if names.len() > 1:
        yield f"Cells ran on different device models ({'; '.join(names)}): their efficiencies do not compare like."


def _collectives(evidence: Evidence) -> Iterator[str]:
    yield from bandwidth_remarks(evidence.collectives, evidence.counted)


def _silent_axes(evidence: Evidence) -> Iterator[str]:
    cells = evidence.cells
    known = cells.frame.filter(pl.col("throughput_per_s").is_not_null())
    for axis in cells.axes:
        if not is_knob(axis) or axis in evidence.effects["axis"]:
            continue
        varied = known.filter(pl.col(f"axis:{axis}").is_not_null())
        if varied[f"axis:{axis}"].n_unique() > 1:
            yield f"No effect of {axis}: {_silence(evidence, varied, axis)}"


def _silence(evidence: Evidence, varied: pl.DataFrame, axis: str) -> str:
    """Why an axis with several values has no effect; `varied` are its cells with a throughput."""
    cells, ids = evidence.cells, varied["cell_id"].to_list()
    pairs = compared_cells(cells, axis, evidence.axes.get(axis, ()))
    if pairs.filter(pl.col("cell_id").is_in(ids) & pl.col("reference_id").is_in(ids)).height:
        return f"the cells that differ in it alone share no visit. {evidence.finish}"
    others = [cells.settings[cell_id].other_than(axis) for cell_id in ids]
    if len(set(others)) < len(others):
        return "of the cells with a result that differ in it alone none has the value that others are compared with."
    return "no two cells with a result differ in it alone."


def _flags(evidence: Evidence) -> Iterator[str]:
    flags = evidence.counted.select(pl.col("flags").explode()).drop_nulls()
    if flags.height:
        counts = flags.group_by("flags").len().sort(["len", "flags"], descending=[True, False]).iter_rows()
        told = ((f"{flag} on {count}", MEANINGS.get(flag)) for flag, count in counts)
        shown = ", ".join(words if meaning is None else f"{words} ({meaning})" for words, meaning in told)
        many = evidence.counted.height
        yield f"Flags among {many} counted trial{'s' * (many != 1)}: {shown}."


def _profile(evidence: Evidence) -> Iterator[str]:
    if (evidence.counted["profile"] == "quick").any():
        yield "Measured with the quick profile: not publishable."


def _rate(cell: dict[str, Any]) -> str:
    """A cell's throughput in words, with its interval."""
    low, high = cell["throughput_low"], cell["throughput_high"]
    unit, visits = f"{cell['work_unit'] or 'unit'}s/s", cell["visits"]
    (rate,) = _alike(cell["throughput_per_s"])
    if too_wide(low, high):
        rate = f"{rate} {unit} ({TOO_WIDE})"
    elif low is not None and high is not None:
        rate, left, right = _alike(cell["throughput_per_s"], low, high)
        rate = f"{rate} ({left}-{right}) {unit}"
    else:
        rate = f"{rate} {unit}"
    return f"{cell['label']}: {rate} over {visits} visit{'' if visits == 1 else 's'}"


def _alike(*values: float) -> list[str]:
    """A throughput and its bounds with as many decimal places: five digits of the largest, or all before the point.

    >>> _alike(123456.7), _alike(83.97214), _alike(1000.6, 995.17, 1008.2), _alike(99.4, 98.123, 100.7)
    (['123,457'], ['83.972'], ['1,001', '995', '1,008'], ['99.40', '98.12', '100.70'])
    """
    alike = places(max(values), 5)
    alike = alike if alike > 1 else 0
    return [fixed(value, alike) for value in values]


def _sentence(words: str) -> str:
    return f"{words[0].upper()}{words[1:]}."


def _worker(evidence: Evidence) -> str:
    """What one worker is called: a GPU, or a CPU worker on a machine without."""
    return "CPU worker" if set(evidence.counted["device"].drop_nulls()) == {"cpu"} else "GPU"


def _some(labels: Iterable[str]) -> str:
    """The first few labels and how many more."""
    return _first([f"({label})" for label in labels])


def _first(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - SHOWN} more" if len(texts) > SHOWN else ""
    return "; ".join(texts[:SHOWN]) + more
