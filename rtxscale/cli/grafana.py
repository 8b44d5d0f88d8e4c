"""`rtxscale grafana`: the dashboard of a sweep's gauges, as JSON for Grafana's import. Loads nothing else."""

from __future__ import annotations

from importlib.resources import files

import typer

DASHBOARD = "grafana.json"


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(grafana)


def grafana() -> None:
    """Print a Grafana dashboard of running sweeps.

    Its data come from the cluster's own Prometheus metrics.
    """
    typer.echo(dashboard_text(), nl=False)


def dashboard_text() -> str:
    """The dashboard as Grafana imports it."""
    return files("rtxscale.telemetry").joinpath(DASHBOARD).read_text(encoding="utf-8")
