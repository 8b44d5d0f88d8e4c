"""Documents fail when they lie: trees, commands, flags and links are compared with the code."""

import re
import shlex
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
NOTE = (ROOT / "rtxscale" / "README.md").read_text()


def fenced(text, language):
    return re.findall(rf"^```{language}\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)


def tree_of_note():
    """Paths named in the architecture note's tree, relative to the package."""
    (block,) = [block for block in fenced(NOTE, "text") if block.startswith("rtxscale/\n")]
    folder, paths = "", set()
    for line in block.splitlines()[1:]:
        indent, name = re.match(r"( *)(\S+)", line).groups()
        assert re.match(r" *\S+ {2,}\S", line), f"no description: {line!r}"
        if len(indent) == 2:
            folder = name if name.endswith("/") else ""
            paths |= set() if folder else {name}
        else:
            paths.add(folder + name)
    return paths


def test_the_note_names_every_file_of_the_package_and_no_other():
    real = {
        str(path.relative_to(ROOT / "rtxscale"))
        for path in (ROOT / "rtxscale").rglob("*")
        if path.is_file()
        and path.name not in ("__init__.py", "README.md")
        and not {"__pycache__", "doctest"} & set(path.parts)
    }
    assert tree_of_note() == real


FILES = ("json", "yaml", "py", "md", "css", "html", "npy", "jsonl")
"""Ends of names that are files, not modules."""


def modules_named():
    """Where a text of the package calls a module by its dotted name in backticks: the text's file and the name."""
    folders = [path.parent for path in (ROOT / "rtxscale").rglob("__init__.py")]
    starts = {folder.name: folder for folder in sorted(folders, key=lambda folder: -len(folder.parts))}
    for path in (ROOT / "rtxscale").rglob("*.py"):
        for name in re.findall(r"`((?:[a-z_0-9]+\.)+[a-z_0-9]+)`", path.read_text()):
            start, *rest = name.split(".")
            inside = path.parent / start if (path.parent / start).is_dir() else starts.get(start)
            if inside is not None and rest[-1] not in FILES:
                yield path, name, inside, rest


def is_there(folder, rest):
    """Whether this is a module or a folder below the folder, or a name that a module defines."""
    place = folder.joinpath(*rest)
    if place.is_dir() or place.with_suffix(".py").is_file():
        return True
    module = place.parent.with_suffix(".py") if place.parent != folder else folder / "__init__.py"
    return module.is_file() and re.search(rf"\b{rest[-1]}\b", module.read_text()) is not None


def test_modules_that_texts_speak_of_exist():
    from rtxscale.spec.cell import Nccl

    found = list(modules_named())
    assert len(found) > 300
    settings = {f"nccl.{name}" for name in Nccl.model_fields}
    stale = {f"{path.name}: {name}" for path, name, folder, rest in found if not is_there(folder, rest)}
    assert {one for one in stale if one.split(": ")[1] not in settings} == set()


def commands_of_readme():
    lines = [line for block in fenced(README, "bash") for line in block.replace("\\\n", " ").splitlines()]
    for line in lines:
        for part in re.split(r"&&|\|\||;|\|", line.split(" #")[0]):
            words = shlex.split(part.strip(" {}"))
            if "rtxscale" in [Path(word).name for word in words]:
                at = [Path(word).name for word in words].index("rtxscale")
                yield words[at + 1 :]


@pytest.mark.parametrize("words", list(commands_of_readme()), ids=" ".join)
def test_readme_commands_exist_with_their_flags(words):
    from typer.main import get_command

    from rtxscale.cli.main import app

    group = get_command(app)
    command, flags = group, words
    if words and not words[0].startswith("-"):
        assert words[0] in group.commands
        command, flags = group.commands[words[0]], words[1:]
    known = {option for parameter in command.params for option in parameter.opts} | {"--help"}
    assert {flag for flag in flags if flag.startswith("-")} <= known


def test_every_command_and_flag_is_documented():
    from typer.main import get_command

    from rtxscale.cli.main import app

    for name, command in get_command(app).commands.items():
        assert f"`rtxscale {name}" in README, name
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("--"):
                    assert f"{option}" in README, f"{name} {option}"


def test_links_resolve():
    for document in (ROOT / "README.md", ROOT / "rtxscale" / "README.md"):
        for target in re.findall(r"\]\(([^)#\s]+)", document.read_text()):
            if not target.startswith("http"):
                assert (document.parent / target).exists(), f"{document.name}: {target}"


def test_every_column_says_what_it_is():
    from rtxscale.results.schema import TABLES

    for name, columns in TABLES.items():
        for column in columns:
            assert column.meaning, f"{name}.{column.name}"
            assert column.writer in ("plan", "run", "rank", "telemetry"), f"{name}.{column.name}"


def test_every_sweep_says_what_it_asks_and_of_which_hardware():
    for sweep in (ROOT / "sweeps").glob("*.yaml"):
        head = sweep.read_text().split("name:")[0].lower()
        assert head.startswith("#"), sweep.name
        assert "asks" in head or "question" in head, sweep.name
        assert "hardware" in head or "gpu" in head, sweep.name
