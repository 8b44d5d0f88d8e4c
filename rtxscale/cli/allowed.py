"""Whether the code and commands that a sweep names may run, and where they lie: not every sweep is one's own.

Looks at files only. Callers: `cli.sweep` and `cli.confirm` before anything starts, `cli.explain` for the directory.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtxscale.errors import BadInput, ResultsError

if TYPE_CHECKING:
    from rtxscale.results.read import Run
    from rtxscale.spec.sweep import Sweep

SUMS = "SHA256SUMS"
"""The checksums that every dossier holds beside its sweep."""

AllowOption = Annotated[
    bool, typer.Option("--allow-commands", help="Run script, command and meter of a sweep in somebody's dossier.")
]


def check_allowed(sweep: Sweep, directory: Path, *, allowed: bool) -> None:
    """Let no code of an unpacked dossier run unless the user says so; `directory` is the sweep file's.

    Raises:
        BadInput: it would.
    """
    if allowed:
        return
    workload = sweep.workload
    places: dict[str, Path] = {}
    if sweep.notify is not None:
        places[f"the notify command {sweep.notify.command[0]}"] = directory
    if sweep.wall_power is not None and sweep.wall_power.asks_others:
        named = " ".join(sweep.wall_power.command) or sweep.wall_power.address
        places[f"the power meter {named}, which may be shown a password,"] = directory
    if workload.kind == "script":
        places |= {f"the script {workload.entry or workload.path}": directory / workload.directory}
    for what, folder in places.items():
        sums = next((place / SUMS for place in (directory, folder) if (place / SUMS).exists()), None)
        if sums:
            raise BadInput(
                f"found {what} in a dossier ({sums} is there): it would run with all your rights; expected a sweep of "
                "your own: read the code, then use --allow-commands"
            )


def script_directory(run: Run, sweep: Sweep) -> Path | None:
    """The directory of the sweep file that a run's script trials were measured from; None without a script.

    Raises:
        ResultsError: no trial of the run says it.
    """
    if sweep.workload.kind != "script":
        return None
    seen = list(attested_directories(run))
    if not seen:
        raise ResultsError(
            f"{run.run_dir}: found no trial that says where its script lies; expected one that has ended: continue "
            "with `rtxscale sweep`"
        )
    return Path(seen[-1])


def attested_directories(run: Run) -> Iterable[str]:
    """Directories that the run's scripts were found relative to, in the order of the rows, the last one the newest."""
    import polars as pl

    rows = run.frame("attestation").filter(pl.col("subject") == "workload.directory").collect()
    return dict.fromkeys(rows["observed"].drop_nulls())
