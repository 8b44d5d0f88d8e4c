"""`rtxscale fit`: what of a sweep fits into a GPU's memory, also of a GPU that is not here. Loads no torch itself."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rtxscale.models.footprint import Subject
    from rtxscale.plan.fit import Fit

WIDTH = 80


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(fit)


def fit(
    sweep: Annotated[Path, typer.Argument(help="The sweep file (YAML).", show_default=False)],
    gpu: Annotated[str, typer.Option(help='A GPU by its name, such as "RTX 5090".', metavar="NAME")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Say which cells of a sweep fit into the memory of a GPU.

    Predicted, not measured: GiB per GPU, the largest batch per GPU, and what would make it fit.
    """
    from rtxscale.cli.counting import counted
    from rtxscale.plan.fit import fits, memory_of_gpu, uncounted
    from rtxscale.spec.load import load_sweep
    from rtxscale.spec.printable import printable
    from rtxscale.workloads.files.model import catalogue_beside

    loaded = load_sweep(sweep)
    label, memory_gib = memory_of_gpu(gpu)
    subjects = uncounted(loaded.sweep, gpu)
    catalogue = counted(subjects).joined(catalogue_beside(loaded.sweep, sweep.absolute().parent))
    _refuse_unknown(subject for subject in subjects if subject in catalogue.problems)
    found = fits(loaded.sweep, gpu, catalogue)
    if as_json:
        typer.echo(
            json.dumps({"gpu": label, "memory_gib": memory_gib, "cells": [asdict(one) for one in found]}, indent=2)
        )
        return
    head = f"{loaded.sweep.name} on {label}, {memory_gib} GiB, {loaded.sweep.subjects}"
    head = textwrap.fill(head, WIDTH, subsequent_indent="  ", break_long_words=False)
    typer.echo(printable("\n".join([head, "", *fit_lines(found)])))


def _refuse_unknown(uncountable: Iterable[Subject]) -> None:
    """Refuse names of models that there are not, which is why they could not be counted.

    Raises:
        BadInput: with each such name and the nearest right ones.
    """
    from rtxscale.cli.looked_up import unknown_names
    from rtxscale.errors import BadInput
    from rtxscale.spec.workload import VisionWorkload

    names = dict.fromkeys(subject.model for subject in uncountable if subject.kind == "vision")
    if wrong := unknown_names(VisionWorkload(kind="vision", model=name) for name in names):
        raise BadInput("; ".join(wrong))


def fit_lines(found: list[Fit]) -> Iterator[str]:
    """One cell after the other in lines of at most 80 columns, and how far to trust them."""
    yield f"{'GPUs':>4}  {'GiB each':>8}  {'verdict':<12}  {'most':>4}  settings"
    for one in found:
        needs = "-" if one.needs_gib is None else f"{one.needs_gib:.1f}"
        most = "-" if one.largest_batch is None else str(one.largest_batch)
        settings = ", ".join(f"{path.removeprefix('workload.')} {value}" for path, value in one.settings.items())
        yield from textwrap.wrap(
            f"{one.gpus:>4}  {needs:>8}  {one.verdict:<12}  {most:>4}  {settings or 'as they are'}",
            WIDTH,
            subsequent_indent=" " * 36,
            drop_whitespace=False,
        )
        if one.note:
            yield from textwrap.wrap(one.note, WIDTH, initial_indent=" " * 6, subsequent_indent=" " * 6)
    yield ""
    yield from textwrap.wrap(
        "Predicted from shapes and counts; most: the largest batch per GPU that leaves a tenth free. Libraries' "
        "workspaces, the CUDA context, NCCL's buffers and fragmentation are not in it: tight may run out of memory.",
        WIDTH,
    )
