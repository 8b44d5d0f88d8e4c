"""What a dossier's lines are filled from: a run's tables, its conclusions and the user's declaration, read once.

Each kind of source in `dossier.lines` is one small function here; derived ones are in `dossier.derived`
and `dossier.results`. A source that knows nothing returns None. Called by `dossier.record`.
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import polars as pl

from rtxscale.analysis.conclusions import Conclusions
from rtxscale.analysis.counted import counted_trials, settled_trials
from rtxscale.plan.order import SENTINEL
from rtxscale.results.read import Run
from rtxscale.spec.cell import Cell, as_text
from rtxscale.spec.declare import NOT_APPLICABLE, UNKNOWN, Declaration

VALUE = "value"
MEASURED, DECLARED, DOCUMENTED, NOBODY = "measured", "declared by the user", "documented", "nobody"
SHOWN = 40
"""Most distinct values that one line lists."""
MODES = (UNKNOWN, NOT_APPLICABLE)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a source says: `status` is `value`, `unknown` or `not applicable`, and then `value` says why."""

    value: str
    declared_by: str
    where: str
    status: str = VALUE


@dataclass(frozen=True, kw_only=True)
class Facts:
    """All that lines may ask. `counted` are the trials that enter the numbers, `trials` all attempts."""

    run: Run
    conclusions: Conclusions
    declaration: Declaration
    trials: pl.DataFrame
    counted: pl.DataFrame
    environment: pl.DataFrame
    attestation: pl.DataFrame
    telemetry: pl.DataFrame
    """One row per used GPU, over the measured windows."""
    cells: tuple[Cell, ...]
    files: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """`cuda` or `cpu`; empty where nothing ran."""
        return next(iter(self.trials["device"].drop_nulls()), "")

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of workloads, such as `vision`."""
        return frozenset(text.partition("/")[0] for text in self.trials["workload"].drop_nulls())


def facts_of(run: Run, conclusions: Conclusions, declaration: Declaration, files: Iterable[str] = ()) -> Facts:
    """Read what the lines need."""
    trials = run.frame("trials").collect()
    counted = without_sentinels(counted_trials(settled_trials(trials)))
    return Facts(
        run=run,
        conclusions=conclusions,
        declaration=declaration,
        trials=trials,
        counted=counted,
        environment=run.frame("environment").collect(),
        attestation=run.frame("attestation").collect(),
        telemetry=_telemetry(run, counted),
        cells=tuple(_cells(trials["cell_json"])),
        files=tuple(files),
    )


def without_sentinels(trials: pl.DataFrame) -> pl.DataFrame:
    """The trials that were measured for a number."""
    return trials.filter(pl.col("stage").ne_missing(pl.lit(SENTINEL)))


def _cells(texts: pl.Series) -> Iterable[Cell]:
    """The distinct cells that ran; what this rtxscale does not understand is left out."""
    for text in texts.drop_nulls().unique(maintain_order=True):
        try:
            yield Cell.model_validate_json(text)
        except ValueError:
            continue


def _telemetry(run: Run, counted: pl.DataFrame) -> pl.DataFrame:
    windows = counted.select("trial_id", "attempt", "gpu_uuids", "window_start_ns", "window_end_ns").lazy()
    used = pl.col("gpu_uuids").list.contains(pl.col("uuid")).fill_null(True)
    inside = pl.col("t_ns").is_between(pl.col("window_start_ns"), pl.col("window_end_ns"))
    return (
        run.frame("telemetry")
        .filter(pl.col("uuid").is_not_null())
        .join(windows, on=["trial_id", "attempt"], nulls_equal=True)
        .filter(used & inside)
        .group_by("uuid")
        .agg(
            pl.col("memory_temperature_c", "fan_percent", "pcie_generation", "pcie_width").max(),
            pl.col("memory_used_mib").median(),
            pl.col("throttle_reasons").explode().drop_nulls().unique().sort(),
        )
        .sort("uuid")
        .collect()
    )


def measured(value: str, where: str) -> Answer:
    """Something that was measured or read from the machine."""
    return Answer(value=value, declared_by=MEASURED, where=where)


def documented(value: str, where: str) -> Answer:
    """Something that is known without looking at the machine."""
    return Answer(value=value, declared_by=DOCUMENTED, where=where)


def not_applicable(why: str, declared_by: str = MEASURED, where: str = "the run") -> Answer:
    """Something that cannot be said of this run, and why."""
    return Answer(value=f"{NOT_APPLICABLE}: {why}", declared_by=declared_by, where=where, status=NOT_APPLICABLE)


def from_environment(facts: Facts, key: str) -> Answer | None:
    """Distinct values of environment rows; `key` is subject/name, the name with `*` for any text."""
    subject, _, name = key.partition("/")
    rows = facts.environment.filter(pl.col("subject") == subject)
    values = [value for found, value in rows.select("name", "value").iter_rows() if fnmatch.fnmatchcase(found, name)]
    known = [value for value in values if value and value not in MODES]
    where = f"environment: {subject}/{name}"
    if not known and NOT_APPLICABLE in values:
        return not_applicable("as the driver says", where=where)
    if not known:
        return None
    return measured(counted_values(known) if subject == "gpu" else distinct(known), where)


def from_trials(facts: Facts, key: str) -> Answer | None:
    """Distinct values of a column of the trials table."""
    values = facts.trials[key]
    if isinstance(values.dtype, pl.List):
        values = values.explode()
    known = values.drop_nulls().unique().sort()
    return None if known.is_empty() else measured(distinct(map(as_text, known)), f"trials.{key}")


def from_settings(facts: Facts, key: str) -> Answer | None:
    """Values of a field over all cells, in the sweep's words."""
    found = [as_text(value) for cell in facts.cells if (value := _at(cell, key)) is not None]
    if not found:
        return None
    return Answer(value=distinct(sorted(set(found), key=_order)), declared_by=DECLARED, where=f"sweep: {key}")


def _at(cell: Cell, path: str) -> Any:
    try:
        return cell.at(path)
    except AttributeError:  # a field of another kind of workload
        return None


def _order(text: str) -> tuple[bool, float, str]:
    try:
        return (True, float(text), "")
    except ValueError:
        return (False, 0.0, text)


def from_attestation(facts: Facts, key: str) -> Answer | None:
    """What was seen of a setting, with its verdicts."""
    rows = facts.attestation.filter(pl.col("subject") == key)
    seen = sorted({item for text in rows["observed"].drop_nulls() for item in _items(text)}, key=_order)
    if not seen:
        return None
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in sorted(Counter(rows["verdict"]).items()))
    return measured(f"{distinct(seen)} ({verdicts})", f"attestation: {key}")


def _items(text: str) -> list[str]:
    """What was seen, one by one where it is a list of words, such as the protocols of one trial.

    >>> _items("ll, simple"), _items("11 buckets, largest 9.51 MiB")
    (['ll', 'simple'], ['11 buckets, largest 9.51 MiB'])
    """
    items = text.split(", ")
    return items if all(re.fullmatch(r"[\w/.-]+", item) for item in items) else [text]


def from_declaration(facts: Facts, key: str) -> Answer | None:
    """What the user declared."""
    value, where = facts.declaration.at(key), f"declare.yaml: {key}"
    if value == UNKNOWN:
        return None
    if value == NOT_APPLICABLE:
        return Answer(value=NOT_APPLICABLE, declared_by=DECLARED, where=where, status=NOT_APPLICABLE)
    return Answer(value=value if isinstance(value, str) else amount(value), declared_by=DECLARED, where=where)


def from_documentation(facts: Facts, key: str) -> Answer | None:
    """A sentence that holds for every run."""
    return documented(key, "rtxscale")


SOURCES: dict[str, Callable[[Facts, str], Answer | None]] = {
    "environment": from_environment,
    "trials": from_trials,
    "settings": from_settings,
    "attested": from_attestation,
    "declared": from_declaration,
    "documented": from_documentation,
}

APPLIES: dict[str, tuple[Callable[[Facts], bool], str]] = {
    "always": (lambda facts: True, ""),
    "gpu": (lambda facts: facts.device != "cpu", "the run used CPU workers"),
    "several": (lambda facts: _most_workers(facts) != 1, "only one worker ran"),
    "nccl": (lambda facts: facts.device != "cpu" and _most_workers(facts) != 1, "NCCL ran between no two GPUs"),
    "training": (lambda facts: facts.kinds != {"collectives"}, "only collectives were timed"),
    "images": (lambda facts: _any_kind(facts, "vision", "diffusion"), "no model of images ran"),
    "checkpointed": (lambda facts: _any_kind(facts, "vision", "language", "diffusion"), "no such model ran"),
    "accumulated": (lambda facts: _any_kind(facts, "vision", "language"), "no such model ran"),
    "language": (lambda facts: _any_kind(facts, "language"), "no language model ran"),
    "diffusion": (lambda facts: _any_kind(facts, "diffusion"), "no diffusion model ran"),
    "compiled": (lambda facts: _compiled(facts), "nothing was compiled"),
    "collectives": (lambda facts: _timed(facts), "no collectives were timed"),
}
"""When a line is a question at all, and what is said where it is not. A run without trials answers nothing."""


def _any_kind(facts: Facts, *kinds: str) -> bool:
    return not facts.kinds or not facts.kinds.isdisjoint(kinds)


def _most_workers(facts: Facts) -> int:
    return int(facts.trials["gpus"].max() or 0)  # type: ignore[arg-type]  # a column of integers


def _compiled(facts: Facts) -> bool:
    return facts.trials.is_empty() or bool((facts.trials["compile"] != "off").any())


def _timed(facts: Facts) -> bool:
    return "collectives" in facts.kinds or not facts.conclusions.bandwidth.is_empty() or facts.trials.is_empty()


def amount(value: float) -> str:
    """A declared number as it was declared.

    >>> amount(3000), amount(21.5)
    ('3,000', '21.5')
    """
    return f"{value:,.10g}"


def distinct(values: Iterable[str]) -> str:
    """Distinct values in order, the first `SHOWN` of them; by semicolons where one has a comma of its own.

    >>> distinct(["ring", "tree"]), distinct(["3 buckets, largest 25.27 MiB", "2 buckets, largest 1.03 MiB"])
    ('ring, tree', '3 buckets, largest 25.27 MiB; 2 buckets, largest 1.03 MiB')
    """
    found = list(dict.fromkeys(values))
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return ("; " if any(", " in value for value in found) else ", ").join(found[:SHOWN]) + more


def counted_values(values: Iterable[str]) -> str:
    """How often each value stands there.

    >>> counted_values(["32607 MiB", "32607 MiB", "24564 MiB"])
    '2x 32607 MiB, 1x 24564 MiB'
    """
    return distinct(f"{count}x {value}" for value, count in Counter(values).items())
