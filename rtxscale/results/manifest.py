"""`run.json`: what marks a directory as a run of ours, of which sweep and in which schema.

Reading never writes. A directory without this file, or with one that lacks our mark, is somebody else's and is left
alone. Called by `results.write`, `results.read` and `results.location`.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rtxscale.errors import ResultsError, StorageOutage
from rtxscale.results.disk import OUTAGES, read_file, replace_file
from rtxscale.results.schema import SCHEMA_VERSION
from rtxscale.results.small_json import parse_small
from rtxscale.spec.sweep import Sweep

MANIFEST = "run.json"
MARK = "rtxscale"
KIND = "run"
TEXTS = ("run_id", "sweep_id", "sweep_name", "question", "study", "created")


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """Identity of a run. `axes` holds the values of each axis as written in the sweep; `created` is UTC, ISO 8601.

    `sweep_sha256` is the `sweep_digest` of the sweep file last given for the run; None in a run of an older rtxscale.
    """

    run_id: str
    sweep_id: str
    sweep_name: str
    question: str
    study: str
    axes: dict[str, list[Any]]
    created: str
    environment_id: str | None = None
    sweep_sha256: str | None = None
    schema_version: int = SCHEMA_VERSION

    def as_bytes(self) -> bytes:
        """The content of `run.json`."""
        return (json.dumps({MARK: KIND, **asdict(self)}, indent=2) + "\n").encode()


def sweep_digest(text: str) -> str:
    """SHA-256 of a sweep file's text, whatever ends its lines."""
    return hashlib.sha256(text.replace("\r\n", "\n").replace("\r", "\n").encode()).hexdigest()


def check_sweep_text(run_dir: Path, sweep_sha256: str | None, text: str) -> None:
    """See that a run's sweep file is the one it was measured for; where the run does not say, nothing is known.

    Raises:
        ResultsError: it is another one.
    """
    if sweep_sha256 is not None and sweep_sha256 != sweep_digest(text):
        raise ResultsError(
            f"{run_dir / 'sweep.yaml'}: found another text than the run was measured for; expected the one whose "
            f"SHA-256 its {MANIFEST} holds: restore it from a copy, or continue with `rtxscale sweep` and your own file"
        )


def new_manifest(run_id: str, sweep: Sweep, sweep_text: str) -> Manifest:
    """Manifest of a run that starts now."""
    return Manifest(
        run_id=run_id,
        sweep_id=sweep.sweep_id,
        sweep_name=sweep.name,
        question=sweep.question,
        study=sweep.study,
        axes={path: list(dict.fromkeys(values)) for path, values in sweep.axes.items()},
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        sweep_sha256=sweep_digest(sweep_text),
    )


def is_ours(run_dir: Path) -> bool:
    """Whether the directory holds a `run.json` with our mark; a damaged one counts as ours."""
    try:
        content = parse_small(read_file(run_dir / MANIFEST))
    except ValueError:
        return True
    except OSError:
        return False
    return isinstance(content, dict) and content.get(MARK) == KIND


def read_manifest(run_dir: Path) -> Manifest:
    """Read `run.json`.

    Raises:
        ResultsError: not a directory, not ours, damaged, or of a newer schema.
    """
    if not run_dir.is_dir():
        raise ResultsError(f"{run_dir}: found no directory; expected a run directory; `rtxscale runs` lists them")
    path = run_dir / MANIFEST
    try:
        content = parse_small(read_file(path))
    except OSError as error:
        raise (StorageOutage if error.errno in OUTAGES else ResultsError)(
            f"{run_dir}: found no readable {MANIFEST} ({error.strerror}); expected a run directory of rtxscale; "
            "nothing was written there"
        ) from error
    except ValueError as error:
        raise ResultsError(
            f"{path}: found text that is not JSON as a run has it; expected the run's manifest; restore it from a "
            "copy, or start a new run with --fresh"
        ) from error
    return _checked(path, content)


def write_manifest(run_dir: Path, manifest: Manifest) -> None:
    """Replace `run.json`; the caller holds the run's lock."""
    replace_file(run_dir / MANIFEST, manifest.as_bytes())


def _checked(path: Path, content: Any) -> Manifest:
    if not isinstance(content, dict) or content.get(MARK) != KIND:
        raise ResultsError(f'{path}: found no "{MARK}": "{KIND}"; expected a manifest of rtxscale; nothing was written')
    version = content.get("schema_version")
    if type(version) is not int or version < 0:
        raise ResultsError(f"{path}: found schema_version {version!r}; expected a whole number; the file is damaged")
    if version > SCHEMA_VERSION:
        raise ResultsError(
            f"{path}: found results of schema {version}; this rtxscale reads up to {SCHEMA_VERSION}; "
            "use a newer rtxscale; nothing was written"
        )
    known = {name: content[name] for name in Manifest.__dataclass_fields__ if name in content}
    faults = _wrong_types(known)
    if faults:
        raise ResultsError(
            f"{path}: found a wrong type at {', '.join(faults)}; expected a manifest as rtxscale writes it; "
            "the file is damaged: restore it from a copy, or start a new run with --fresh; nothing was written"
        )
    try:
        return Manifest(**known)
    except TypeError as error:
        raise ResultsError(f"{path}: found a manifest with missing fields ({error}); the file is damaged") from error


def _wrong_types(known: dict[str, Any]) -> list[str]:
    """Fields that are there with a value of another type than the writer gives them."""
    faults = [name for name in TEXTS if not isinstance(known.get(name, ""), str)]
    axes = known.get("axes", {})
    if not isinstance(axes, dict) or not all(isinstance(values, list) for values in axes.values()):
        faults.append("axes")
    faults += [name for name in ("environment_id", "sweep_sha256") if not isinstance(known.get(name), str | None)]
    return faults
