"""`compare`: output, JSON, and the gate's exit code."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rtxscale.cli.main import app
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.spec.cell import Cell, Trial
from rtxscale.spec.sweep import Sweep

WORKLOAD = {"kind": "vision", "batch_per_gpu": 64}


def invoke(root, *words):
    return CliRunner().invoke(app, list(words), env={"RTXSCALE_RESULTS": str(root)})


def made_run(
    root: Path, name: str, speeds: dict[int, list[float | None]], driver: str, hostile: str = "", text: str = "", **cell
) -> str:
    """`None` as a speed is a crash; `text` is the sweep file's, `cell` what its cells have beside `WORKLOAD`."""
    sweep = Sweep.model_validate(
        {"name": name, "study": "weak", "workload": WORKLOAD, "axes": {"gpus": [1, 2]}, "question": "q?"}
    )
    rows = []
    for gpus, values in speeds.items():
        workload = {**WORKLOAD, "global_batch": 64 * gpus, **cell.get("workload", {})}
        made = Cell.model_validate({"gpus": gpus, **cell, "workload": workload})
        for visit, value in enumerate(values, start=1):
            trial = Trial(cell=made, visit=visit)
            rows.append(
                {
                    "trial_id": trial.trial_id,
                    "attempt": 1,
                    "cell_id": made.cell_id,
                    "session_id": f"s{gpus}-{visit}",
                    "visit": visit,
                    "cell_json": made.canonical(),
                    "gpus": gpus,
                    "study": "weak",
                    "device": "cuda",
                    "device_names": [hostile or "NVIDIA H200"],
                    "outcome": "crashed" if value is None else "ok",
                    "throughput_per_s": value,
                    "work_unit": "image",
                }
            )
    environment = [{"environment_id": "e", "node": "n", "subject": "software", "name": "driver", "value": driver}]
    with RunWriter.open(root, sweep, text or f"name: {name}\n") as writer:
        writer.commit({"trials": table("trials", rows), "environment": table("environment", environment)})
        return writer.run_id


@pytest.fixture
def runs(tmp_path):
    old = made_run(tmp_path, "old", {1: [100.0, 100.2], 2: [190.0, 190.3]}, "570.1")
    new = made_run(tmp_path, "new", {1: [100.1, 100.0], 2: [152.0, 152.3]}, "580.2")
    return tmp_path, old, new


def test_it_says_what_changed_and_what_differs(runs):
    root, old, new = runs
    result = invoke(root, "compare", old, new)
    assert result.exit_code == 0, result.output
    assert "1 slower" in result.stdout
    assert "1 equal within 1 %" in result.stdout
    assert "environment: software.driver" in result.stdout
    assert "570.1" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()[1:]) <= 80


def test_json_is_strict_and_complete(runs):
    root, old, new = runs
    result = invoke(root, "compare", old, new, "--json")
    data = json.loads(result.stdout, parse_constant=lambda word: pytest.fail(word))
    assert {row["gpus"]: row["verdict"] for row in data["cells"]} == {1: "equal within 1 %", 2: "slower"}
    assert {"part": "environment", "field": "software.driver", "a": "570.1", "b": "580.2"} in data["differences"]
    assert data["cells"][1]["ratio"] == pytest.approx(0.8, rel=0.001)


def differing_settings(root, *names):
    data = json.loads(invoke(root, "compare", *names, "--json").stdout)
    return [(row["field"], row["a"], row["b"]) for row in data["differences"] if row["part"] == "sweep"]


def test_every_setting_of_the_sweeps_that_differs_is_named(tmp_path):
    sweep = (
        "name: s\nquestion: {}?\nstudy: weak\nworkload: {{kind: vision, batch_per_gpu: 64, image_size: {}}}\n"
        "axes: {{gpus: [1, 2]}}\nmeasure: {{window_s: {}}}\n{}"
    )
    texts = (
        sweep.format("q", 32, 2, "visits: 2\n"),
        sweep.format("r", 64, 5, "visits: 3\nhardware: {gpu: NVIDIA H200}\n"),
    )
    names = [made_run(tmp_path, f"n{len(text)}", {1: [100.0, 100.2]}, "570.1", text=text) for text in texts]
    assert differing_settings(tmp_path, *names) == [
        ("question", "q?", "r?"),
        ("workload.image_size", "32", "64"),
        ("measure.window_s", "2.0", "5.0"),
        ("visits", "2", "3"),
        ("hardware.gpu", "auto", "NVIDIA H200"),
    ]
    assert differing_settings(tmp_path, names[0], names[0]) == []


def test_of_sweeps_that_cannot_be_read_the_settings_of_the_cells_are_compared(tmp_path):
    asked = ((tmp_path / "a", 32, 2.0), (tmp_path / "b", 64, 5.0))
    names = [
        str(root / made_run(root, "same", {1: [9.0]}, "1", workload={"image_size": size}, measure={"window_s": window}))
        for root, size, window in asked
    ]
    assert sorted(differing_settings(tmp_path, *names)) == [
        ("measure.window_s", "2.0", "5.0"),
        ("workload.image_size", "32", "64"),
    ]


@pytest.mark.parametrize(("bar", "code", "words"), [("0.75", 0, "reach 0.75"), ("0.95", 1, "lowest 0.800 in (gpus 2")])
def test_the_gate(runs, bar, code, words):
    root, old, new = runs
    result = invoke(root, "compare", old, new, "--fail-below", bar)
    assert result.exit_code == code
    assert words in result.stderr


def test_a_run_with_itself_passes_the_gate(runs):
    root, old, _ = runs
    result = invoke(root, "compare", old, old, "--fail-below", "0.99")
    assert result.exit_code == 0
    assert "2 equal within" in result.stdout
    assert "What differs" not in result.stdout


def test_a_gate_that_compared_nothing_fails(runs, tmp_path):
    root, old, _ = runs
    other = made_run(tmp_path, "other", {8: [800.0]}, "580.2")
    result = invoke(root, "compare", old, other, "--fail-below", "0.5")
    assert result.exit_code == 1
    assert "nothing could be compared" in result.stderr


def test_a_loss_with_one_visit_fails_and_says_that_it_may_be_noise(runs, tmp_path):
    root, old, _ = runs
    once = made_run(tmp_path, "once", {2: [171.0]}, "580.2")
    result = invoke(root, "compare", old, once, "--fail-below", "0.95")
    assert result.exit_code == 1
    assert "1 of them may be noise" in result.stderr


def test_a_cell_that_crashed_where_a_ran_fails_the_gate(runs, tmp_path):
    root, old, _ = runs
    broken = made_run(tmp_path, "broken", {1: [100.0, 100.1], 2: [None, None]}, "580.2")
    result = invoke(root, "compare", old, broken, "--fail-below", "0.5")
    assert result.exit_code == 1
    assert result.stderr == (
        "rtxscale: 1 of A's numbers has none in B, first in (gpus 2, defaults): no counted trial in B (crashed)\n"
    )
    assert invoke(root, "compare", broken, old, "--fail-below", "0.5").exit_code == 0, "what A lacks B need not have"


def test_hostile_text_does_not_reach_the_terminal(tmp_path):
    old = made_run(tmp_path, "old", {1: [1.0]}, "1\x1b[2J")
    new = made_run(tmp_path, "new", {1: [1.0]}, "2", hostile="evil\x1b]0;x\x07")
    result = invoke(tmp_path, "compare", old, new)
    assert result.exit_code == 0
    assert "\x1b" not in result.output


def test_what_is_no_run_is_an_error(runs, tmp_path):
    root, old, _ = runs
    result = invoke(root, "compare", old, "nowhere")
    assert (result.exit_code, "found neither a directory nor a run" in result.stderr) == (2, True)
    (run,) = [path for path in root.iterdir() if path.name == old]
    shutil.rmtree(run / "parts")
    assert invoke(root, "compare", old, old).exit_code == 1
