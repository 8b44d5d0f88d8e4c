"""`rtxscale dossier`: the publishable record of a run, its check, and what differs between two of them.

Reads results only; no Ray, torch or GPU. Private names, paths and addresses are redacted unless the user says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtxscale.cli.show import ResultsOption, RunArgument, open_run
from rtxscale.errors import BadInput

if TYPE_CHECKING:
    from rtxscale.report.dossier.diff import Difference

DOSSIER_FILE = "dossier.zip"
NOT_WHOLE = 1
SHOWN = 12
"""Most missing lines that are listed."""
NoRedactOption = Annotated[
    bool, typer.Option("--no-redact", help="Keep names of hosts and users, paths, addresses and identifiers.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(dossier)


def dossier(
    run: RunArgument = "latest",
    results: ResultsOption = None,
    output: Annotated[
        Path | None,
        typer.Option("-o", "--output", metavar="DIR|ZIP", help="Where to write; else dossier.zip in the run."),
    ] = None,
    declare: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What software cannot see; --template prints an empty one.")
    ] = None,
    no_redact: NoRedactOption = False,
    template: Annotated[bool, typer.Option("--template", help="Print a declaration to fill in, and stop.")] = False,
    verify: Annotated[
        Path | None, typer.Option(metavar="ZIP", help="Check a dossier: exit code 0 if it is whole, 1 if not.")
    ] = None,
    diff: Annotated[
        tuple[Path, Path] | None, typer.Option(metavar="A B", help="Print what differs between two dossiers.")
    ] = None,
) -> None:
    """Write the publishable record of RUN as one ZIP or a directory.

    Checklist, data, tables, charts, logs, sweep, locked packages and checksums.
    """
    if sum((template, verify is not None, diff is not None)) > 1:
        raise BadInput("--template, --verify, --diff: found more than one of them; expected one at a time")
    if template:
        _print_template()
    elif verify is not None:
        raise typer.Exit(_verify(verify))
    elif diff is not None:
        _diff(*diff, results)
    else:
        _write(run, results, output, declare, redact=not no_redact)


def _print_template() -> None:
    from rtxscale.spec.declare import template

    print(template(), end="")


def _write(run: str, results: Path | None, output: Path | None, declare: Path | None, *, redact: bool) -> None:
    from rtxscale.report.dossier.members import opened
    from rtxscale.report.dossier.pack import Request, write_dossier
    from rtxscale.report.dossier.verify import read_dossier
    from rtxscale.spec.declare import Declaration, load_declaration
    from rtxscale.spec.printable import printable

    declaration = Declaration() if declare is None else load_declaration(declare)
    found = open_run(run, results)
    destination = output or found.run_dir / DOSSIER_FILE
    try:
        path = write_dossier(Request(run=found, declaration=declaration, redact=redact), destination)
    except OSError as error:
        raise BadInput(
            f"{error.filename or destination}: cannot be written ({error.strerror}); give another place with -o"
        ) from error
    with opened(path) as written:
        print(printable("\n".join(score_lines(read_dossier(written)))))
    print(printable(str(path)))


def score_lines(data: dict[str, Any]) -> list[str]:
    """How complete a dossier is, and what is missing, the most useful first."""
    score, texts = data["completeness"], {line["id"]: line["text"] for line in data["lines"]}
    missing = [f"  {name}: {texts.get(name, '')}" for name in score["missing"]]
    more = [f"  and {len(missing) - SHOWN} more"] if len(missing) > SHOWN else []
    head = f"{score['with_value']} of {score['of']} lines have a value; {score['not_applicable']} do not apply"
    return [head, *(["missing, the most useful first:"] if missing else []), *missing[:SHOWN], *more]


def _verify(path: Path) -> int:
    """Check a dossier and say what is wrong; returns the exit code."""
    from rtxscale.report.dossier.members import opened
    from rtxscale.report.dossier.verify import counted, problems, read_dossier
    from rtxscale.spec.printable import printable

    with opened(path) as found:
        data = read_dossier(found)
        faults = problems(found, data)
        if faults:
            print(printable("\n".join(faults)))
            print(printable(f"{path}: not whole: {_problems(len(faults))}"))
            return NOT_WHOLE
        print(printable("\n".join(score_lines(counted(data)))))
        print(printable(f"{path}: whole: {len(found.sizes)} files, every checksum right, no line missing or empty"))
    return 0


def _problems(number: int) -> str:
    return "1 problem" if number == 1 else f"{number} problems"


def _diff(a: Path, b: Path, results: Path | None) -> None:
    """Print what differs, after a word on each side that is not whole, and how results are compared."""
    from rtxscale.report.dossier.diff import differences
    from rtxscale.report.dossier.members import opened
    from rtxscale.report.dossier.verify import problems, read_dossier
    from rtxscale.spec.printable import printable

    with opened(a) as one, opened(b) as other:
        faults = [(side.path, problems(side, read_dossier(side))) for side in (one, other)]
        found = differences(one, other)
        runs = [run_of(side.path, read_dossier(side)) for side in (one, other)]
    for path, wrong in faults:
        if wrong:
            print(printable(f"{path}: not whole: {_problems(len(wrong))}, first: {wrong[0]}; see --verify"))
    print(printable("\n".join([*diff_lines(found), compare_words(runs, results)])))


def run_of(path: Path, data: Mapping[str, Any]) -> str:
    """How the run of a dossier is called on a command line: by its directory where the dossier lies in it, or by name.

    >>> run_of(Path("r/nccl-01/dossier.zip"), {"run": {"run_id": "nccl-01"}}), run_of(Path("d.zip"), {"run": None})
    ('r/nccl-01', '')
    """
    run = data.get("run")
    name = str(run.get("run_id") or "") if isinstance(run, dict) else ""
    return str(path.parent) if name and path.absolute().parent.name == name else name


def compare_words(runs: Sequence[str], results: Path | None = None) -> str:
    """The command that compares results: of the runs, as a dossier holds no run.

    >>> compare_words(["nccl-01", "nccl-02"])
    'to compare the results: rtxscale compare nccl-01 nccl-02'
    >>> compare_words(["nccl-01", "nccl-01"])
    'both are of the run nccl-01: the results are the same'
    """
    if not all(runs):
        return "to compare the results: rtxscale compare A B, with the two runs; the dossiers do not name them"
    if len(set(runs)) == 1:
        return f"both are of the run {runs[0]}: the results are the same"
    root = [] if results is None else ["--results", str(results)]
    return f"to compare the results: {shlex.join(['rtxscale', 'compare', *runs, *root])}"


def diff_lines(found: Iterable[Difference]) -> list[str]:
    """One line a field, and how many there are."""
    lines = [f"{item.field}: {' '.join(item.a.split())} | {' '.join(item.b.split())}" for item in found]
    return [
        *lines,
        f"{len(lines)} field{'s differ' if len(lines) > 1 else ' differs'}"
        if lines
        else "no setting, environment or method field differs",
    ]
