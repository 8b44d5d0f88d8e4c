"""Rows of a foreign table as rows of `trials`: cell, replicate, throughput and ending of each, by our names.

A number that cannot be made from what a row holds is refused with row and column, and so are columns that contradict
each other. Called by `imports.run` and `imports.nccl_outputs`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from rtxscale.errors import BadInput
from rtxscale.results.outcomes import Outcome
from rtxscale.spec.cell import Cell, canonical_json, content_id, trial_id_of
from rtxscale.spec.mapping import ImportMapping
from rtxscale.spec.sweep import COMMUNICATION_AXES
from rtxscale.stats.rounding import rounded

AUTO = "auto"
KIND = "imported"
"""Kind of a workload that the source does not name as one of ours."""
UNNAMED = "an unnamed workload"
WORDS: dict[str, Outcome] = {
    **dict.fromkeys(
        ("ok", "success", "succeeded", "terminated", "finished", "completed", "done", "passed"), Outcome.OK
    ),
    **dict.fromkeys(("error", "errored", "failed", "crashed", "fail"), Outcome.CRASHED),
    **dict.fromkeys(("oom", "out of memory"), Outcome.OOM),
    **dict.fromkeys(("running", "pending", "cancelled", "canceled", "stopped", "paused"), Outcome.CANCELLED),
    **dict.fromkeys(("hang", "timeout", "timed out"), Outcome.HANG),
    "diverged": Outcome.DIVERGED,
}
"""Common words for how a run ended; the mapping's come first."""
AGREE = 1.02
"""Two columns that tell the same contradict each other when they differ by more than this factor beyond their digits:
means over other windows differ a little."""
STEPPED = frozenset({"steps_per_s", "step_time_s"})
"""Fields that tell steps; a step is as many samples as the global batch."""
SAMPLES = ("image", "sample", "item", "example", "sequence")
"""Units of work that a batch is counted in."""
COPIED = (
    *("message", "work_unit", "precision", "device", "loss_last", "power_w", "energy_j", "sm_clock_mhz"),
    *("temperature_max_c", "memory_peak_mib", "window_s"),
)
"""Fields that are columns of `trials` under the same name."""


@dataclass(kw_only=True)
class Numbering:
    """Foreign names of visits and the like as whole numbers from 1, in order of appearance, and attempts of trials."""

    known: dict[tuple[str, ...], dict[str, int]] = field(default_factory=dict)
    attempts: dict[str, int] = field(default_factory=dict)

    def place(self, *group: str, name: str) -> int:
        """Place of `name` among the names of its group."""
        names = self.known.setdefault(group, {})
        return names.setdefault(name, len(names) + 1)

    def attempt(self, trial_id: str) -> int:
        """How often this trial has come by now."""
        self.attempts[trial_id] = self.attempts.get(trial_id, 0) + 1
        return self.attempts[trial_id]


def cell_of(gpus: int, settings: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Canonical text and data of a cell from dotted settings; one of ours where it is valid, so that runs compare.

    The text leaves out what is on `auto`, as that of a cell of ours does: both are the default cell.
    """
    data: dict[str, Any] = {"gpus": gpus}
    for path, value in settings.items():
        section, _, name = path.partition(".")
        data.setdefault(section, {})[name] = value
    data.setdefault("workload", {}).setdefault("kind", KIND)
    try:
        cell = Cell.model_validate(data)
    except ValueError:
        kept = {name: _set(section) if isinstance(section, dict) else section for name, section in data.items()}
        return canonical_json({name: section for name, section in kept.items() if section != {}}), data
    return cell.canonical(), data


def _set(section: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in section.items() if value != AUTO}


def trial_row(
    row: Mapping[str, Any], place: int, mapping: ImportMapping, numbering: Numbering, source: str
) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The cell of a row and its row of `trials`; None where it gives no result: no number, and no word of a failure.

    Raises:
        BadInput: something in the row is missing, cannot be what it should be, or contradicts the rest.
    """
    gpus = row.get("gpus")
    if gpus is None:
        raise BadInput(f"{row['where']}: found no GPU count; expected a column gpus; map it in a mapping file")
    batch, total = batches(row, gpus)
    settings = _settings(row, gpus)
    settings |= {"workload.batch_per_gpu": batch, "workload.global_batch": total}
    outcome, message = _outcome(row, mapping)
    throughput = _throughput(row, gpus, total, checked=outcome == Outcome.OK)
    if outcome == Outcome.OK and throughput is None:
        return None
    if row.get("workload") and "workload.kind" not in settings:
        settings["workload.label"] = row["workload"]
    canonical, cell = cell_of(gpus, settings)
    visit, repeat, slot = _replicate(row, place, mapping, numbering, content_id(canonical))
    cell_id, trial_id = content_id(canonical), trial_id_of(canonical, visit, repeat, slot)
    columns = {name: row[name] for name in COPIED if row.get(name) is not None}
    return cell, {
        "trial_id": trial_id,
        "attempt": numbering.attempt(trial_id),
        "cell_id": cell_id,
        "session_id": f"imported-{cell_id}-{visit}",
        "visit": visit,
        "repeat": repeat,
        "slot": slot,
        "study": mapping.study,
        "cell_json": canonical,
        "axes_json": "{}",
        "workload": row.get("workload") or _label(cell),
        "gpus": gpus,
        "device_names": None if row.get("device_name") is None else [row["device_name"]],
        "batch_per_gpu": batch,
        "global_batch": total,
        "outcome": outcome,
        "message": message,
        "throughput_per_s": throughput,
        "source": source,
        **columns,
    }


def _settings(row: Mapping[str, Any], gpus: int) -> dict[str, Any]:
    """The settings that a row tells, by dotted path; one GPU has no communication to be set."""
    told = {name: value for name, value in row.items() if "." in name and value is not None}
    if row.get("precision") is not None:
        told["workload.precision"] = row["precision"]
    return {name: value for name, value in told.items() if gpus > 1 or not name.startswith(COMMUNICATION_AXES)}


def _label(cell: Mapping[str, Any]) -> str:
    """The workload as tables name it."""
    workload = cell["workload"]
    if workload["kind"] == KIND:
        return UNNAMED
    return "/".join(str(part) for part in (workload["kind"], workload.get("model") or workload.get("size")) if part)


def batches(row: Mapping[str, Any], gpus: int) -> tuple[int, int]:
    """Batch per GPU and global batch; one follows from the other."""
    batch: int | None = row.get("batch_per_gpu")
    total: int | None = row.get("global_batch")
    if batch is not None and total is None:
        return batch, batch * gpus
    if total is None:
        raise BadInput(
            f"{row['where']}: found no batch; expected batch_per_gpu or global_batch, as a column or under constants "
            "of a mapping: efficiency compares equal work"
        )
    if batch is None and total % gpus:
        raise BadInput(f"{row['where']}: found a global batch of {total}; expected a multiple of {gpus} GPUs")
    if batch is not None and batch * gpus != total:
        raise BadInput(
            f"{row['where']}: found batch {batch} per GPU on {gpus} GPUs and a global batch of {total}; expected "
            f"{batch * gpus}"
        )
    return total // gpus, total


def _replicate(
    row: Mapping[str, Any], place: int, mapping: ImportMapping, numbering: Numbering, cell_id: str
) -> tuple[int, int, int]:
    """Visit, repeat and slot; rows of one cell are told apart by their trial's name, else by their order."""
    named = {name: row.get(name) for name in ("visit", "repeat", "slot")}
    order = row.get("trial") or f"row {place}"
    slot = 0 if named["slot"] is None else numbering.place("slot", name=named["slot"]) - 1
    if named["visit"] is not None:
        visit = numbering.place("visit", name=named["visit"])
        again = named["repeat"] or order
        return visit, numbering.place("repeat", cell_id, str(visit), str(slot), name=again), slot
    if mapping.rows == "sessions":
        return numbering.place("visit of cell", cell_id, str(slot), name=named["repeat"] or order), 1, slot
    return 1, numbering.place("repeat of cell", cell_id, str(slot), name=named["repeat"] or order), slot


def _throughput(row: Mapping[str, Any], gpus: int, total: int, *, checked: bool) -> float | None:
    """Work per second: as given, or from steps per second, step time or an efficiency; null where nothing was.

    Raises:
        BadInput: an efficiency has no base, or, where it is `checked`, two of them contradict each other.
    """
    steps, step_time = row.get("steps_per_s"), row.get("step_time_s")
    efficiency, base = row.get("efficiency"), row.get("base_throughput_per_s")
    told = _Rate("throughput_per_s", row.get("throughput_per_s"), 1.0, _slack(row.get("throughput_per_s")))
    stepped = [_Rate("steps_per_s", steps, float(total), _slack(steps))]
    if step_time is not None:
        rate = 1 / step_time if step_time > 0 else math.nan
        stepped.append(_Rate("step_time_s", rate, float(total), _slack(step_time)))
    scaled = _Rate("efficiency", efficiency, float((base or 0.0) * gpus), _slack(efficiency) * _slack(base))
    given = [rate for rate in (told, *stepped, *([] if base is None else [scaled])) if rate.value is not None]
    if checked:
        _check_agreement(row, given, total)
    if given:
        return given[0].per_second
    if efficiency is not None:
        raise BadInput(
            f"{row['where']}: found an efficiency without its base; expected base_throughput_per_s, the throughput of "
            "one GPU, under constants of a mapping"
        )
    return None


@dataclass(frozen=True)
class _Rate:
    """One field that tells the work per second: its value, the work of one of it, and how far rounding may carry it."""

    field: str
    value: float | None
    work: float
    slack: float

    @property
    def per_second(self) -> float:
        return float((self.value or 0.0) * self.work)


def _check_agreement(row: Mapping[str, Any], given: Sequence[_Rate], total: int) -> None:
    """See that fields that tell the same say the same, as far as their digits go.

    Steps are samples, so a throughput in another unit, such as tokens, is not held against them.

    Raises:
        BadInput: two do not.
    """
    finite = [rate for rate in given if math.isfinite(rate.per_second) and rate.per_second > 0]
    for at, one in enumerate(finite):
        for other in finite[at + 1 :]:
            if {one.field, other.field} & STEPPED and not {one.field, other.field} <= STEPPED and not _in_samples(row):
                continue
            ratio = one.per_second / other.per_second
            if max(ratio, 1 / ratio) <= AGREE * one.slack * other.slack:
                continue
            unit = ""
            if other.field in STEPPED and one.field not in STEPPED:
                unit = "; where the throughput does not count samples, say so with work_unit"
            raise BadInput(
                f"{row['where']}: found {one.field}, which makes {rounded(one.per_second)} per second, and "
                f"{other.field}, which with a global batch of {total} makes {rounded(other.per_second)}; expected "
                f"columns that agree: correct the row, or leave the wrong column out{unit}"
            )


def _in_samples(row: Mapping[str, Any]) -> bool:
    """Whether a row's throughput counts what its batch counts, as far as is known."""
    unit = row.get("work_unit")
    if unit is not None:
        return str(unit).strip().casefold().removesuffix("s") in SAMPLES
    return "token" not in str(row.get("throughput column")).casefold() and row.get("workload.kind") != "language"


def _slack(value: float | None) -> float:
    """The factor by which half a step of the last digit that a number shows may change it.

    >>> _slack(10.0), _slack(0.25), _slack(None)
    (1.05, 1.02, 1.0)
    """
    if value is None or not math.isfinite(value) or value == 0:
        return 1.0
    places = 0 if value.is_integer() else -int(Decimal(repr(float(value))).as_tuple().exponent)
    return float(1 + 0.5 * 10.0**-places / abs(value))


def _outcome(row: Mapping[str, Any], mapping: ImportMapping) -> tuple[Outcome, str]:
    """How the row says that it ended; well where it says nothing."""
    word, message = row.get("outcome"), row.get("message") or ""
    if word is None:
        outcome = Outcome.OK
    elif word in mapping.outcomes:
        outcome = Outcome(mapping.outcomes[word])
    elif word.strip().casefold() in WORDS:
        outcome = WORDS[word.strip().casefold()]
    else:
        raise BadInput(
            f"{row['where']}: found the outcome {word!r}; expected a known word, or a mapping with outcomes: "
            f"{{{word}: ok}}"
        )
    return outcome, message or ("" if outcome == Outcome.OK else f"imported as {word}")
