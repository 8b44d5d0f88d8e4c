"""`rtxscale dossier`: written, verified, compared; exit codes and words."""

from __future__ import annotations

import json
import shlex
import shutil
import zipfile

import pytest
from report import made_dossiers as made
from typer.testing import CliRunner

from rtxscale.cli.main import app
from rtxscale.spec.declare import template


def invoke(*words, root="/nonexistent"):
    return CliRunner().invoke(app, ["dossier", *map(str, words)], env={"RTXSCALE_RESULTS": str(root)})


@pytest.fixture(autouse=True)
def no_charts(monkeypatch):
    made.without_charts(monkeypatch)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """A results root with one run, whose sweep file is a whole one."""
    root = tmp_path_factory.mktemp("results")
    made.golden_run(root)
    return root


@pytest.fixture(scope="module")
def packed(root, tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        made.without_charts(patch)
        path = tmp_path_factory.mktemp("packed") / "d.zip"
        assert invoke("-o", path, root=root).exit_code == 0
        return path


def test_the_template_is_printed():
    result = invoke("--template")
    assert (result.exit_code, result.stdout) == (0, template())


def test_it_is_written_into_the_run_and_says_what_is_missing(root):
    result = invoke(root=root)
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "lines have a value" in lines[0]
    assert lines[1] == "missing, the most useful first:"
    path = next(root.glob("*/dossier.zip"))
    assert lines[-1] == str(path)
    assert invoke("--verify", path).exit_code == 0
    path.unlink()


def test_a_declaration_fills_lines(root, tmp_path):
    (tmp_path / "declare.yaml").write_text("platform: {inlet_c: 21}\nnotes: cold room\n")
    result = invoke("latest", "--declare", tmp_path / "declare.yaml", "--output", tmp_path / "out", root=root)
    assert result.exit_code == 0
    assert made.lines_of(made.members(tmp_path / "out"))["platform.inlet"]["value"] == "21"
    (tmp_path / "declare.yaml").write_text("platform: {inlt_c: 21}\n")
    result = invoke("--declare", tmp_path / "declare.yaml", root=root)
    assert result.exit_code == 2
    assert (
        "declare.yaml:1: platform.inlt_c: found the key inlt_c; expected a known key: platform.inlet_c" in result.stderr
    )


def test_verify_says_whole_or_what_is_wrong(packed, tmp_path):
    result = invoke("--verify", packed)
    assert result.exit_code == 0
    assert "every checksum right, no line missing or empty" in result.stdout
    shutil.copy(packed, tmp_path / "d.zip")
    with zipfile.ZipFile(tmp_path / "d.zip", "a") as archive:
        archive.writestr("added\x1b[31m.txt", "x")
    result = invoke("--verify", tmp_path / "d.zip")
    assert result.exit_code == 2  # a name with a control character is refused
    shutil.copy(packed, tmp_path / "e.zip")
    with zipfile.ZipFile(tmp_path / "e.zip", "a") as archive:
        archive.writestr("added.txt", "x")
    result = invoke("--verify", tmp_path / "e.zip")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[0] == "added.txt: not in SHA256SUMS"
    assert "not whole: 1 problem\n" in result.stdout
    assert invoke("--verify", tmp_path / "none.zip").exit_code == 2


def test_diff_names_what_differs(packed, root, tmp_path):
    assert "no setting, environment or method field differs" in invoke("--diff", packed, packed).stdout
    (tmp_path / "declare.yaml").write_text("platform: {psu_w: 1600}\n")
    assert invoke("--declare", tmp_path / "declare.yaml", "-o", tmp_path / "b.zip", root=root).exit_code == 0
    result = invoke("--diff", packed, tmp_path / "b.zip")
    run_id = next(root.glob("*/run.json")).parent.name
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "platform.psu_w: unknown | 1,600",
            "1 field differs",
            f"both are of the run {run_id}: the results are the same",
        ],
    )


def test_diff_ends_with_the_command_that_compares_the_results(root, packed, tmp_path):
    """Pasted as it is, it compares: by name, or by the directory that the dossier lies in."""
    first = next(root.glob("*/run.json")).parent
    other = tmp_path / "b c" / "second-02"
    shutil.copytree(first, other)
    manifest = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps(manifest | {"run_id": other.name}))
    assert invoke(other, root=root).exit_code == 0
    last = invoke("--diff", packed, other / "dossier.zip", "--results", root).stdout.splitlines()[-1]
    command = f"rtxscale compare {first.name} '{other}' --results {root}"
    assert last == f"to compare the results: {command}"
    compared = CliRunner().invoke(app, shlex.split(command)[1:])
    assert compared.exit_code == 0, compared.output


def test_a_side_that_is_not_whole_is_said(packed, tmp_path):
    shutil.copy(packed, tmp_path / "e.zip")
    with zipfile.ZipFile(tmp_path / "e.zip", "a") as archive:
        archive.writestr("more.txt", "x")
    result = invoke("--diff", packed, tmp_path / "e.zip")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[0] == (
        f"{tmp_path / 'e.zip'}: not whole: 1 problem, first: more.txt: not in SHA256SUMS; see --verify"
    )


def test_places_that_hold_no_dossier_end_at_once(tmp_path):
    for place in ("/dev/zero", "/proc/self", "/"):
        result = invoke("--verify", place)
        assert result.exit_code == 2
        assert "expected a dossier" in result.stderr


def test_one_thing_at_a_time(packed):
    result = invoke("--template", "--verify", packed)
    assert result.exit_code == 2
    assert "expected one at a time" in result.stderr


def test_a_place_that_cannot_be_written_is_said(root, tmp_path):
    result = invoke("-o", tmp_path / "missing" / "d.zip", root=root)
    assert (result.exit_code, "found no directory" in result.stderr) == (2, True)
