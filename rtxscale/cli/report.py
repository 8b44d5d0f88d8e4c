"""`rtxscale report`: write a run's report, and its charts as pictures. Reads results only; no Ray, torch or GPU."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from rtxscale.cli.show import ResultsOption, RunArgument, open_run
from rtxscale.errors import BadInput

REPORT_FILE = "report.html"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(report)


def report(
    run: RunArgument = "latest",
    results: ResultsOption = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where to write; else report.html in the run.")
    ] = None,
    open_it: Annotated[bool, typer.Option("--open", help="Open the report in the browser.")] = False,
    charts: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Also write every chart as PNG and SVG into this directory.")
    ] = None,
) -> None:
    """Write one HTML file that opens offline; print its path."""
    from rtxscale.analysis.conclude import conclude
    from rtxscale.report.charts import figures
    from rtxscale.report.export import write_charts
    from rtxscale.report.page import write_report

    opened = open_run(run, results)
    conclusions = conclude(opened)
    try:
        path = write_report(opened, conclusions, output or opened.run_dir / REPORT_FILE)
        pictures = write_charts(figures(opened, conclusions), charts) if charts else []
    except OSError as error:
        raise BadInput(
            f"{error.filename or output or opened.run_dir}: cannot be written ({error.strerror}); "
            "give another place with -o FILE or --charts DIR"
        ) from error
    if charts:
        print(f"{len(pictures)} pictures in {charts.absolute()}")
    print(path)
    if open_it:
        webbrowser.open(path.as_uri())
