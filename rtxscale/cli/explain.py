"""`rtxscale explain`: what one trial asked and measured, and the command that repeats it without Ray.

Reads results only; no Ray, torch or GPU. The command is the last line printed.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtxscale.cli.allowed import attested_directories
from rtxscale.cli.show import ResultsOption, open_run
from rtxscale.errors import BadInput, ResultsError
from rtxscale.results.outcomes import SIMULATED

if TYPE_CHECKING:
    import polars as pl

    from rtxscale.results.read import Run
    from rtxscale.spec.cell import Planted, Trial

NAMED = 5
"""Most trial ids named in an error."""


ANOTHER_RUN = "--run RUN looks in another run"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(explain)


def explain(
    trial: Annotated[str, typer.Argument(help="A trial id, or as much of its beginning as is unique.")],
    run: Annotated[str, typer.Option(metavar="RUN", help="A run's directory, its name, or latest.")] = "latest",
    results: ResultsOption = None,
) -> None:
    """Print what a trial did and the command that repeats it.

    The command starts the same ranks with torchrun, without Ray.
    """
    from rtxscale.rank.command import explain_command
    from rtxscale.spec.printable import printable

    opened = open_run(run, results)
    row = last_attempt(opened, trial)
    attestation = seen(opened, row)
    row["flags"] = flags_of(opened, row, attestation)
    if row["source"] not in (None, SIMULATED):
        print(printable("\n".join(summary(row, None, attestation))))
        print(printable(f"\nNot measured by rtxscale ({row['source']}), so there is no command that repeats it."))
        return
    planned = planned_trial(row)
    if row["source"] == SIMULATED:
        print(printable("\n".join(summary(row, planned, attestation))))
        print("\nSimulated: nothing ran, so there is no command that repeats it; the same sweep gives the same number.")
        return
    device, threads, directory = row["device"] or "cuda", row["threads"] or 1, place_of_script(opened, attestation)
    command = explain_command(planned, device, threads, row["gpu_uuids"] or [], directory)
    print(printable("\n".join(summary(row, planned, attestation))))
    print("\nTo repeat it without Ray, on the same machine:")
    print(printable(command))


def last_attempt(run: Run, text: str) -> dict[str, Any]:
    """The newest row of the trial whose id begins with `text`.

    Raises:
        BadInput: no trial or more than one begins so.
    """
    import polars as pl

    trials = run.frame("trials")
    known = trials.select(pl.col("trial_id").unique().sort()).collect()["trial_id"].to_list()
    trial_id = choose(text, known, run.run_id)
    rows = trials.filter(pl.col("trial_id") == trial_id).sort("attempt", nulls_last=False).collect()
    return rows.row(-1, named=True)


def choose(text: str, known: list[str], run_id: str) -> str:
    """The one id that begins with `text`.

    Raises:
        BadInput: none or several do.
    """
    if not text.strip():
        raise BadInput(
            "found an empty trial id; expected an id, or as much of its beginning as is unique; "
            "`rtxscale show --csv trials` lists them"
        )
    if not known:
        raise BadInput(f"{text}: run {run_id} has no trials yet; expected the id of a measured trial; {ANOTHER_RUN}")
    matches = [trial_id for trial_id in known if trial_id.startswith(text.lower())]
    if len(matches) == 1:
        return matches[0]
    if matches:
        listed = ", ".join(matches[:NAMED]) + (", ..." if len(matches) > NAMED else "")
        raise BadInput(f"{text}: found {len(matches)} trials that begin so ({listed}); expected more of the id")
    near = difflib.get_close_matches(text.lower(), known, n=NAMED, cutoff=0.4) or known[:NAMED]
    raise BadInput(
        f"{text}: found no such trial in run {run_id}; nearest of {len(known)}: {', '.join(near)}; "
        f"`rtxscale show --csv trials` lists them; {ANOTHER_RUN}"
    )


def planned_trial(row: dict[str, Any]) -> Trial:
    """The trial as it was planned, from its row.

    Raises:
        ResultsError: the row's cell is not one that this rtxscale knows.
    """
    from rtxscale.spec.cell import Cell, Trial

    try:
        cell = Cell.model_validate_json(row["cell_json"] or "")
        planned = {name: row[name] for name in ("visit", "repeat", "slot", "stage") if row[name] is not None}
        return Trial(cell=cell, **planned)
    except ValueError as error:
        raise ResultsError(
            f"trial {row['trial_id']}: found a cell that this rtxscale does not know ({_in_words(error)}); use the "
            "version that measured it"
        ) from error


def _in_words(error: ValueError) -> str:
    """What is wrong with a cell, field by field, of many the first few."""
    problems: list[dict[str, Any]] = getattr(error, "errors", list)()
    if not problems:
        return str(error)
    if problems[0]["type"] == "json_invalid":
        return "its column cell_json is not JSON"
    words = [f"{'.'.join(map(str, one['loc'])) or 'the cell'}: {one['msg']}" for one in problems[:NAMED]]
    more = len(problems) - NAMED
    return "; ".join([*words, *([f"{more} more"] if more > 0 else [])])


def seen(run: Run, row: dict[str, Any]) -> pl.DataFrame:
    """Attestation of the trial's attempt."""
    import polars as pl

    same = (pl.col("trial_id") == row["trial_id"]) & (pl.col("attempt") == row["attempt"])
    return run.frame("attestation").filter(same).collect()


def flags_of(run: Run, row: dict[str, Any], attestation: pl.DataFrame) -> list[str]:
    """The flags of the trial, those included that follow from what was measured."""
    import polars as pl

    from rtxscale.analysis.flags import flagged

    same = (pl.col("trial_id") == row["trial_id"]) & pl.col("attempt").eq_missing(pl.lit(row["attempt"]))
    own = run.frame("trials").filter(same).tail(1).collect()
    flags: list[str] = flagged(own, attestation, run.frame("environment").collect())["flags"][0].to_list()
    return flags


def place_of_script(run: Run, attestation: pl.DataFrame) -> str:
    """The sweep file's directory, for the code of this attempt; of the run's latest where it ended too early to say."""
    own = [item["observed"] for item in attestation.iter_rows(named=True) if item["subject"] == "workload.directory"]
    known = [place for place in own if place] or list(attested_directories(run))
    return str(known[-1]) if known else ""


def summary(row: dict[str, Any], planned: Trial | None, attestation: pl.DataFrame) -> list[str]:
    """What was asked, measured and seen, a line each; `planned` is None of a trial that was imported."""
    lines = [f"trial {row['trial_id']}, attempt {row['attempt']}: {row['outcome']}"]
    lines += [f"  {name:<9} {text}" for name, text in _facts(row, planned)]
    for item in attestation.iter_rows(named=True):
        found = item["observed"] or "nothing"
        lines.append(f"  {'seen':<9} {item['subject']}: asked {item['requested']}, seen {found}: {item['verdict']}")
    if planned is not None and planned.trial_id != row["trial_id"]:
        lines.append(
            "  note      this rtxscale gives the same cell another id; the command below is what it understands"
        )
    return lines


def planted_words(planted: Planted) -> str:
    """What a check has planted in the cell, in words; empty where nothing is.

    >>> from rtxscale.spec.cell import Planted
    >>> planted_words(Planted(delay_ms=2.5, delay_rank=1)), planted_words(Planted(arm="a01")), planted_words(Planted())
    ('2.5 ms added to every step of rank 1', 'arm a01, which changes nothing', '')
    """
    words = [f"arm {planted.arm}, which changes nothing"] if planted.arm else []
    if planted.delay_ms:
        where = "every rank" if planted.delay_rank is None else f"rank {planted.delay_rank}"
        words.append(f"{planted.delay_ms:g} ms added to every step of {where}")
    return "; ".join(words)


def _facts(row: dict[str, Any], planned: Trial | None) -> Iterator[tuple[str, str]]:
    from rtxscale.spec.cell import as_text

    axes = json.loads(row["axes_json"] or "{}")
    asked = ", ".join(f"{path} {as_text(value)}" for path, value in axes.items())
    yield (
        "asked",
        asked or (row["cell_json"] or "nothing that is known" if planned is None else planned.cell.canonical()),
    )
    if planned is not None and (planted := planted_words(planned.cell.planted)):
        yield "planted", planted
    batch = None if row["batch_per_gpu"] is None else f"batch {row['batch_per_gpu']} per worker"
    yield "workload", ", ".join(str(part) for part in (row["workload"], batch, row["precision"]) if part is not None)
    stage = "" if row["stage"] in (None, "sweep") else f"{row['stage']}, "
    yield "place", f"{stage}visit {row['visit']}, repeat {row['repeat']}, session {row['session_id']}"
    if row["message"]:
        yield "message", str(row["message"])
    if row["throughput_per_s"] is not None:
        yield _measured(row)
    if row["flags"]:
        yield "flags", ", ".join(_flag_words(flag) for flag in row["flags"])
    if row["device_names"]:
        workers = f"{row['gpus']} worker{'s' * (row['gpus'] != 1)}"
        yield "on", f"{workers}: {', '.join(row['device_names'])}"
    if planned is not None and row["threads"] is None:
        yield "threads", "not recorded; 1 CPU thread per worker is assumed"
    if (row["nodes"] or 1) > 1:
        yield "nodes", f"it ran on {row['nodes']} machines; the command starts all workers on one"


def _measured(row: dict[str, Any]) -> tuple[str, str]:
    """The throughput with its window and its warm-up, as far as they are known."""
    from rtxscale.report.numbers import number, throughput_unit

    how = "measured" if row["source"] is None else SIMULATED if row["source"] == SIMULATED else "given"
    words = f"{number(row['throughput_per_s'])} {throughput_unit(row['work_unit'])}"
    if row["window_s"] is not None:
        words += f"; window {number(row['window_s'], 3)} s"
        words += "" if row["window_steps"] is None else f", {row['window_steps']} steps"
    if row["warmup_s"] is not None:
        words += f", after {number(row['warmup_s'], 3)} s of warm-up"
    return how, words


def _flag_words(flag: str) -> str:
    from rtxscale.analysis.flags import MEANINGS

    return f"{flag} ({MEANINGS[flag]})" if flag in MEANINGS else flag
