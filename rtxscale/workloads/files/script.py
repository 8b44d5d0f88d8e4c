"""Where somebody's own training code lies, which bytes it has, and whether what a sweep names is in it.

Reads files and imports nothing of them, nor torch: so a missing function is found before anything runs. Callers:
`workloads.scripts.script`, `inputs`, and whoever hands ranks the sweep file's directory.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from rtxscale.spec.script import ScriptWorkload

DIRECTORY_VARIABLE = "RTXSCALE_DIRECTORY"
"""Tells ranks the absolute directory of the sweep file, to which a script's paths are relative."""


class ScriptError(Exception):
    """Somebody's own training code cannot be run, or does not do what a workload has to."""


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file of code: `directory` is where its modules are looked for; `module` and `function` are an entry's own."""

    directory: Path
    file: Path
    module: str
    function: str

    @property
    def name(self) -> str:
        """The file relative to its directory."""
        return str(self.file.relative_to(self.directory))


def source_of(workload: ScriptWorkload, base: Path) -> Source:
    """The code that a workload names; `base` is the directory of the sweep file.

    Raises:
        ScriptError: there is no such directory or file.
    """
    directory = base / workload.directory
    if not directory.is_dir():
        raise ScriptError(
            f"workload.directory: found no directory {directory} on this host; expected the one beside the sweep file, "
            "at the same path on every node (`ray job submit --working-dir .` brings it there)"
        )
    if bool(workload.entry) == bool(workload.path):
        raise ScriptError("workload: found both or neither of entry and path; expected one of them")
    module, _, function = workload.entry.partition(":")
    place = module.replace(".", "/")
    names = [workload.path] if workload.path else [f"{place}.py", f"{place}/__init__.py"]
    files = [directory / name for name in names if (directory / name).is_file()]
    if not files:
        asked = (
            f"workload.path: found no file {workload.path}" if workload.path else f"workload.entry: found no {names[0]}"
        )
        raise ScriptError(f"{asked} in {directory}; expected it there, or another workload.directory")
    return Source(directory=directory, file=files[0], module=module, function=function)


def complaint(workload: ScriptWorkload, base: Path) -> str:
    """What is wrong with the code that a workload names, without running it; empty where nothing is."""
    try:
        source = source_of(workload, base)
        tree = ast.parse(source.file.read_bytes())
        names = set(_bound(tree.body))
    except ScriptError as error:
        return str(error)
    except OSError as error:
        return f"workload.{'path' if workload.path else 'entry'}: cannot be read ({error})"
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        return f"{source.file}: found no valid Python ({error}); expected code" + (f", see line {line}" if line else "")
    if not source.function or names & {source.function, "*", "__getattr__"}:
        return ""
    functions = sorted(node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    known = f"; it has {', '.join(functions[:5])}" if functions else ""
    return f"workload.entry: found no {source.function} in {source.file}{known}; expected a function that builds a step"


def _bound(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Names that a module's statements bind, those inside functions and classes left out; `*` where they are hidden."""
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (alias.asname or alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        else:
            yield from _bound(ast.iter_child_nodes(node))


def fingerprint(files: Iterable[Path]) -> str:
    """SHA-256 of the bytes of these files, one after the other, in eight groups that no redaction takes for a secret.

    >>> import tempfile
    >>> with tempfile.NamedTemporaryFile() as empty:
    ...     fingerprint([Path(empty.name)])
    'SHA-256 e3b0c442 98fc1c14 9afbf4c8 996fb924 27ae41e4 649b934c a495991b 7852b855'
    """
    whole = hashlib.sha256()
    for file in files:
        whole.update(file.read_bytes())
    text = whole.hexdigest()
    return " ".join(["SHA-256", *(text[start : start + 8] for start in range(0, len(text), 8))])
