"""Whether the code and commands that a sweep names may run, and where they lie: not every sweep is one's own.

A sweep file that the user passes counts as the user's own, unless it or its code lies in a dossier. A sweep that a run
holds does not, unless this user has passed that very text before; a note of it is kept outside the results. Looks at
files only. Callers: `cli.sweep` and `cli.confirm` before anything starts, `cli.explain` for the directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtxscale.errors import BadInput, ResultsError

if TYPE_CHECKING:
    from rtxscale.results.read import Run
    from rtxscale.spec.sweep import Sweep

SUMS = "SHA256SUMS"
"""The checksums that every dossier holds beside its sweep."""
MARKS = (SUMS, "dossier.json")

AllowOption = Annotated[
    bool, typer.Option("--allow-commands", help="Run script, command and meter of a sweep in somebody's dossier.")
]


def commands_of(sweep: Sweep) -> Iterator[str]:
    """What of a sweep runs with all the user's rights, in words."""
    if sweep.notify is not None:
        yield f"the notify command {sweep.notify.command[0]}"
    if sweep.wall_power is not None and sweep.wall_power.asks_others:
        named = " ".join(sweep.wall_power.command) or sweep.wall_power.address
        yield f"the power meter {named}, which may be shown a password,"
    if sweep.workload.kind == "script":
        yield f"the script {sweep.workload.entry or sweep.workload.path}"


def check_allowed(sweep: Sweep, directory: Path, *, allowed: bool) -> None:
    """Let no code of an unpacked dossier run unless the user says so; `directory` is the sweep file's.

    Raises:
        BadInput: it would.
    """
    if allowed:
        return
    for what in commands_of(sweep):
        mark = next(filter(None, map(dossier_mark, _places(sweep, directory))), None)
        if mark:
            raise BadInput(
                f"found {what} in a dossier ({mark} is there): it would run with all your rights; expected a sweep of "
                "your own: read the code, then use --allow-commands"
            )


def dossier_mark(place: Path) -> Path | None:
    """The file that makes a directory part of a dossier: in it or above it, as it is written and where it really is."""
    for path in dict.fromkeys((Path(os.path.normpath(place.absolute())), place.resolve())):
        for folder in (path, *path.parents):
            for name in MARKS:
                if (folder / name).exists():
                    return folder / name
    return None


def _places(sweep: Sweep, directory: Path) -> list[Path]:
    """Directories that a sweep's code comes from."""
    if sweep.workload.kind != "script":
        return [directory]
    code = directory / sweep.workload.directory
    path = sweep.workload.path
    return [directory, code, *([(code / path).resolve().parent] if path else [])]


def check_own(sweep: Sweep, text: str, directory: Path | None, *, allowed: bool) -> None:
    """Let no command run that a run's sweep file names, unless this user has passed that file to `rtxscale sweep`.

    `directory` is where its script is to be found; None without one.

    Raises:
        BadInput: it would.
    """
    named = list(commands_of(sweep))
    if allowed or not named or _note(text, directory).is_file():
        return
    raise BadInput(
        f"found {named[0]} in the run's own sweep file, which was not passed to `rtxscale sweep` by you here: it would "
        "run with all your rights; expected a run of your own: read the file, then use --allow-commands"
    )


def note_own(sweep: Sweep, text: str, directory: Path) -> None:
    """Remember that the user has passed this sweep file, if it names commands; a home that is not writable forgets."""
    if not any(commands_of(sweep)):
        return
    note = _note(text, directory if sweep.workload.kind == "script" else None)
    with contextlib.suppress(OSError):
        note.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        note.touch(mode=0o600)


def _note(text: str, directory: Path | None) -> Path:
    """Where it is remembered: named by the text, and by the directory that its script is run from."""
    from rtxscale.results.manifest import sweep_digest

    given = Path(os.environ.get("XDG_STATE_HOME", ""))
    state = given if given.is_absolute() else Path.home() / ".local" / "state"
    name = hashlib.sha256(f"{sweep_digest(text)} {directory or ''}".encode()).hexdigest()
    return state / "rtxscale" / "own-sweeps" / name


def script_directory(run: Run, sweep: Sweep) -> Path | None:
    """The directory of the sweep file that a run's trials were measured from; None where they needed no file of it.

    Raises:
        ResultsError: no trial of the run says it.
    """
    from rtxscale.spec.workload import names_files

    if not names_files(sweep.workload):
        return None
    seen = list(attested_directories(run))
    if not seen:
        raise ResultsError(
            f"{run.run_dir}: found no trial that says where its files lie; expected one that has ended: continue "
            "with `rtxscale sweep`"
        )
    return Path(seen[-1])


def attested_directories(run: Run) -> Iterable[str]:
    """Directories that the run's scripts were found relative to, in the order of the rows, the last one the newest."""
    import polars as pl

    rows = run.frame("attestation").filter(pl.col("subject") == "workload.directory").collect()
    return dict.fromkeys(rows["observed"].drop_nulls())
