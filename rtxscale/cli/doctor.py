"""`rtxscale doctor`: whether this machine, or every node of a cluster, is fit to be measured, and how to fix it.

Works without a GPU, in a container and with a broken driver. Loads no torch in this process, and Ray only to ask a
cluster.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtxscale.cli.show import ResultsOption

if TYPE_CHECKING:
    from rtxscale.doctor.cluster import ClusterExamination
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
    address: Annotated[
        str | None, typer.Option(help="host:port of a Ray cluster: every node of it, and what differs between them.")
    ] = None,
) -> None:
    """Check driver, software, GPUs, links and host of machines.

    Exit code 1 for an error that is not ignored, else 0.
    """
    from rtxscale.doctor.cluster import ALL_RULE_IDS, cluster_data, cluster_lines
    from rtxscale.doctor.examine import RULE_IDS, check_names
    from rtxscale.doctor.show import as_data, lines
    from rtxscale.results.location import results_root

    check_names(ignore or (), RULE_IDS if address is None else ALL_RULE_IDS)
    root = results_root(results)
    if address is not None:
        cluster = _examine_cluster(address, root, ignore or [], quick=quick, psu_w=psu_w)
        _say(cluster_data(cluster) if as_json else cluster_lines(cluster))
        raise typer.Exit(cluster.exit_code)
    examination = _examine(root, ignore or [], quick=quick, psu_w=psu_w)
    _say(as_data(examination) if as_json else lines(examination))
    raise typer.Exit(examination.exit_code)


def look_first(sweep: Sweep, root: Path, ignore: list[str] | None) -> tuple[dict[str, str], ...]:
    """What the doctor finds before a sweep is run: warnings are printed, and all of it is returned to be kept.

    Raises:
        BadInput: a name in `ignore` is no rule.
        RunError: measuring here would be pointless.
    """
    from rtxscale.doctor.preflight import opening_lines, preflight, rows, stop_on_errors

    without_gpus = sweep.hardware.device == "cpu" or sweep.workload.kind == "simulated"
    examination = preflight(root, ignore or (), on_cpu=without_gpus)
    stop_on_errors(examination)
    for line in opening_lines(examination):
        print(line)
    return rows(examination)


def _say(found: dict[str, Any] | Iterable[str]) -> None:
    """Print data as JSON, lines as text."""
    from rtxscale.spec.printable import printable

    if isinstance(found, dict):
        typer.echo(json.dumps(found, indent=2, allow_nan=False))
    else:
        typer.echo(printable("\n".join(found)))


def _examine_cluster(
    address: str, root: Path, ignore: list[str], *, quick: bool, psu_w: float | None
) -> ClusterExamination:
    """Every node's examination, asked of the nodes themselves through Ray."""
    from rtxscale.run.authentication import settle

    os.environ["RAY_ADDRESS"] = address
    settle(os.environ, Path.home())  # before Ray is imported
    from rtxscale.run.examination import Asked, examine_at

    return examine_at(address, Asked(results_root=str(root), quick=quick, psu_w=psu_w), ignore)


def _examine(root: Path, ignore: list[str], *, quick: bool, psu_w: float | None) -> Examination:
    from dataclasses import replace

    from rtxscale.doctor.collect import collect
    from rtxscale.doctor.examine import examine
    from rtxscale.doctor.facts import TransferFacts
    from rtxscale.doctor.transfers import measure_transfers

    facts = collect(root, quick=quick, psu_w=psu_w)
    transfers = TransferFacts(not_run="--quick") if quick else measure_transfers(facts)
    return examine(replace(facts, transfers=transfers), ignore)
