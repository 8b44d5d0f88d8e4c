"""`rtxscale.open`: lazy frames with documented columns, conclusions and charts; nothing heavy before it is called."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import rtxscale
from rtxscale.errors import BadInput
from rtxscale.report.charts.figures import figures
from rtxscale.results.schema import TABLES

README = (Path(__file__).resolve().parents[3] / "README.md").read_text()


@pytest.fixture(scope="module")
def run(h200):
    return rtxscale.open("latest", results=h200.run.run_dir.parent)


def test_every_table_is_a_lazy_frame_with_its_schema(run):
    for name, columns in TABLES.items():
        frame = getattr(run, name)
        assert isinstance(frame, pl.LazyFrame)
        assert frame.collect_schema().names() == [column.name for column in columns]
    assert run.trials.select("trial_id").collect().height == 363


def test_every_column_is_documented(run):
    for name in TABLES:
        columns = run.columns(name)
        assert columns.columns == ["name", "kind", "unit", "meaning", "writer", "reduction"]
        assert columns.filter(pl.col("meaning") == "").is_empty()
    with pytest.raises(BadInput, match=r"found no table 'trails'; expected one of trials"):
        run.columns("trails")
    with pytest.raises(BadInput, match="trails"):
        run.table("trails")


def test_conclusions_and_charts_are_the_reports(run, h200):
    assert run.conclusions.headline == h200.conclusions.headline
    assert repr(run) == f"{run.run.run_id}: {h200.conclusions.headline}"
    drawn = figures(h200.run, h200.conclusions)
    assert list(run.charts) == [figure.key for figure in drawn]
    assert [figure.spec() for figure in run.charts.values()] == [figure.spec() for figure in drawn]


def test_a_chart_shows_itself_in_a_notebook(run):
    bundle = run.charts["weak-efficiency"]._repr_mimebundle_()
    (kind,) = set(bundle) - {"text/plain"}
    assert re.fullmatch(r"application/vnd\.vegalite\.v\d+\+json", kind)
    assert f"/v{kind[len('application/vnd.vegalite.v')]}" in bundle[kind]["$schema"]
    assert bundle[kind]["datasets"]


def test_a_run_can_be_named_by_its_directory(h200):
    assert rtxscale.open(h200.run.run_dir).run.run_id == h200.run.run_id
    with pytest.raises(BadInput, match="found neither a directory nor a run"):
        rtxscale.open("nightly", results=h200.run.run_dir.parent)


def test_the_example_in_readme_runs(h200, monkeypatch, tmp_path):
    (example,) = [block for block in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "rtxscale.open" in block]
    monkeypatch.setenv("RTXSCALE_RESULTS", str(h200.run.run_dir.parent))
    monkeypatch.chdir(tmp_path)
    names = {}
    exec(compile(example, "README.md", "exec"), names)  # noqa: S102  our own text
    assert names["run"].run.run_id == h200.run.run_id


def test_importing_rtxscale_loads_nothing_heavy():
    code = "import sys, rtxscale; print([m for m in sys.modules if m.partition('.')[0] in sys.argv[1:]])"
    heavy = ["polars", "altair", "pyarrow", "pydantic", "numpy", "ray", "torch", "typer"]
    done = subprocess.run([sys.executable, "-c", code, *heavy], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
