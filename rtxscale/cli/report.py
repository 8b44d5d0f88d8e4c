"""`rtxscale report`: write a run's report, and its charts as pictures. Reads results only; no Ray, torch or GPU."""

from __future__ import annotations

import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from rtxscale.cli.dossier import NoRedactOption
from rtxscale.cli.show import DeclareOption, ResultsOption, RunArgument, open_run
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
    declare: DeclareOption = None,
    no_redact: NoRedactOption = False,
) -> None:
    """Write one HTML file that opens offline; print its path."""
    from rtxscale.analysis.conclude import conclude
    from rtxscale.report.charts.export import write_charts
    from rtxscale.report.charts.figures import figures
    from rtxscale.report.page import write_report
    from rtxscale.report.targets import check_directory, check_file
    from rtxscale.results.redaction.redacted import redacted
    from rtxscale.spec.declare import Declaration, load_declaration, mapped
    from rtxscale.spec.printable import printable

    opened = open_run(run, results)
    declaration = Declaration() if declare is None else load_declaration(declare)
    destination = check_file(output or opened.run_dir / REPORT_FILE)
    if charts:
        charts = check_directory(charts)
    if not no_redact:
        opened = redacted(opened)
        declaration = mapped(declaration, opened.redactor.text)
    conclusions = conclude(opened, price=declaration.price)
    try:
        path = write_report(opened, conclusions, destination, declaration)
        pictures = write_charts(figures(opened, conclusions), charts) if charts else []
    except OSError as error:
        raise BadInput(
            f"{error.filename or destination}: cannot be written ({error.strerror}); "
            "give another place with -o FILE or --charts DIR"
        ) from error
    if charts:
        print(printable(f"{len(pictures)} pictures in {charts}"))
    print(printable(str(path)))
    if open_it:
        webbrowser.open(path.as_uri())
