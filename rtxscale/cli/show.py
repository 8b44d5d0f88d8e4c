"""`rtxscale show`: what a run says, as text, JSON or CSV. Reads results only; no Ray, torch or GPU."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtxscale.errors import BadInput, RtxscaleError

if TYPE_CHECKING:
    import polars as pl

    from rtxscale.analysis.conclusions import Conclusions
    from rtxscale.results.read import Run
    from rtxscale.spec.declare import Price

CONCLUDED = (
    *("cells", "efficiency", "best", "confirmed", "effects", "bandwidth", "fits", "drift", "sentinels", "outcomes"),
    *("interactions", "objectives", "cost", "throttling", "cards", "sanity", "mfu", "budget", "placements", "nodes"),
    *("targets", "retries"),
)


def run_names(incomplete: str) -> list[str]:
    """What completes a run's name in a shell: `latest`, and the runs on this disk, the newest first."""
    from rtxscale.results.location import list_runs, results_root, store_of

    try:
        root = results_root(None)
        names = [] if store_of(root) else [path.name for path in list_runs(root)]
    except RtxscaleError:
        names = []
    return [name for name in ("latest", *names) if name.startswith(incomplete)]


def results_path(text: str) -> Path:
    """What `--results` names."""
    from rtxscale.results.location import given_root

    return given_root(text)


RunArgument = Annotated[
    str,
    typer.Argument(help="A run's directory, its name, or latest.", metavar="[RUN]", autocompletion=run_names),
]
DeclareOption = Annotated[
    Path | None,
    typer.Option(
        "--declare",
        metavar="FILE",
        help="A declaration whose price is the one really billed: as `rtxscale dossier` writes it.",
    ),
]
ResultsOption = Annotated[
    Path | None,
    typer.Option(
        metavar="PATH",
        parser=results_path,
        help="Where runs are kept; else $RTXSCALE_RESULTS, else ~/rtxscale-results.",
    ),
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(show)


def show(
    run: RunArgument = "latest",
    results: ResultsOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print all conclusions as JSON.")] = False,
    csv: Annotated[
        str | None, typer.Option(metavar="TABLE", help="Print one table as CSV: of the conclusions or of the results.")
    ] = None,
    declare: DeclareOption = None,
) -> None:
    """Show what a run says.

    Efficiencies with intervals, best cells, effects of settings, bandwidths, outcomes.
    """
    from rtxscale.analysis.conclude import conclude
    from rtxscale.spec.printable import printable

    if as_json and csv is not None:
        raise BadInput("--json, --csv: found both; expected one of them")
    opened = open_run(run, results)
    price = declared_price(declare)
    if csv is not None:
        text = csv_text(opened, csv, price)
        sys.stdout.write(printable(text) if sys.stdout.isatty() else text)
        return
    conclusions = conclude(opened, price=price)
    if as_json:
        print(json.dumps(as_data(opened, conclusions), indent=2, allow_nan=False))
        return
    from rtxscale.report.terminal import show_conclusions
    from rtxscale.report.trial_counts import trial_counts

    print(printable(f"{opened.run_dir}\n"))
    show_conclusions(conclusions, stream=sys.stdout, counts=trial_counts(opened))


def declared_price(path: Path | None) -> Price | None:
    """The price section of a declaration; None without one.

    Raises:
        SpecError: the file is wrong.
    """
    from rtxscale.spec.declare import load_declaration

    return None if path is None else load_declaration(path).price


def open_run(text: str, results: Path | None) -> Run:
    """The run that the user named, every committed byte of it checked.

    Raises:
        BadInput: there is none.
        ResultsError: it cannot be read, or is damaged.
    """
    from rtxscale.results.location import find_run, results_root
    from rtxscale.results.read import open_verified

    return open_verified(find_run(text, results_root(results)))


def as_data(run: Run, conclusions: Conclusions) -> dict[str, Any]:
    """All conclusions as JSON data; a number that cannot be concluded is null."""
    from rtxscale.report.bounds import told_bounds
    from rtxscale.report.numbers import plain
    from rtxscale.report.trial_counts import trial_counts

    frames = {name: told_bounds(getattr(conclusions, name)) for name in CONCLUDED}
    return {
        "run_id": run.run_id,
        "run_dir": str(run.run_dir),
        "headline": conclusions.headline,
        "trial_counts": asdict(trial_counts(run)),
        "remarks": list(conclusions.remarks),
        **{name: [plain(row) for row in frame.iter_rows(named=True)] for name, frame in frames.items()},
    }


def csv_text(run: Run, name: str, price: Price | None = None) -> str:
    """One table as CSV; lists are joined with spaces.

    Raises:
        BadInput: there is no such table.
    """
    from rtxscale.analysis.conclude import conclude
    from rtxscale.report.bounds import told_bounds
    from rtxscale.results.schema import TABLES

    if name in CONCLUDED:
        frame: pl.DataFrame = told_bounds(getattr(conclude(run, price=price), name))
    elif name in TABLES:
        frame = run.frame(name).collect()
    else:
        raise BadInput(f"--csv: found {name!r}; expected one of {', '.join((*CONCLUDED, *TABLES))}")
    return _flat(frame).write_csv()


def _flat(frame: pl.DataFrame) -> pl.DataFrame:
    import polars as pl

    lists = [name for name, kind in frame.schema.items() if isinstance(kind, pl.List)]
    return frame.with_columns(pl.col(name).cast(pl.List(pl.String)).list.join(" ") for name in lists)
