"""`rtxscale import`: results that somebody else measured, as a run: everything that reads runs then works on them."""

from __future__ import annotations

import hashlib
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rtxscale.cli.show import ResultsOption

if TYPE_CHECKING:
    from rtxscale.results.imports.run import Imported
    from rtxscale.spec.mapping import ImportMapping
    from rtxscale.spec.sweep import Sweep

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9._-]+")


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command(name="import")(import_results)


def import_results(
    file: Annotated[Path, typer.Argument(help="A CSV or JSON table, or an output of nccl-tests.", metavar="FILE")],
    mapping: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Which of its columns is which, and what holds for every row.")
    ] = None,
    name: Annotated[str | None, typer.Option(metavar="NAME", help="Name of the run; else the file's.")] = None,
    results: ResultsOption = None,
) -> None:
    """Import results as a new run, marked as imported; print its path."""
    from rtxscale.results.imports.foreign import read_foreign_text
    from rtxscale.results.location import results_root
    from rtxscale.spec.mapping import ImportMapping, load_mapping
    from rtxscale.spec.printable import printable

    given = ImportMapping() if mapping is None else load_mapping(mapping)
    text = read_foreign_text(file)
    source = source_of(file, text)
    imported = read_import(text, str(file), given, source)
    run_dir = write_import(results_root(results), imported, sweep_of(imported, given, name or given.name, file), source)
    for note in imported.notes:
        print(printable(f"note: {note}"), file=sys.stderr)
    print(printable(str(run_dir)))


def source_of(file: Path, text: str) -> str:
    """What the imported rows say of where they are from: name and hash, no path."""
    return f"imported: {file.name} (sha256 {hashlib.sha256(text.encode()).hexdigest()[:12]})"


def read_import(text: str, file: str, mapping: ImportMapping, source: str) -> Imported:
    """The tables of a text, whichever kind it is.

    Raises:
        BadInput: it is none that can be imported.
    """
    from rtxscale.results.imports.foreign import parse_foreign
    from rtxscale.results.imports.nccl_outputs import import_nccl_tests, looks_like_nccl_tests
    from rtxscale.results.imports.run import import_table

    if looks_like_nccl_tests(text):
        return import_nccl_tests(text, file, mapping, source)
    return import_table(parse_foreign(text, file), mapping, source)


def sweep_of(imported: Imported, mapping: ImportMapping, name: str | None, file: Path) -> Sweep:
    """What stands in the place of a sweep: name, question, study and the axes that vary.

    Raises:
        BadInput: `name` is no name of a run.
    """
    from rtxscale.errors import BadInput
    from rtxscale.spec.sweep import Sweep

    made = NOT_IN_NAMES.sub("-", file.stem).strip("-._")[:64] or "imported"
    try:
        return Sweep.model_validate(
            {
                "name": name or made,
                "question": mapping.question or f"What does {file.name} say?",
                "study": mapping.study,
                "workload": {"kind": "collectives"},
                "axes": imported.axes,
            }
        )
    except ValueError as error:
        raise BadInput(
            f"--name: found {name or made!r}; expected 1 to 64 letters, digits, dots, underscores or hyphens"
        ) from error


def write_import(root: Path, imported: Imported, sweep: Sweep, source: str) -> Path:
    """Commit the tables as a new run; the directory of the run."""
    import json

    from rtxscale.results.write import RunWriter

    identity = imported.tables["environment"].column("environment_id")[0].as_py()
    axes = json.dumps({path: list(values) for path, values in imported.axes.items()})
    text = f"# {source}\n# Not a sweep: nothing can be run again from here.\nname: {sweep.name}\naxes: {axes}\n"
    with RunWriter.open(root, sweep, text, fresh=True) as writer:
        writer.check_environment(identity)
        writer.commit(imported.tables)
        writer.publish()
        return writer.run_dir
