"""What stands behind the conclusions, as tables: attestation, environment, and the method in words.

Read straight from a run's tables and aggregated; `unknown` is written out where nothing was recorded. Called by `page`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import polars as pl

from rtxscale.analysis.conclusions import is_import
from rtxscale.analysis.counted import of_stage
from rtxscale.report.numbers import NOTHING, duration, how_many, number
from rtxscale.report.tables.conclusions import Table
from rtxscale.report.trial_counts import TrialCounts, counts_words
from rtxscale.results.outcomes import Outcome
from rtxscale.results.read import Run
from rtxscale.spec.cell import Measure
from rtxscale.spec.method import criterion_words, measure_of, shortfalls
from rtxscale.spec.printable import printable

UNKNOWN = "unknown"
EITHER = "not declared: curves of either kind, where the rows hold them"
"""The study of an import that restricts its rows to none."""
VERDICTS = ("refuted", "not attested", "honoured", "not applicable")
"""In the order in which a reader wants to see them."""
ROWS = 200


def attestation_table(run: Run) -> Table | None:
    """What was asked against what was seen, equal rows counted, refutations first; None when nothing was attested."""
    same = ["subject", "requested", "observed", "verdict"]
    rank = pl.col("verdict").replace_strict({name: place for place, name in enumerate(VERDICTS)}, default=len(VERDICTS))
    counted = (
        run.frame("attestation")
        .group_by(same)
        .agg(pl.struct("trial_id", "attempt").n_unique().alias("attempts"), pl.col("evidence").drop_nulls().first())
        .sort(rank, "subject", "requested", "observed")
        .collect()
    )
    if counted.is_empty():
        return None
    rows = [
        (*(str(row[name] or NOTHING) for name in same), str(row["attempts"]), row["evidence"] or NOTHING)
        for row in counted.head(ROWS).iter_rows(named=True)
    ]
    note = f"{counted.height - ROWS} more rows are in the attestation table." if counted.height > ROWS else ""
    columns = ("setting", "asked", "seen", "verdict", "attempts", "evidence")
    return Table(
        key="attestation",
        title="What NCCL and PyTorch really did",
        columns=columns,
        rows=rows,
        right=frozenset({"attempts"}),
        note=note,
    )


def attestation_words(run: Run) -> str:
    """How many requests were honoured and how many were not; empty when nothing was attested.

    A request is one setting asked of one attempt at a trial; what does not apply is none.
    """
    counts = dict(run.frame("attestation").group_by("verdict").len().collect().iter_rows())
    if not counts:
        return ""
    judged = ("honoured", "refuted", "not attested")
    honoured, refuted, open_ones = (counts.get(name, 0) for name in judged)
    asked, none = honoured + refuted + open_ones, "none"
    return (
        f"{honoured:,} of {asked:,} request{'s' * (asked != 1)} {'was' if honoured == 1 else 'were'} honoured, "
        f"{refuted or none} refuted, {open_ones or none} left unproven. A request is one setting asked of one attempt "
        "at a trial."
    )


def environment_words(run: Run) -> str:
    """The versions that a number depends on most, in one sentence; empty where none was recorded."""
    wanted = ("torch", "nccl", "CUDA of torch", "driver", "python")
    frame = run.frame("environment").filter((pl.col("subject") == "software") & pl.col("name").is_in(wanted))
    found = frame.group_by("name").agg(pl.col("value").drop_nulls().unique().sort().str.join(" and ")).collect()
    values = dict(found.iter_rows())
    return ", ".join(f"{name} {values[name]}" for name in wanted if values.get(name) not in (None, "", UNKNOWN))


def environment_table(run: Run) -> Table | None:
    """Software and hardware as measured; nodes are named only where there are several.

    The list of installed packages, a hundred rows of it, is left to the dossier; findings have a table of their own,
    and nodes as data are for the run's continuation.
    """
    frame = run.frame("environment").filter(~pl.col("subject").fill_null("").is_in(["package", "doctor", "member"]))
    same = ["subject", "name", "value"]
    rows = frame.group_by(same, maintain_order=True).agg(pl.col("node").unique().sort()).sort("subject").collect()
    if rows.is_empty():
        return None
    nodes = {node for names in rows["node"] for node in names}
    several = len(nodes) > 1
    columns = ("subject", "name", "value", *(("nodes",) if several else ()))
    texts = [
        (*(str(row[name] or UNKNOWN) for name in same), *((_nodes(row["node"], nodes),) if several else ()))
        for row in rows.iter_rows(named=True)
    ]
    return Table(key="environment", title="Environment", columns=columns, rows=texts)


def _nodes(names: list[str], every: set[str]) -> str:
    return "all" if set(names) == every else ", ".join(str(name) for name in names)


def method(run: Run, counts: TrialCounts) -> list[tuple[str, str]]:
    """How the numbers were made: term and value, every term always present."""
    trials = run.frame("trials").select(_METHOD_COLUMNS).collect()
    return [(term, printable(value)) for term, value in _method(trials, counts)]


_METHOD_COLUMNS = (
    *("study", "workload", "precision", "compile", "profile", "steady_criterion", "isolation", "launcher"),
    *("outcome", "visit", "stage", "session_id", "window_s", "window_steps", "warmup_s", "soak_s"),
    *("position", "outside_s", "build_s"),
    *("started_ns", "ended_ns", "device", "device_names", "cell_json", "source"),
)


THROUGHPUT = "work of all workers in the window over its wall time, barrier to barrier"


def _method(trials: pl.DataFrame, counts: TrialCounts) -> Iterator[tuple[str, str]]:
    counted = trials.filter(pl.col("outcome") == Outcome.OK)
    yield "Measured", _period(trials)
    yield "On", _distinct(trials["device_names"].explode())
    yield "Study", study_words(trials)
    for column in ("workload", "precision", "compile", "isolation", "launcher"):
        yield column.capitalize(), _distinct(trials[column])
    yield "Profile", profile_words(trials)
    yield "Visits", _visits(of_stage(trials, "sweep"))
    confirming = of_stage(trials, "confirm")
    if confirming.height:
        yield "Confirmation", f"{_visits(confirming)}, of the selected cells and their defaults alone"
    yield "Trials", counts_words(counts)
    sentinels = of_stage(trials, "sentinel")
    if sentinels.height:
        yield "Sentinels", f"{counts.sentinels}, in {how_many(sentinels['session_id'].n_unique(), 'sessions')}"
    yield "Warm-up", _median(counted["warmup_s"], "s (median, first step included)")
    soaked = counted["soak_s"].drop_nulls()
    yield "Soak", _median(soaked.filter(soaked > 0), "s", nothing="none" if soaked.len() else UNKNOWN)
    yield "Window", f"{_median(counted['window_s'], 's')}, {_median(counted['window_steps'], 'steps')} (medians)"
    yield "Steady state", steady_words(counted)
    yield "Outside", outside_words(counted)
    yield "Throughput", "as the imported file says it" if counts.imported else THROUGHPUT
    yield "Intervals", "95 %, over sessions (Welch's t on logs of session means)"


def outside_words(counted: pl.DataFrame) -> str:
    """What a warm trial takes beside its measurement, and how much of that is building.

    The first trial of a session is not warm.
    """
    known = counted.filter(pl.col("position") > 0, pl.col("outside_s").is_not_null())
    if known.is_empty():
        return UNKNOWN
    spans = "soak, warm-up, window, collectives, no_sync arm nor run to a target"
    outside, built = (_median(known[column], "s") for column in ("outside_s", "build_s"))
    return f"{outside} of a warm trial that are neither {spans}, of which building {built} (medians)"


def _visits(trials: pl.DataFrame) -> str:
    return f"{trials['visit'].n_unique()}, in {how_many(trials['session_id'].n_unique(), 'sessions')}"


def study_words(trials: pl.DataFrame) -> str:
    """The studies of the trials; of an import, which need not declare any, what `both` means."""
    names = _distinct(trials["study"])
    return EITHER if names == "both" and is_import(trials) else names


def profile_words(trials: pl.DataFrame) -> str:
    """The measurement profile, and where it cannot be published, why: it is `quick`, or weaker than its name says."""
    names = _distinct(trials["profile"])
    spelled = [measure for measure in _measures(trials) if measure.profile != "quick"]
    lacks = dict.fromkeys(lack for measure in spelled for lack in shortfalls(measure))
    if lacks:
        return f"{names}: not publishable: {'; '.join(lacks)}"
    return f"{names}: not publishable" if "quick" in names.split(", ") else names


def steady_words(counted: pl.DataFrame) -> str:
    """The criterion that ended each warm-up, what no GPU told, and one criterion as it was recorded."""
    recorded = counted["steady_criterion"].drop_nulls()
    if recorded.is_empty():
        return UNKNOWN
    gpus = (counted["device"] == "cuda").any()
    stated = dict.fromkeys(criterion_words(measure, gpus=gpus) for measure in _measures(counted))
    words = [*stated]
    for name in ("temperature", "SM clock"):
        silent = int(recorded.str.contains(f"{name} not readable").sum())
        words += [f"{name} not readable in {silent} of {counted.height} trials"] * bool(silent)
    return "; ".join([*words, f"recorded for example: {recorded[0]}"])


def _measures(trials: pl.DataFrame) -> list[Measure]:
    """The different measures of the trials, as far as they can be read."""
    cells = trials["cell_json"].drop_nulls().unique(maintain_order=True)
    found = dict.fromkeys(measure_of(str(cell)) for cell in cells)
    return [measure for measure in found if measure is not None]


def _period(trials: pl.DataFrame) -> str:
    if trials["started_ns"].drop_nulls().is_empty():
        return UNKNOWN
    first, last = int(_number(trials["started_ns"].min())), int(_number(trials["ended_ns"].max()))
    start = datetime.fromtimestamp(first / 1e9, UTC)
    return f"{start:%Y-%m-%d %H:%M} UTC, over {duration((last - first) / 1e9)}"


def _distinct(values: pl.Series) -> str:
    return ", ".join(sorted({str(value) for value in values.drop_nulls()})) or UNKNOWN


def _median(values: pl.Series, unit: str, nothing: str = UNKNOWN) -> str:
    known = values.drop_nulls()
    return nothing if known.is_empty() else f"{number(_number(known.median()), 3)} {unit}"


def _number(value: Any) -> float:
    return float(value) if value is not None else float("nan")
