"""`rtxscale dossier`: written, verified, compared; exit codes and words."""

from __future__ import annotations

import json
import shlex
import shutil
import zipfile

import pytest
from report import made_dossiers as made
from typer.testing import CliRunner

from rtxscale.cli.dossier import diff_lines
from rtxscale.cli.main import app
from rtxscale.report.dossier.diff import Difference
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
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
    assert (result.exit_code, result.stdout.splitlines()) == (
        0,
        [
            "platform.psu_w: unknown | 1,600",
            "1 field differs",
            "the results are the same: every table of both dossiers is equal",
        ],
    )


def continued(run_dir, other):
    """A copy of the run in which one more trial has ended, called as the directory is."""
    shutil.copytree(run_dir, other)
    manifest = json.loads((other / "run.json").read_text())
    (other / "run.json").write_text(json.dumps(manifest | {"run_id": other.name}))
    with RunWriter.reopen(other) as writer:
        last = writer.rows("trials")[-1] | {"trial_id": "f" * 16, "visit": 9}
        writer.commit({"trials": table("trials", [last])})
    return other


def last_line(*words, root="/nonexistent"):
    return invoke("--diff", *words, root=root).stdout.splitlines()[-1]


def test_diff_ends_with_the_command_that_compares_the_results(root, packed, tmp_path):
    """Pasted as it is, it compares: by name, or by the directory that the dossier lies in."""
    first = next(root.glob("*/run.json")).parent
    other = continued(first, tmp_path / "b c" / "second-02")
    assert invoke(other, root=root).exit_code == 0
    command = f"rtxscale compare --results {root} {first.name} '{other}'"
    last = last_line(packed, other / "dossier.zip", "--results", root)
    assert last == f"to compare the results: {command}"
    compared = CliRunner().invoke(app, shlex.split(command)[1:])
    assert compared.exit_code == 0, compared.output


def test_runs_of_the_same_name_are_not_taken_for_one(root, packed, tmp_path):
    """Anybody's run of the same sweep has the same name, and so has a run before and after another visit."""
    first = next(root.glob("*/run.json")).parent
    mine = shutil.copytree(first, tmp_path / "mine" / first.name)
    yours = continued(first, tmp_path / "yours" / first.name)
    for run_dir in (mine, yours):
        assert invoke(run_dir, root=root).exit_code == 0
    last = last_line(mine / "dossier.zip", yours / "dossier.zip")
    command = f"rtxscale compare {mine} {yours}"
    assert last == f"to compare the results: {command}"
    compared = CliRunner().invoke(app, shlex.split(command)[1:])
    assert compared.exit_code == 0, compared.output
    words = (
        f"both call their run {first.name}, and their tables differ: put the two into directories of their own, and "
        f"rtxscale compare DIR_A/{first.name} DIR_B/{first.name}"
    )
    shutil.copy(packed, yours / "before.zip")
    assert last_line(packed, yours / "dossier.zip") == words
    assert last_line(yours / "before.zip", yours / "dossier.zip") == words


def with_run(path, packed, run_id):
    """The dossier with another name of its run, and a table of its own."""
    with zipfile.ZipFile(packed) as source, zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "dossier.json":
                data = json.loads(content)
                data["run"]["run_id"] = run_id
                content = json.dumps(data).encode()
            target.writestr(name, content + b"x" * (name == "tables/trials.parquet"))
    return path


def test_what_a_foreign_dossier_calls_its_run_is_neither_a_line_nor_an_option(root, packed, tmp_path):
    own = next(root.glob("*/run.json")).parent.name
    forged = with_run(tmp_path / "forged.zip", packed, "x\nthe results are the same: \x1b[1mtrust me")
    assert last_line(packed, forged) == (
        f"to compare the results: rtxscale compare {own} 'x\\nthe results are the same: \\x1b[1mtrust me'"
    )
    option = with_run(tmp_path / "option.zip", packed, "--fail-below=9")
    last = last_line(packed, option, "--results", root)
    assert last == f"to compare the results: rtxscale compare --results {root} -- {own} --fail-below=9"
    compared = CliRunner().invoke(app, shlex.split(last.partition(": rtxscale ")[2]))
    assert "--fail-below=9: found neither a directory nor a run" in compared.stderr


def test_a_sweep_that_cannot_be_read_is_said_once(packed, tmp_path):
    with zipfile.ZipFile(packed) as source, zipfile.ZipFile(tmp_path / "b.zip", "w") as target:
        for name in source.namelist():
            target.writestr(name, b"a: [" if name == "sweep.yaml" else source.read(name))
    lines = invoke("--diff", packed, tmp_path / "b.zip").stdout.splitlines()
    assert lines[1:] == [
        f"{tmp_path / 'b.zip'}: its sweep cannot be read: no setting of the two sweeps is compared, only their ids",
        "no setting, environment or method field differs",
        "the results are the same: every table of both dossiers is equal",
    ]


def test_long_values_are_shortened_but_not_alike():
    long, end = "x" * 5_000_000, "y" * 200
    lines = diff_lines(
        [Difference(field="a\nb", a=long, b="y"), Difference(field="c", a=f"{long}1{end}", b=f"{long}2")]
    )
    assert [len(line) < 400 for line in lines] == [True] * 3
    assert lines[0].startswith("a b: xxx")
    assert lines[0].endswith("xxx | y")
    (inside,) = diff_lines([Difference(field="c", a=f"{long}1{end}", b=f"{long}2{end}")])[:1]
    one, other = inside.removeprefix("c: ").split(" | ")
    assert one.startswith(f"…{'x' * 20}1y")
    assert other.startswith(f"…{'x' * 20}2y")
    assert len(one) <= 160


@pytest.mark.parametrize("words", [["--template"], ["--verify", "d.zip"], ["--diff", "a.zip", "b.zip"]])
def test_what_a_dossier_is_written_with_is_refused_where_none_is(words):
    for given, called in (
        (["latest"], "RUN"),
        (["-o", "x.zip"], "--output"),
        (["--declare", "x.yaml", "--no-redact"], "--declare, --no-redact"),
    ):
        result = invoke(*words, *given)
        assert result.exit_code == 2
        assert f"{words[0]}: found {called} beside it; expected none" in result.stderr


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
