"""YAML text as plain data that remembers where each value stands and how it was written.

Nothing is interpreted: no tags beyond YAML's own scalars, no anchors, no merge keys, no environment. Every fault of the
text is kept as a problem instead of raised, so that the caller can report all of them together. Called by `spec.load`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rtxscale.errors import Problem

Path = tuple[str | int, ...]
"""Keys and list positions from the top of the document, such as `("axes", "gpus", 0)`."""

MAX_DEPTH = 12
MAX_PROBLEMS = 200
ALIAS_TAG = "!alias"
COLLECTION_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
MAX_BITS = 1000
"""Larger whole numbers fit no field, and Python refuses to write the largest ones out."""
NUMBER_TAGS = ("tag:yaml.org,2002:int", "tag:yaml.org,2002:float")
AMBIGUOUS = re.compile(r"[-+]?0[0-9_]|.*:")
"""Numbers that YAML 1.1 does not read as they look: octal `010` and base-60 `1:30`."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """Where a value stands (`line`, and `key_line` of its key) and its text as written, quotes included.

    `start` and `end` are its place among the text's characters.
    """

    line: int
    key_line: int
    source: str
    plain: bool
    """A scalar without quotes."""
    start: int = 0
    end: int = 0


@dataclass(kw_only=True)
class Document:
    """A YAML file as data. `marks` has an entry for every path in `data`."""

    file: str
    data: Any = None
    marks: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    _reported: set[tuple[Path, int | None]] = field(default_factory=set)

    @property
    def full(self) -> bool:
        """Whether so many problems were found that more would not help."""
        return len(self.problems) >= MAX_PROBLEMS

    def report(self, path: Path, found: str, expected: str, *, line: int | None = None) -> None:
        """Add a problem at a path, unless there is already one at the same path and line."""
        where = self.line(path) if line is None else line
        if self.full or (path, where) in self._reported:
            return
        self._reported.add((path, where))
        if len(self.problems) == MAX_PROBLEMS - 1:
            found, expected = f"{found} (and more problems, not listed)", f"{expected}; mend these first"
        place, found, expected = shorten(dotted_path(path), 200), shorten(found, 400), shorten(expected, 1000)
        self.problems.append(Problem(file=self.file, line=where, path=place, found=found, expected=expected))

    def covers(self, path: Path) -> bool:
        """Whether a mapping or list around this path is already reported as wrong."""
        return any((path[:end], self.marks[path[:end]].line) in self._reported for end in range(1, len(path)))

    def line(self, path: Path) -> int | None:
        """Line of the value at a path, or of the nearest mapping above it."""
        while path and path not in self.marks:
            path = path[:-1]
        mark = self.marks.get(path)
        if mark is None:
            return None
        return mark.line if not isinstance(self.at(path), dict | list) else mark.key_line

    def at(self, path: Path) -> Any:
        """Value at a path; None where there is none."""
        value = self.data
        for step in path:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return value


def dotted_path(path: Path) -> str:
    """A path as people write it.

    >>> dotted_path(("axes", "nccl.channels", 2)), dotted_path(("exclude", 0, "gpus"))
    ('axes.nccl.channels[2]', 'exclude[0].gpus')
    """
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path)
    return text.removeprefix(".")


A_SWEEP = "a sweep: a mapping with name, question, study, workload and axes"


def parse_document(text: str, file: str, expected: str = A_SWEEP) -> Document:
    """Plain data, marks and every problem of the YAML itself; `data` is None when the text is no YAML at all.

    `expected` says in messages what the file should hold.
    """
    document = Document(file=file)
    try:
        loader = _Composer(text)
        root = loader.get_single_node()
    except yaml.YAMLError as error:
        _report_syntax(document, error, text)
        return document
    if root is None:
        document.report((), "an empty file", expected, line=1)
        return document
    document.data = _Builder(document, text).build(root, (), root.start_mark.line + 1)
    return document


class _Composer(yaml.SafeLoader):
    """Composes nodes without following aliases, so that a file cannot grow while it is read."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.get_event()  # type: ignore[no-untyped-call]  # PyYAML's stubs leave it open
            return ScalarNode(ALIAS_TAG, f"*{event.anchor}", event.start_mark, event.end_mark)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]  # as above
            raise yaml.MarkedYAMLError(
                problem=f"lists or mappings nested more than {MAX_DEPTH} deep", problem_mark=mark
            )
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


class _Builder:
    """Turns nodes into data, keeping marks and problems in the document."""

    def __init__(self, document: Document, text: str) -> None:
        self._document = document
        self._text = text
        self._scalars = SafeConstructor()

    def build(self, node: Node, path: Path, key_line: int) -> Any:
        """Plain data of a node."""
        start, end = node.start_mark.index, node.end_mark.index
        source = self._text[start:end].strip()
        plain = isinstance(node, ScalarNode) and node.style is None
        line = node.start_mark.line + 1
        self._document.marks[path] = Mark(
            line=line, key_line=key_line, source=source, plain=plain, start=start, end=end
        )
        if not isinstance(node, ScalarNode) and node.tag not in COLLECTION_TAGS:
            self._document.report(path, f"the tag {shorten(node.tag)}", "plain data, without tags")
            return None
        if isinstance(node, MappingNode):
            return self._mapping(node, path)
        if isinstance(node, SequenceNode):
            return [self.build(item, (*path, index), item.start_mark.line + 1) for index, item in enumerate(node.value)]
        return self._scalar(node, path)

    def _mapping(self, node: MappingNode, path: Path) -> dict[str, Any]:
        data: dict[str, Any] = {}
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            key = self._key(key_node, path)
            if key is None:
                continue
            if key in lines:
                found = f"the key {key} again (first in line {lines[key]})"
                self._document.report((*path, key), found, "each key once", line=line)
                continue
            lines[key] = line
            data[key] = self.build(value_node, (*path, key), line)
        return data

    def _key(self, node: Node, path: Path) -> str | None:
        source = self._text[node.start_mark.index : node.end_mark.index].strip()
        line = node.start_mark.line + 1
        if node.tag in ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge") and isinstance(node, ScalarNode):
            return str(node.value)
        self._document.report((*path, shorten(source)), f"the key {shorten(source)}", "a key that is text", line=line)
        return None

    def _scalar(self, node: Node, path: Path) -> Any:
        if node.tag == ALIAS_TAG:
            found = f"the alias {node.value}"
            self._document.report(path, found, "the value itself: a sweep is plain data, without anchors and aliases")
            return None
        try:
            value = self._scalars.construct_object(node)
            if isinstance(value, int) and value.bit_length() > MAX_BITS:
                raise OverflowError
        except (yaml.YAMLError, ValueError, KeyError, OverflowError):
            found = f"{shorten(self._document.marks[path].source)} (YAML cannot read it as {_tag_name(node.tag)})"
            self._document.report(path, found, "plain text, a number, true or false")
            return None
        if node.tag in NUMBER_TAGS and AMBIGUOUS.match(node.value) and not re.match(r"[-+]?0[0-9_]*\.", node.value):
            found = f"{node.value} (YAML reads it as {value})"
            self._document.report(path, found, "a plain decimal number: no leading zeros, no colons")
        return value


def _report_syntax(document: Document, error: yaml.YAMLError, text: str) -> None:
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        found = f"the character U+{int(error.character):04X}"
        document.report((), found, "printable text", line=line)
        return
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    parts = [getattr(error, "context", None), getattr(error, "problem", None)]
    reason = ", ".join(part for part in parts if part) or str(error)
    found, expected = f"broken YAML ({reason})", "valid YAML"
    if "\\t" in found:
        found, expected = "a tab", "spaces: YAML does not indent with tabs"
    document.report((), found, expected, line=None if mark is None else mark.line + 1)


def shorten(source: str, limit: int = 60) -> str:
    """Text as written, on one line, without control characters, at most `limit` characters."""
    text = " ".join(source.split())
    text = "".join(character if character.isprintable() else f"\\x{ord(character):02x}" for character in text)
    return text if len(text) <= limit else text[: limit - 3] + "..."


def _tag_name(tag: str) -> str:
    return tag.removeprefix("tag:yaml.org,2002:")
