"""A dossier as files: checklist, data, tables, charts, logs, sweep and checksums, in a directory or a ZIP.

Written whole or not at all; the same run gives the same bytes but for the time of writing, which is stated. Called by
`cli.dossier`.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

import polars as pl

from rtxscale.analysis.conclude import conclude
from rtxscale.errors import BadInput, SpecError
from rtxscale.report.charts.export import write_charts
from rtxscale.report.charts.figures import figures
from rtxscale.report.dossier.facts import facts_of
from rtxscale.report.dossier.logs import file_logs, safe_name, table_logs
from rtxscale.report.dossier.markdown import markdown
from rtxscale.report.dossier.record import dossier_of
from rtxscale.report.targets import check_directory, check_file
from rtxscale.results.read import Run
from rtxscale.results.redaction.redacted import RedactedRun, redacted
from rtxscale.results.schema import TABLES
from rtxscale.results.table_file import write_table_file
from rtxscale.spec.declare import Declaration, mapped
from rtxscale.spec.load import parse_sweep

DATA, PAGE, SCHEMA, SUMS = "dossier.json", "dossier.md", "dossier.schema.json", "SHA256SUMS"
SWEEP, LOCK, DECLARED = "sweep.yaml", "requirements.lock", "declare.json"
TABLE_FOLDER, CHART_FOLDER, LOG_FOLDER = "tables", "charts", "logs"
NEEDED = (DATA, PAGE, SCHEMA, SUMS, SWEEP, LOCK, DECLARED, *(f"{TABLE_FOLDER}/{name}.parquet" for name in TABLES))
"""What every dossier holds; charts and logs are there as far as the run has them."""
ZIP_TIME = (1980, 1, 1, 0, 0, 0)
"""The ZIP format's first moment, for every entry: when a file was written says nothing about the run."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """What goes into a dossier; `redact` is False only where the user says so."""

    run: Run
    declaration: Declaration = field(default_factory=Declaration)
    redact: bool = True
    written: datetime | None = None


def write_dossier(request: Request, destination: Path) -> Path:
    """Write the dossier to a ZIP, or to a directory that is empty or not there yet; returns its absolute path.

    Raises:
        BadInput: something is at `destination` that must not be replaced.
        OSError: it cannot be written.
    """
    zipped = destination.suffix.lower() == ".zip"
    destination = check_file(destination) if zipped else _empty_directory(destination)
    with tempfile.TemporaryDirectory(dir=destination.parent, prefix=f".{destination.name}-") as name:
        staged = Path(name) / "dossier"
        staged.mkdir()
        write_files(request, staged)
        if zipped:
            _zip(staged, Path(name) / "dossier.zip")
            (Path(name) / "dossier.zip").replace(destination)
        else:
            if destination.exists():
                destination.rmdir()
            staged.replace(destination)
    return destination


def write_files(request: Request, directory: Path) -> None:
    """Every file of the dossier into an empty directory, the checksums last."""
    logs = list(file_logs(request.run.run_dir))
    shown = redacted(request.run, texts=[text for _, text in logs]) if request.redact else request.run
    declaration = mapped(request.declaration, _change(shown))
    conclusions = conclude(shown, price=declaration.price)
    (directory / TABLE_FOLDER).mkdir()
    for name in TABLES:
        write_table_file(shown, name, directory / TABLE_FOLDER / f"{name}.parquet")
    write_charts(figures(shown, conclusions), directory / CHART_FOLDER, ("svg",))
    _write_logs(logs, shown, directory / LOG_FOLDER)
    _write(directory / SWEEP, shown.sweep_text)
    _write(directory / DECLARED, _json(declaration.model_dump(mode="json")))
    _write(directory / LOCK, lock_text(shown))
    _write(directory / SCHEMA, files(__package__).joinpath(SCHEMA).read_text(encoding="utf-8"))
    facts = facts_of(shown, conclusions, declaration, _listed(directory))
    written = request.written or datetime.now(UTC)
    remarks = tuple(_remarks(request.run, shown))
    dossier = dossier_of(facts, written=written, redacted=request.redact, remarks=remarks)
    _write(directory / DATA, _json(dossier))
    _write(directory / PAGE, markdown(dossier))
    _write(directory / SUMS, "".join(f"{_sha256(directory / name)}  {name}\n" for name in _listed(directory)))


def lock_text(run: Run) -> str:
    """The installed packages as a requirements file; says so where the run did not record them."""
    rows = run.frame("environment").filter(pl.col("subject") == "package").select("name", "value").collect()
    pinned = sorted({f"{name}=={version}" for name, version in rows.iter_rows()})
    return "\n".join(pinned or ["# unknown: this run did not record its installed packages"]) + "\n"


def _remarks(run: Run, shown: Run) -> Iterator[str]:
    """What a reader must know of the files beside the numbers."""
    try:
        before, after = (parse_sweep(one.sweep_text, SWEEP) for one in (run, shown))
    except SpecError:
        yield f"{SWEEP}: this rtxscale cannot read it; use the version that measured it"
        return
    if before.model_copy(update={"question": ""}) != after.model_copy(update={"question": ""}):
        yield f"{SWEEP}: redaction changed more than its question, so it plans other ids than those in the tables"


def _change(shown: Run) -> Any:
    return shown.redactor.text if isinstance(shown, RedactedRun) else str


def _write_logs(logs: Iterable[tuple[str, str]], shown: Run, folder: Path) -> None:
    """Logs that lie in the run as files, then those that are rows of its logs table."""
    change = _change(shown)
    texts = [
        (f"{place:03d}-{safe_name(change(name))}", change(text)) for place, (name, text) in enumerate(logs, start=1)
    ]
    for name, text in [*texts, *table_logs(shown)]:
        folder.mkdir(exist_ok=True)
        _write(folder / name, text)


def _empty_directory(path: Path) -> Path:
    path = check_directory(path)
    if path.exists() and any(path.iterdir()):
        raise BadInput(
            f"{path}: found a directory that is not empty; expected an empty one, nothing yet, or a name that ends in "
            ".zip; nothing was written"
        )
    return path


def _listed(directory: Path) -> list[str]:
    """Every file below the directory, relative, in order."""
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())


def _zip(directory: Path, path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in _listed(directory):
            entry = zipfile.ZipInfo(name, ZIP_TIME)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            with (directory / name).open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target)


def _write(path: Path, text: str) -> None:
    path.write_bytes(text.encode(errors="replace"))


def _json(data: Any) -> str:
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _sha256(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
