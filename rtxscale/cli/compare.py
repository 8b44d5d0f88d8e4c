"""`rtxscale compare`: one run against another, cell by cell. Reads results only; no Ray, torch or GPU."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtxscale.cli.show import ResultsOption, open_run

if TYPE_CHECKING:
    from rtxscale.analysis.compare import Comparison

TOO_SLOW = 1
"""Exit code where B falls below the bar, or where nothing shows that it does not."""


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(compare)


def compare(
    a: Annotated[str, typer.Argument(help="The run to compare with: a directory, a name, or latest.", metavar="A")],
    b: Annotated[str, typer.Argument(help="The run in question.", metavar="B")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as JSON.")] = False,
    fail_below: Annotated[
        float | None,
        typer.Option(
            min=0.0, metavar="RATIO", help="Exit with 1 if B reaches less than RATIO of A anywhere, or fails there."
        ),
    ] = None,
    results: ResultsOption = None,
) -> None:
    """Compare run B with run A, cell by cell.

    A ratio above 1 means that B is faster. Cells are compared where every setting is equal; the rest says why not.
    """
    from rtxscale.analysis.compare import compare as compared

    found = compared(open_run(a, results), open_run(b, results))
    if as_json:
        print(json.dumps(as_data(found), indent=2, allow_nan=False))
    else:
        _print(found)
    if fail_below is not None:
        verdict, passed = judged(found, fail_below)
        print(verdict, file=sys.stderr)
        if not passed:
            raise typer.Exit(TOO_SLOW)


def as_data(found: Comparison) -> dict[str, Any]:
    """The comparison as JSON data; what is not known is null."""
    from rtxscale.report.bounds import told_bounds

    return {
        "a": found.run_a,
        "b": found.run_b,
        "summary": found.sentence(),
        "cells": told_bounds(found.cells).to_dicts(),
        "differences": found.differences.to_dicts(),
        "signals": found.signals.to_dicts(),
    }


def judged(found: Comparison, bar: float) -> tuple[str, bool]:
    """The gate's verdict in words, and whether it passes: not a comparison of nothing, nor a B that fails where A ran.

    The measured ratio decides, so that few visits cannot hide a loss; the words say where the interval reaches the bar.
    """
    from rtxscale.spec.printable import printable

    compared, failed = found.compared, found.failed
    if failed.height:
        row = failed.row(0, named=True)
        why = row["verdict"].partition(": ")[2]
        numbers = f"{failed.height} of A's numbers {'has' if failed.height == 1 else 'have'} none in B"
        return printable(f"rtxscale: {numbers}, first in ({row['label']}): {why}"), False
    if not compared.height:
        return f"rtxscale: nothing could be compared, so nothing shows that B reaches {bar:g} of A", False
    slow = found.below(bar).sort("ratio")
    if not slow.height:
        return f"rtxscale: all {compared.height} compared numbers of B reach {bar:g} of A", True
    row = slow.row(0, named=True)
    open_ones = slow.filter(slow["ratio_high"].is_null() | (slow["ratio_high"] >= bar)).height
    doubt = f"; {open_ones} of them may be noise: more visits would tell" if open_ones else ""
    return printable(
        f"rtxscale: {slow.height} of {compared.height} compared numbers of B are below {bar:g} of A, lowest "
        f"{row['ratio']:.3f} in ({row['label']}, {row['quantity']}){doubt}"
    ), False


def _print(found: Comparison) -> None:
    from rtxscale.analysis.sanity import sanity_remarks
    from rtxscale.report.tables.comparison import ALL, comparison_table, differences_table, uncompared_table
    from rtxscale.report.tables.meaning import signals_table
    from rtxscale.report.terminal import show_table
    from rtxscale.spec.printable import printable

    for sentence in (found.sentence(), *sanity_remarks(found.signals)):
        print(printable(sentence))
    signals = signals_table(found.signals, more=ALL)
    for table in (comparison_table(found), uncompared_table(found), signals, differences_table(found)):
        if table is not None and table.rows:
            print()
            show_table(table, stream=sys.stdout)
