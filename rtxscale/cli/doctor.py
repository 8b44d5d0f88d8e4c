"""`rtxscale doctor`: whether this machine is fit to be measured, what is wrong, and how to fix it.

Works without a GPU, in a container and with a broken driver. Loads neither Ray nor, in this process, torch.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtxscale.cli.show import ResultsOption

if TYPE_CHECKING:
    from rtxscale.doctor.examine import Examination
    from rtxscale.spec.sweep import Sweep


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(doctor)


IgnoreOption = Annotated[
    list[str] | None,
    typer.Option("--ignore", metavar="RULE", help="A rule whose findings stop nothing; may be given several times."),
]


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print findings and facts as JSON.")] = False,
    ignore: IgnoreOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="Measure no transfers, search no libraries.")] = False,
    psu_w: Annotated[
        float | None, typer.Option("--psu-w", min=0.0, help="Rating of the power supply in W; nothing can read it.")
    ] = None,
    results: ResultsOption = None,
) -> None:
    """Check driver, software, GPUs, links and host of this machine.

    Exit code 1 for an error that is not ignored, else 0.
    """
    from rtxscale.doctor.examine import check_names
    from rtxscale.results.location import results_root
    from rtxscale.spec.printable import printable

    check_names(ignore or ())
    examination = _examine(results_root(results), ignore or [], quick=quick, psu_w=psu_w)
    from rtxscale.doctor.show import as_data, lines

    if as_json:
        typer.echo(json.dumps(as_data(examination), indent=2, allow_nan=False))
    else:
        typer.echo(printable("\n".join(lines(examination))))
    raise typer.Exit(examination.exit_code)


def look_first(sweep: Sweep, root: Path, ignore: list[str] | None) -> tuple[dict[str, str], ...]:
    """What the doctor finds before a sweep is run: warnings are printed, and all of it is returned to be kept.

    Raises:
        BadInput: a name in `ignore` is no rule.
        RunError: measuring here would be pointless.
    """
    from rtxscale.doctor.preflight import opening_lines, preflight, rows, stop_on_errors

    examination = preflight(root, ignore or (), on_cpu=sweep.hardware.device == "cpu")
    stop_on_errors(examination)
    for line in opening_lines(examination):
        print(line)
    return rows(examination)


def _examine(root: Path, ignore: list[str], *, quick: bool, psu_w: float | None) -> Examination:
    from dataclasses import replace

    from rtxscale.doctor.collect import collect
    from rtxscale.doctor.examine import examine
    from rtxscale.doctor.facts import TransferFacts
    from rtxscale.doctor.transfers import measure_transfers

    facts = collect(root, quick=quick, psu_w=psu_w)
    transfers = TransferFacts(not_run="--quick") if quick else measure_transfers(facts)
    return examine(replace(facts, transfers=transfers), ignore)
