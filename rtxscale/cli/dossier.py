"""`rtxscale dossier`: the publishable record of a run, its check, and what differs between two of them.

Reads results only; no Ray, torch or GPU. Private names, paths and addresses are redacted unless the user says so.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rtxscale.cli.show import ResultsOption, RunArgument, open_run
from rtxscale.errors import BadInput

if TYPE_CHECKING:
    from rtxscale.report.dossier.diff import Difference

DOSSIER_FILE = "dossier.zip"
NOT_WHOLE = 1
SAME_RESULTS = "the results are the same: every table of both dossiers is equal"
SHOWN = 12
"""Most missing lines that are listed."""
VALUE_CHARACTERS = 160
"""Most of a differing value that is printed."""
AROUND = 20
"""Where two long values are printed alike, so much before their first difference is kept."""
WRITING = {"run": "RUN", "output": "--output", "declare": "--declare", "no_redact": "--no-redact"}
"""Parameters that say what to write, and how users call them: nothing else is done with them."""
NoRedactOption = Annotated[
    bool, typer.Option("--no-redact", help="Keep names of hosts and users, paths, addresses and identifiers.")
]


def register(app: typer.Typer) -> None:
    """Add the command to the application."""
    app.command()(dossier)


def dossier(
    context: typer.Context,
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
    asked = {"--template": template, "--verify": verify is not None, "--diff": diff is not None}
    _check_asked([name for name, is_asked in asked.items() if is_asked], context)
    if template:
        _print_template()
    elif verify is not None:
        raise typer.Exit(_verify(verify))
    elif diff is not None:
        _diff(*diff, results)
    else:
        _write(run, results, output, declare, redact=not no_redact)


def _check_asked(asked: Sequence[str], context: typer.Context) -> None:
    """Refuses two things at once, and what a dossier is written with where none is written."""
    if len(asked) > 1:
        raise BadInput("--template, --verify, --diff: found more than one of them; expected one at a time")
    given = [name for parameter, name in WRITING.items() if _is_given(context, parameter)]
    if asked and given:
        raise BadInput(f"{asked[0]}: found {', '.join(given)} beside it; expected none, for it writes no dossier")


def _is_given(context: typer.Context, parameter: str) -> bool:
    source = context.get_parameter_source(parameter)
    return source is not None and source.name != "DEFAULT"


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
    from rtxscale.report.numbers import how_many
    from rtxscale.spec.printable import printable

    with opened(path) as found:
        data = read_dossier(found)
        faults = problems(found, data)
        if faults:
            print(printable("\n".join(faults)))
            print(printable(f"{path}: not whole: {how_many(len(faults), 'problems')}"))
            return NOT_WHOLE
        print(printable("\n".join(score_lines(counted(data)))))
        print(printable(f"{path}: whole: {len(found.sizes)} files, every checksum right, no line missing or empty"))
    return 0


def _diff(a: Path, b: Path, results: Path | None) -> None:
    """Print what differs, after a word on each side that is not whole, and how results are compared."""
    from rtxscale.report.dossier.diff import differences, same_tables, unread_sweeps
    from rtxscale.report.dossier.members import opened
    from rtxscale.report.dossier.verify import problems, read_dossier
    from rtxscale.report.numbers import how_many
    from rtxscale.spec.printable import one_line, printable

    with opened(a) as one, opened(b) as other:
        faults = [(side.path, problems(side, read_dossier(side))) for side in (one, other)]
        found = differences(one, other)
        unread = [side.path for side in unread_sweeps(one, other)]
        runs = [run_of(side.path, read_dossier(side)) for side in (one, other)]
        results_words = SAME_RESULTS if same_tables(one, other) else compare_words(runs, results)
    for path, wrong in faults:
        if wrong:
            print(printable(f"{path}: not whole: {how_many(len(wrong), 'problems')}, first: {wrong[0]}; see --verify"))
    for path in unread:
        print(one_line(f"{path}: its sweep cannot be read: no setting of the two sweeps is compared, only their ids"))
    print(printable("\n".join([*diff_lines(found), results_words])))


@dataclass(frozen=True, kw_only=True)
class NamedRun:
    """What a dossier calls its run, and that run's directory if the dossier lies in it."""

    name: str
    directory: Path | None = None

    @property
    def call(self) -> str:
        """How `rtxscale compare` is given it."""
        return self.name if self.directory is None else str(self.directory)


def run_of(path: Path, data: Mapping[str, Any]) -> NamedRun:
    """The run of a dossier that lies at `path`; of an empty name where it does not say.

    >>> run_of(Path("r/nccl-01/dossier.zip"), {"run": {"run_id": "nccl-01"}}).call
    'r/nccl-01'
    >>> run_of(Path("d.zip"), {"run": {"run_id": "nccl-01"}}).call, run_of(Path("d.zip"), {"run": None}).call
    ('nccl-01', '')
    """
    run = data.get("run")
    name = str(run.get("run_id") or "") if isinstance(run, dict) else ""
    return NamedRun(name=name, directory=path.parent if name and path.absolute().parent.name == name else None)


def compare_words(runs: Sequence[NamedRun], results: Path | None = None) -> str:
    """The command that compares the results of two runs: a dossier holds no run.

    >>> compare_words([NamedRun(name="nccl-01"), NamedRun(name="nccl-02")])
    'to compare the results: rtxscale compare nccl-01 nccl-02'
    >>> compare_words([NamedRun(name="nccl-01"), NamedRun(name="nccl-01")]).partition(": ")[2]
    'put the two into directories of their own, and rtxscale compare DIR_A/nccl-01 DIR_B/nccl-01'
    """
    from rtxscale.spec.printable import one_line

    if not all(run.name for run in runs):
        return "to compare the results: rtxscale compare A B, with the two runs; the dossiers do not name them"
    if _are_told_apart(runs):
        return one_line(f"to compare the results: {_compare_command([run.call for run in runs], results)}")
    command = _compare_command([f"{directory}/{runs[0].name}" for directory in ("DIR_A", "DIR_B")])
    return one_line(
        f"both call their run {runs[0].name}, and their tables differ: put the two into directories of their own, and "
        f"{command}"
    )


def _are_told_apart(runs: Sequence[NamedRun]) -> bool:
    """Whether what each is called names one run alone: anybody's run of the same sweep has the same name."""
    directories = {run.directory.resolve() for run in runs if run.directory is not None}
    return len({run.name for run in runs}) == len(runs) or len(directories) == len(runs)


def _compare_command(runs: Sequence[str], results: Path | None = None) -> str:
    r"""The command, to be pasted; nothing that a foreign dossier calls its run becomes an option of it.

    >>> _compare_command(["-x", "a b"], Path("r"))
    "rtxscale compare --results r -- -x 'a b'"
    """
    root = [] if results is None else ["--results", str(results)]
    end = ["--"] if any(run.startswith("-") for run in runs) else []
    return shlex.join(["rtxscale", "compare", *root, *end, *runs])


def diff_lines(found: Iterable[Difference]) -> list[str]:
    """One line a field, and how many there are."""
    from rtxscale.report.numbers import short

    lines = [f"{short(item.field)}: {' | '.join(_shown(item.a, item.b))}" for item in found]
    return [
        *lines,
        f"{len(lines)} field{'s differ' if len(lines) > 1 else ' differs'}"
        if lines
        else "no setting, environment or method field differs",
    ]


def _shown(a: str, b: str) -> tuple[str, str]:
    r"""Two values on one line, shortened where they are long, but not so that they look alike.

    >>> _shown("1", "two\nlines")
    ('1', 'two lines')
    >>> [text[:25] for text in _shown("-" * 500 + "a" + "-" * 500, "-" * 500 + "b" + "-" * 500)]
    ['…--------------------a---', '…--------------------b---']
    """
    from rtxscale.report.numbers import short

    one, other = short(a, VALUE_CHARACTERS), short(b, VALUE_CHARACTERS)
    if one != other:
        return one, other
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False))
    start = max(0, sum(1 for _ in alike) - AROUND)
    return short(f"…{a[start:]}", VALUE_CHARACTERS), short(f"…{b[start:]}", VALUE_CHARACTERS)
