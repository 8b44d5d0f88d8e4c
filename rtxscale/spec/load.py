"""A sweep file read into a `Sweep`, or refused with every problem at once.

Touches nothing but the file: no cluster, no GPU, no environment variable. Called by `cli` and by tests.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from rtxscale.errors import Problem, SpecError
from rtxscale.spec.checks import check_document
from rtxscale.spec.document import Document, Path, parse_document
from rtxscale.spec.fields import KINDS, sweep_fields
from rtxscale.spec.phrases import alternatives, found_value, hint, nearest
from rtxscale.spec.section_checks import workload_kind
from rtxscale.spec.sweep import Sweep

MAX_BYTES = 128 * 1024
"""A sweep is a page of text; anything larger is another file."""


@dataclass(frozen=True, kw_only=True)
class LoadedSweep:
    """A valid sweep and the text it came from."""

    sweep: Sweep
    text: str


def load_sweep(path: FilePath) -> LoadedSweep:
    """Read and validate a sweep file.

    Raises:
        SpecError: the file cannot be read or is wrong; holds every problem, in file order.
    """
    text = read_text(path)
    return LoadedSweep(sweep=parse_sweep(text, str(path)), text=text)


def parse_sweep(text: str, file: str) -> Sweep:
    """Validate the text of a sweep file; `file` is its name in messages.

    Raises:
        SpecError: with every problem, in file order.
    """
    document = parse_document(text, file)
    if isinstance(document.data, dict):
        _read_words(document)
        check_document(document)
        sweep = _validate(document)
        if sweep is not None and not document.problems:
            return sweep
    elif not document.problems:
        found = found_value(document.data, document.marks.get(()))
        document.report((), found, "a sweep: a mapping with name, question, study, workload and axes", line=1)
    raise SpecError(sorted(document.problems, key=lambda problem: problem.line or 0))


def read_text(path: FilePath, what: str = "a sweep file") -> str:
    """Text of a sweep file, or of another one that `what` names in messages.

    Raises:
        SpecError: it is missing, no file, too large, unreadable or not UTF-8.
    """
    try:
        if path.is_dir():
            raise _refusal(path, "a directory", f"{what} in it")
        if path.exists() and not path.is_file():
            raise _refusal(path, "a device or pipe", "a file")
        with path.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _refusal(path, "no such file", f"the path of {what} (YAML)") from None
    except (OSError, ValueError) as error:
        raise _refusal(path, f"a file that cannot be read ({error})", f"{what} that can be read") from None
    if len(content) > MAX_BYTES:
        raise _refusal(path, f"more than {MAX_BYTES // 1024} KiB", f"{what}, which is a page of text")
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _refusal(path, f"the byte 0x{content[error.start]:02x}, which is not UTF-8", "UTF-8 text", line) from None


def _refusal(path: FilePath, found: str, expected: str, line: int | None = None) -> SpecError:
    return SpecError([Problem(file=str(path), line=line, path="", found=found, expected=expected)])


def _read_words(document: Document) -> None:
    """Take `off` and the like as the word it is where the field allows exactly that word (`compile: off`)."""
    fields = sweep_fields(workload_kind(document))
    for path, mark in document.marks.items():
        field = fields.get(_field_path(path))
        if field is not None and mark.plain and mark.source in field.words:
            document.at(path[:-1])[path[-1]] = mark.source


def _field_path(path: Path) -> str:
    """Dotted path of the field whose value stands at a document path."""
    if path[:1] == ("axes",) and len(path) == 3:
        return str(path[1])
    if path[:1] == ("exclude",) and len(path) == 3:
        return str(path[2])
    return ".".join(str(step) for step in path)


def _validate(document: Document) -> Sweep | None:
    try:
        return Sweep.model_validate(_with_first_values(document))
    except ValidationError as error:
        for fault in error.errors(include_url=False, include_context=False, include_input=False):
            if document.at(("axes", ".".join(map(str, fault["loc"])))) is None:  # else reported with the axis
                _report(document, fault["type"], fault["loc"])
    return None


def _with_first_values(document: Document) -> dict[str, Any]:
    """The data with a first value of each axis on a section that a sweep may do without, whose fields are not optional.

    Every cell puts its own value there.
    """
    data = dict(document.data)
    axes = data.get("axes")
    for path, values in axes.items() if isinstance(axes, dict) else ():
        name, _, field = path.partition(".")
        section = data.get(name, {})
        if field and isinstance(section, dict) and isinstance(values, list) and values and _is_optional(name):
            data[name] = {field: values[0], **section}
    return data


def _is_optional(name: str) -> bool:
    """Whether a sweep may do without a section, as it may without a target."""
    field = Sweep.model_fields.get(name)
    return field is not None and not field.is_required() and field.default is None


def _report(document: Document, kind: str, location: tuple[int | str, ...]) -> None:
    """Translate one fault of pydantic: it says where, the field's type says what would be right."""
    path = _data_path(document, location)
    if document.full or document.covers(path) or (kind == "too_short" and document.at(path)):
        return
    if kind == "extra_forbidden":
        _report_unknown_key(document, path)
    elif kind == "missing":
        path = (*(path or location[:-1]), location[-1])  # a section that the file does not have at all
        document.report(path, "nothing", _expected(document, path), line=document.line(path[:-1]))
    elif kind in ("union_tag_not_found", "union_tag_invalid"):
        _report_workload_kind(document)
    else:
        value, mark, expected = document.at(path), document.marks.get(path), _expected(document, path)
        document.report(path, found_value(value, mark), expected + hint(value, mark, expected))


def _data_path(document: Document, location: tuple[int | str, ...]) -> Path:
    """The part of pydantic's location that exists in the file; tags of unions are left out."""
    path: Path = ()
    for step in location:
        value = document.at(path)
        if (isinstance(value, dict) and step in value) or (isinstance(value, list) and isinstance(step, int)):
            path = (*path, step)
    return path


def _expected(document: Document, path: Path) -> str:
    field = sweep_fields(workload_kind(document)).get(_field_path(path))
    if field is not None and (len(path) == 1 or path[0] not in ("axes", "exclude")):
        return field.expected
    shapes: dict[str, Any] = {
        "axes": "a list of values",
        "zip": "a list of axes",
        "exclude": "a mapping from axis to value",
    }
    if len(path) == 2 and path[0] in shapes:
        return str(shapes[str(path[0])])
    parent = sweep_fields(workload_kind(document)).get(_field_path(path[:-1]))
    if parent is not None and parent.listed and path[0] not in shapes:
        return parent.expected_item
    return "the name of an axis" if path[0] == "zip" else "text, a number, true or false"


def _report_unknown_key(document: Document, path: Path) -> None:
    fields = sweep_fields(workload_kind(document))
    parent = ".".join(str(step) for step in path[:-1])
    siblings = [name for name in fields if name.rpartition(".")[0] == parent]
    name = str(path[-1])
    close = nearest(name, [sibling.rpartition(".")[2] for sibling in siblings])
    elsewhere = next((other for other in fields if name in (other, other.rpartition(".")[2])), None)
    mark = document.marks[path]
    if elsewhere:
        section, _, key = elsewhere.rpartition(".")
        expected = f"a known key; {key} belongs {f'under {section}' if section else 'at the top'}"
    elif close:
        expected = f"a known key; the nearest is {close}"
    else:
        expected = f"one of {', '.join(sibling.rpartition('.')[2] for sibling in siblings)}"
    document.report(path, f"the key {name}", expected, line=mark.key_line)


def _report_workload_kind(document: Document) -> None:
    path: Path = ("workload", "kind")
    found = found_value(document.at(path), document.marks.get(path))
    document.report(path, found, alternatives(list(KINDS)))
