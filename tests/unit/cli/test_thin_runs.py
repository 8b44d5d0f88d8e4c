"""Runs with little or nothing in them: every command says so in sentences, never with a trace or a `nan`."""

from __future__ import annotations

import itertools
import json
import math
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from rtxscale.cli.main import app
from rtxscale.cli.show import CONCLUDED
from rtxscale.results import parts
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.spec.cell import Cell, Trial
from rtxscale.spec.sweep import Sweep

OLD = Path(__file__).parents[2] / "golden" / "results_schema_1" / "quickstart-0a1b2c3d4e5f-01"
WORKLOAD = {"kind": "vision", "batch_per_gpu": 64}


def row(gpus, value, *, visit=1, **columns):
    cell = Cell.model_validate({"gpus": gpus, "workload": {**WORKLOAD, "global_batch": 64 * gpus}})
    return {
        "trial_id": Trial(cell=cell, visit=visit).trial_id,
        "attempt": 1,
        "cell_id": cell.cell_id,
        "session_id": f"s{gpus}-{visit}",
        "visit": visit,
        "cell_json": cell.canonical(),
        "gpus": gpus,
        "outcome": "ok",
        "throughput_per_s": value,
        **columns,
    }


RUNS = {
    "empty": [],
    "one": [row(1, 100.0)],
    "failed": [row(gpus, None, outcome=end, message="why") for gpus, end in ((1, "oom"), (2, "crashed"))],
    "broken": [row(1, math.nan), row(2, math.inf, study="weak"), row(4, -1.0, power_w=math.nan)],
    "bare": [{"trial_id": "a" * 12, "attempt": 1, "outcome": "ok"}],
    "cut": [row(gpus, None, outcome="cancelled") for gpus in (1, 2)],
    "noisy": [
        row(gpus, gpus * value, visit=visit, study="weak", batch_per_gpu=64, global_batch=64 * gpus, work_unit="image")
        for gpus in (1, 2, 4)
        for visit, value in enumerate((100.0, 160.0), start=1)
    ],
    "odd": [row(1, 100.0, cell_json="{", study="weak"), row(2, 190.0, cell_json=None, study="weak", power_w=0.0)],
}


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    for name, rows in RUNS.items():
        sweep = Sweep.model_validate(
            {"name": name, "question": "q?", "study": "weak", "workload": WORKLOAD, "axes": {"gpus": [1, 2, 4]}}
        )
        with RunWriter.open(root, sweep, f"name: {name}\n") as writer:
            for one in rows:
                writer.commit({"trials": table("trials", [one])})
    shutil.copytree(OLD, root / OLD.name)
    mixed_schemas(root)
    return root


def mixed_schemas(root):
    """A run whose parts have all of today's columns, few of them, and one of tomorrow's."""
    sweep = Sweep.model_validate(
        {"name": "mixed", "question": "q?", "study": "weak", "workload": WORKLOAD, "axes": {"gpus": [1, 2]}}
    )
    today = parts.pq.write_table

    def trimmed(content, sink, **options):
        few = ["trial_id", "attempt", "cell_id", "visit", "gpus", "outcome", "throughput_per_s", "cell_json"]
        today(content.select(few), sink, **options)

    def extended(content, sink, **options):
        today(content.append_column("tomorrow", pa.array(["x"] * content.num_rows)), sink, **options)

    with RunWriter.open(root, sweep, "name: mixed\n") as writer, pytest.MonkeyPatch.context() as patch:
        for visit, writing in enumerate((today, trimmed, extended), start=1):
            patch.setattr(pq, "write_table", writing)
            writer.commit({"trials": table("trials", [row(1, 100.0 + visit, visit=visit, study="weak")])})
            writer.commit({"trials": table("trials", [row(2, 190.0 + visit, visit=visit, study="weak")])})


def invoke(root, *words):
    result = CliRunner().invoke(app, list(words), env={"RTXSCALE_RESULTS": str(root)})
    assert result.exit_code == 0, (words, result.output)
    assert "Traceback" not in result.output
    return result


def names(root):
    return sorted(path.name for path in root.iterdir())


def test_every_run_is_shown_and_reported(root):
    for name in names(root):
        text = invoke(root, "show", name).stdout
        assert " nan" not in text.lower(), name
        assert "None" not in text, name
        data = json.loads(invoke(root, "show", name, "--json").stdout, parse_constant=lambda word: pytest.fail(word))
        assert data["headline"].endswith((".", "?")), name
        page = Path(invoke(root, "report", name).stdout.splitlines()[-1]).read_text()
        assert ">nan<" not in page.lower(), name
        assert ">None<" not in page, name
        for frame in CONCLUDED:
            assert "nan" not in invoke(root, "show", name, "--csv", frame).stdout.lower(), (name, frame)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("empty", ["Nothing has been measured yet; run the sweep."]),
        (
            "failed",
            [
                "Nothing can be concluded, as no trial can be counted: 1 crashed, 1 oom. Look at `rtxscale explain",
                "once its cause is mended, `rtxscale sweep SWEEP --fresh` measures anew.",
            ],
        ),
        ("cut", ["Nothing can be concluded yet: 2 cancelled; run the sweep again to finish it."]),
        ("one", ["No efficiency yet", "run a second GPU count", "in one visit only: no interval", "raise visits to 2"]),
        ("broken", ["without a number that can count", "2 whose throughput is not a finite number"]),
        ("odd", ["The settings of (gpus 1); (gpus 2, defaults) cannot be read", "or measure it again"]),
        ("quickstart", ["cannot be read from the column cell_json", "with the rtxscale that measured it"]),
    ],
)
def test_what_cannot_be_concluded_is_said_with_what_to_run_next(root, name, words):
    (run,) = [one for one in names(root) if one.startswith(name)]
    shown = " ".join(invoke(root, "show", run).stdout.split())
    assert [part for part in words if part not in shown] == []


def test_rows_older_than_the_studys_column_belong_to_their_runs_study(root):
    (name,) = [name for name in names(root) if name.startswith("mixed")]
    data = json.loads(invoke(root, "show", name, "--json").stdout)
    assert "No efficiency" not in data["headline"]


def bounds_of(rows):
    return [
        (row[low], row[low.removesuffix("_low") + "_high"], row["interval_note"])
        for row in rows
        for low in row
        if low.endswith("_low") and low.removesuffix("_low") + "_high" in row
    ]


def test_bounds_that_say_nothing_are_words_that_say_what_is_wrong(root):
    (noisy,) = [name for name in names(root) if name.startswith("noisy")]
    data = json.loads(invoke(root, "show", noisy, "--json").stdout)
    told = [bound for frame in ("cells", "efficiency") for bound in bounds_of(data[frame])]
    assert told
    assert {(low, high) for low, high, _ in told} == {(None, None)}
    assert "interval wider than x10: more visits" in data["headline"]
    for frame, name in (("cells", "throughput"), ("efficiency", "efficiency")):
        notes = {row["interval_note"] for row in data[frame] if row["gpus"] > 1}
        assert all(f"{name}: interval wider than x10: more visits" in note for note in notes), frame
    (compared, *_) = json.loads(invoke(root, "compare", noisy, noisy, "--json").stdout)["cells"]
    assert (compared["ratio_low"], compared["ratio_high"]) == (None, None)
    assert compared["interval_note"] == "ratio: interval wider than x10: more visits"


def test_any_two_runs_are_compared(root):
    for first, second in itertools.combinations_with_replacement(names(root), 2):
        text = invoke(root, "compare", first, second, "--json").stdout
        data = json.loads(text, parse_constant=lambda word: pytest.fail(word))
        assert all(cell["verdict"] for cell in data["cells"]), (first, second)
        if "odd" in first + second:
            assert " nan" not in invoke(root, "compare", second, first).stdout.lower(), (first, second)


def test_parts_of_several_schemas_count_alike(root):
    (name,) = [name for name in names(root) if name.startswith("mixed")]
    data = json.loads(invoke(root, "show", name, "--json").stdout)
    assert {cell["gpus"]: cell["trials"] for cell in data["cells"]} == {1: 3, 2: 3}
