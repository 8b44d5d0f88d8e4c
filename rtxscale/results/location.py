"""Where runs live, how they are named and how a user names one.

`<root>/<sweep name>-<sweep id>-<NN>/`; the root is `$RTXSCALE_RESULTS`, else `~/rtxscale-results`, never the working
directory (under `ray job submit` that is a temporary copy). An object store, `s3://bucket/prefix`, is worked on through
a root of its own on this host, which a file in it marks; what is asked for is fetched into it. Reads only, but for
that. Called by `results.write` and by `cli`.
"""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

from rtxscale.errors import BadInput, ResultsError, StorageOutage
from rtxscale.results.commit import COMMITS
from rtxscale.results.disk import DIRECTORY_MODE, read_file, replace_file, unwritable
from rtxscale.results.manifest import MANIFEST, is_ours
from rtxscale.results.mirror import fetch
from rtxscale.results.object_store import ObjectStore, endpoint, is_url, open_store, parts_of

ROOT_VARIABLE = "RTXSCALE_RESULTS"
STORE_FILE = ".store"
"""Marks a root that stands for an object store, and holds its address."""
URL_BYTES = 4096
NAMED = 4
"""Most runs that are named where a sweep's name was given for one."""
_NAMED: dict[Path, str] = {}
"""Roots of stores that were named in this process, and their addresses; nothing need be there yet."""
RUN_NAME = re.compile(r"(?P<name>.+)-(?P<sweep_id>[0-9a-f]{12})-(?P<number>\d{2,})")


def results_root(given: Path | None = None) -> Path:
    """Absolute path of the results root: `given`, else `$RTXSCALE_RESULTS`, else `~/rtxscale-results`.

    Raises:
        BadInput: something is there that is not a directory, or no address of a store; nothing there is fine.
    """
    named = str(given) if given is not None else os.environ.get(ROOT_VARIABLE, "").strip()
    if is_url(named):
        return _root_of_store(named)
    root = (_expanded(named) if named else Path.home() / "rtxscale-results").absolute()
    if named.startswith("~") and str(_expanded(named)).startswith("~"):
        raise BadInput(
            f"{named}: found no such user's home directory; expected the directory that holds runs: write its whole "
            "path"
        )
    if _is_there(root) and not _is_directory(root):
        raise BadInput(
            f"{root}: found something that is not a directory; expected the directory that holds runs; "
            f"give another one with --results DIR or ${ROOT_VARIABLE}"
        )
    return root


def given_root(text: str) -> Path:
    """The results root as a user names it on the command line.

    Raises:
        BadInput: it is empty, as from a variable that is not set.
    """
    if not text.strip():
        raise BadInput("--results: found nothing after it; expected a directory, or s3://BUCKET/PREFIX")
    return Path(text)


def store_of(root: Path) -> ObjectStore | None:
    """The object store that a root stands for; None for an ordinary one.

    Raises:
        BadInput: its address or endpoint is of another form.
    """
    try:
        url = read_file(root / STORE_FILE, URL_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError):
        url = _NAMED.get(root, "")
    return open_store(url) if url else None


def mark_store(root: Path) -> None:
    """Make the root of a store that was only named so far, and mark it; anything else stays as it is.

    Raises:
        OSError: it cannot be made.
    """
    url = _NAMED.get(root)
    if url and not (root / STORE_FILE).exists():
        root.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        replace_file(root / STORE_FILE, f"{url}\n".encode())


def fetch_newest(root: Path, sweep_id: str) -> None:
    """Bring the newest run of a sweep from the store that the root stands for, if it does and holds one.

    Raises:
        ResultsError: the run there is damaged, or the store does not answer.
        OSError: it cannot be written here.
    """
    store = store_of(root)
    if store is None:
        return
    matches = [(RUN_NAME.fullmatch(name), name) for name in store.folders()]
    ours = sorted((int(match["number"]), name) for match, name in matches if match and match["sweep_id"] == sweep_id)
    if ours:
        fetch(store, root / ours[-1][1])


def run_name(sweep_name: str, sweep_id: str, number: int) -> str:
    """Name of a run directory.

    >>> run_name("quickstart", "0123456789ab", 3)
    'quickstart-0123456789ab-03'
    """
    return f"{sweep_name}-{sweep_id}-{number:02d}"


def sweep_name(name: str) -> str:
    """Name of the sweep whose run has this name; empty where it is no run's.

    >>> sweep_name("quickstart-0123456789ab-03"), sweep_name("notes")
    ('quickstart', '')
    """
    match = RUN_NAME.fullmatch(name)
    return match["name"] if match else ""


def runs_of_sweep(root: Path, sweep_id: str) -> list[tuple[int, Path]]:
    """Number and path of everything in the root that is named like a run of this sweep, ours or not, oldest first."""
    if not root.is_dir():
        return []
    matches = [(RUN_NAME.fullmatch(path.name), path) for path in root.iterdir()]
    return sorted((int(match["number"]), path) for match, path in matches if match and match["sweep_id"] == sweep_id)


def list_runs(root: Path, problems: list[str] | None = None) -> list[Path]:
    """All runs in the root, the one written to last first; those of a store are fetched.

    With `problems`, what is wrong with one of a store is added there and hides none of the others.

    Raises:
        ResultsError: a run there is damaged, or the store does not answer.
    """
    if store := store_of(root):
        for name in store.folders():
            try:
                _fetch(store, root, name)
            except StorageOutage:
                raise
            except ResultsError as error:
                if problems is None:
                    raise
                problems.append(str(error))
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
    store = store_of(root)
    if store:
        _fetch(store, root, text)
    for path in (_expanded(text), root / text):
        if _is_directory(path):
            return _marked(path.absolute())
    named = _names_of_sweep(text, root, store)
    raise BadInput(
        f"{text}: found neither a directory nor a run in {root}; expected a run directory, a run's name or `latest`; "
        + (f"runs of that sweep are {', '.join(named[:NAMED])}" if named else "`rtxscale runs` lists them")
    )


def _names_of_sweep(text: str, root: Path, store: ObjectStore | None) -> list[str]:
    """Names of the runs of a sweep of this name, the latest number first; nothing is fetched for them."""
    here = (path.name for path in root.iterdir()) if root.is_dir() else ()
    names = {*here, *(store.folders() if store else ())}
    return sorted((name for name in names if sweep_name(name) == text), reverse=True)


def _root_of_store(url: str) -> Path:
    """The root on this host for a store: below the home directory, apart for each endpoint; `mark_store` makes it.

    Raises:
        BadInput: it is no address.
    """
    names = parts_of(url)
    server = hashlib.sha256(endpoint(os.environ).encode()).hexdigest()[:8]
    root = Path.home() / ".cache" / "rtxscale" / f"s3-{server}" / Path(*names)
    _NAMED[root] = f"s3://{'/'.join(names)}"
    return root


def _fetch(store: ObjectStore, root: Path, name: str) -> None:
    """Bring one run; what is not named like one is nothing.

    Raises:
        ResultsError: it is damaged, the store does not answer, or nothing can be written here.
    """
    if not RUN_NAME.fullmatch(name) or "/" in name:
        return
    try:
        if not root.is_dir() and MANIFEST not in store.below(name).names():
            return  # nothing to keep, so nothing to make
        mark_store(root)
        fetch(store, root / name)
    except OSError as error:
        raise unwritable(root, error) from error


def _marked(path: Path) -> Path:
    if is_ours(path):
        return path
    found = "a run.json that is none of ours" if (path / "run.json").exists() else "no run.json"
    raise BadInput(
        f"{path}: found a directory with {found}; expected a run directory of rtxscale; `rtxscale runs` lists them"
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
