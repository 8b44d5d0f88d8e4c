"""Where runs live, how they are named and how a user names one.

`<root>/<sweep name>-<sweep id>-<NN>/`; the root is `$RTXSCALE_RESULTS`, else `~/rtxscale-results`, never the working
directory (under `ray job submit` that is a temporary copy). Reads only. Called by `results.write` and by `cli`.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from rtxscale.errors import ResultsError
from rtxscale.results.commit import COMMITS
from rtxscale.results.manifest import is_ours

ROOT_VARIABLE = "RTXSCALE_RESULTS"
RUN_NAME = re.compile(r"(?P<name>.+)-(?P<sweep_id>[0-9a-f]{12})-(?P<number>\d{2,})")


def results_root() -> Path:
    """Absolute path of the results root: `$RTXSCALE_RESULTS`, else `~/rtxscale-results`."""
    given = os.environ.get(ROOT_VARIABLE, "").strip()
    root = Path(given).expanduser() if given else Path.home() / "rtxscale-results"
    return root.absolute()


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
        ResultsError: there is no such run.
    """
    if text == "latest":
        runs = list_runs(root)
        if not runs:
            raise ResultsError(f"{root}: found no run; expected at least one; `rtxscale sweep SWEEP` makes one")
        return runs[0]
    for path in (Path(text).expanduser(), root / text):
        if path.is_dir():
            return path.absolute()
    raise ResultsError(
        f"{text}: found neither a directory nor a run in {root}; expected a run directory, a run's name or `latest`; "
        "`rtxscale runs` lists them"
    )


def _last_written_ns(run_dir: Path) -> int:
    try:
        return (run_dir / COMMITS).stat().st_mtime_ns
    except OSError:
        return 0
