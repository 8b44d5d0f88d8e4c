"""Where runs live, how they are named and how a user names one.

`<root>/<sweep name>-<sweep id>-<NN>/`; the root is `$RTXSCALE_RESULTS`, else `~/rtxscale-results`, never the working
directory (under `ray job submit` that is a temporary copy). Reads only. Called by `results.write` and by `cli`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from rtxscale.errors import BadInput
from rtxscale.results.commit import COMMITS
from rtxscale.results.manifest import is_ours

ROOT_VARIABLE = "RTXSCALE_RESULTS"
RUN_NAME = re.compile(r"(?P<name>.+)-(?P<sweep_id>[0-9a-f]{12})-(?P<number>\d{2,})")


def results_root(given: Path | None = None) -> Path:
    """Absolute path of the results root: `given`, else `$RTXSCALE_RESULTS`, else `~/rtxscale-results`.

    Raises:
        BadInput: something is there that is not a directory; nothing there is fine.
    """
    named = str(given) if given is not None else os.environ.get(ROOT_VARIABLE, "").strip()
    root = (_expanded(named) if named else Path.home() / "rtxscale-results").absolute()
    if _is_there(root) and not _is_directory(root):
        raise BadInput(
            f"{root}: found something that is not a directory; expected the directory that holds runs; "
            f"give another one with --results DIR or ${ROOT_VARIABLE}"
        )
    return root


def run_name(sweep_name: str, sweep_id: str, number: int) -> str:
    """Name of a run directory.

    >>> run_name("quickstart", "0123456789ab", 3)
    'quickstart-0123456789ab-03'
    """
    return f"{sweep_name}-{sweep_id}-{number:02d}"


def runs_of_sweep(root: Path, sweep_id: str) -> list[tuple[int, Path]]:
    """Number and path of everything in the root that is named like a run of this sweep, ours or not, oldest first."""
    if not root.is_dir():
        return []
    matches = [(RUN_NAME.fullmatch(path.name), path) for path in root.iterdir()]
    return sorted((int(match["number"]), path) for match, path in matches if match and match["sweep_id"] == sweep_id)


def list_runs(root: Path) -> list[Path]:
    """All runs in the root, the one written to last first."""
    if not root.is_dir():
        return []
    runs = [path for path in root.iterdir() if RUN_NAME.fullmatch(path.name) and is_ours(path)]
    return sorted(runs, key=lambda path: (_last_written_ns(path), path.name), reverse=True)


def find_run(text: str, root: Path) -> Path:
    """Absolute path of the run that the user named: a directory, the name of a run in the root, or `latest`.

    Raises:
        BadInput: there is no such run.
    """
    if text == "latest":
        runs = list_runs(root)
        if not runs:
            raise BadInput(f"{root}: found no run; expected at least one; `rtxscale sweep SWEEP` makes one")
        return runs[0]
    for path in (_expanded(text), root / text):
        if _is_directory(path):
            return _marked(path.absolute())
    raise BadInput(
        f"{text}: found neither a directory nor a run in {root}; expected a run directory, a run's name or `latest`; "
        "`rtxscale runs` lists them"
    )


def _marked(path: Path) -> Path:
    if is_ours(path):
        return path
    raise BadInput(
        f"{path}: found a directory without the run.json of a run; expected a run directory of rtxscale; "
        "`rtxscale runs` lists them"
    )


def _expanded(text: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # no such user
        return Path(text)


def _is_directory(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # no name of a file at all, such as one that is too long
        return False


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):
        return True


def _last_written_ns(run_dir: Path) -> int:
    try:
        return (run_dir / COMMITS).stat().st_mtime_ns
    except OSError:
        return 0
