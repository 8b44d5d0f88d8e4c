"""Scaling results as people really posted them, with the right values beside them (tests/golden/results_cases)."""

import json
from pathlib import Path

import polars as pl
import pytest
from made_trials import assert_sound, collectives_frame, made_cell, made_row, trials_frame, visits

from rtxscale.analysis.conclude import conclude_tables

CASES = Path(__file__).parents[2] / "golden" / "results_cases"
EXPECTED = json.loads((CASES / "results_expected.json").read_text())
AXES = {"gpus": [1, 2, 4, 8, 16]}


def case(name):
    return pl.read_csv(CASES / name).to_dicts()


def concluded(rows):
    conclusions = conclude_tables(trials_frame(rows), collectives_frame(), axes=AXES)
    assert_sound(conclusions)
    return conclusions


def efficiencies(conclusions, curve="weak"):
    table = conclusions.efficiency.filter(pl.col("curve") == curve)
    return dict(table.select("gpus", "efficiency").iter_rows())


def test_throughput_is_work_not_steps():
    rows = [
        made_row(made_cell(row["gpus"], row["per_gpu_batch"]), row["steps_per_s"] * row["per_gpu_batch"] * row["gpus"])
        for row in case("results_steps_per_s_trap.csv")
    ]
    right = EXPECTED["results_steps_per_s_trap.csv"]["weak_efficiency_4"]
    found = efficiencies(concluded(rows))
    assert found == {1: 1.0, 4: pytest.approx(right)}
    assert found[4] != pytest.approx(EXPECTED["results_steps_per_s_trap.csv"]["wrong_if_steps_used_as_throughput"])


def test_weak_and_strong_share_a_row_but_not_a_base():
    measured = {
        made_cell(row["gpus"], row["per_gpu_batch"]): row["samples_per_s"]
        for row in case("results_strong_vs_weak.csv")
        if row["per_gpu_batch"] * row["gpus"] == row["global_batch"]
    }
    conclusions = concluded([made_row(cell, value, study="both") for cell, value in measured.items()])
    expected = EXPECTED["results_strong_vs_weak.csv"]
    for curve, right in (("weak", expected["weak"]), ("strong", expected["strong_global_256"])):
        found = efficiencies(conclusions, curve)
        assert {str(gpus): value for gpus, value in found.items() if gpus > 1} == pytest.approx(right)
    shared = conclusions.efficiency.filter(pl.col("gpus") == 4)
    assert shared["cell_id"].n_unique() == 1
    assert shared["base_cell_id"].n_unique() == 2
    assert "weak efficiency 0.95, strong efficiency 0.83 at 3.30x" in conclusions.headline


def test_without_one_gpu_the_reference_is_named():
    rows = [
        made_row(made_cell(row["gpus"], 64), row["samples_per_s"], outcome="ok" if row["samples_per_s"] else "crashed")
        for row in case("results_missing_baseline.csv")
    ]
    conclusions = concluded(rows)
    assert efficiencies(conclusions) == {2: 1.0, 4: pytest.approx(800 / 820)}
    assert set(conclusions.efficiency["base_gpus"]) == {2}
    assert all("relative to 2 GPUs" in note for note in conclusions.efficiency["note"])
    assert "1.95x of 2" in conclusions.headline
    assert any("relative to 2 GPUs" in remark for remark in conclusions.remarks)
    assert any("1 of 3 trials did not end ok" in remark for remark in conclusions.remarks)


def test_failed_repeated_unfinished_and_broken_rows_do_not_count():
    outcomes = {"ERROR": "crashed", "RUNNING": "cancelled", "TERMINATED": "ok"}
    attempts = {"t1_retry": ("t1", 2)}
    rows = []
    for row in case("results_failed_nan_duplicates.csv"):
        trial_id, attempt = attempts.get(row["trial_id"], (row["trial_id"], 1))
        cell = made_cell(row["gpus"], 64)
        columns = {"outcome": outcomes[row["status"]], "loss_last": float(row["loss"])}
        rows.append(made_row(cell, float(row["samples_per_s"]), **columns) | {"trial_id": trial_id, "attempt": attempt})
    conclusions = concluded(rows)
    right = EXPECTED["results_failed_nan_duplicates.csv"]["efficiency"]
    assert efficiencies(conclusions) == {1: 1.0, 2: pytest.approx(right["2"])}
    assert dict(conclusions.cells.select("gpus", "trials").iter_rows()) == {1: 1, 2: 1}
    assert any("2 ok trials are not counted" in remark for remark in conclusions.remarks)
    assert any("1 of 5 trials did not end ok" in remark and "1 cancelled" in remark for remark in conclusions.remarks)


def test_more_than_linear_is_flagged_with_its_base_and_spread_and_never_clipped():
    base, per_gpu = 6.2034, 64
    rows = visits(made_cell(1, per_gpu), base, base * 1.001, base * 0.999)
    seen = {}
    for row in case("results_superlinear.csv"):
        seen.setdefault(row["clients"], []).append(row["efficiency"] * row["clients"] * base)
    for gpus, values in seen.items():
        rows += visits(made_cell(gpus, per_gpu), *values)
    conclusions = concluded(rows)
    table = {row["gpus"]: row for row in conclusions.efficiency.iter_rows(named=True)}
    assert table[4]["efficiency"] == pytest.approx(1.573, abs=0.001)
    assert "superlinear" in table[4]["note"]
    assert "superlinear" in table[16]["note"]
    assert table[8]["efficiency_low"] < 1 < table[8]["efficiency"] < table[8]["efficiency_high"]
    assert "above 1, not separable" in table[8]["note"]
    suspicious = [remark for remark in conclusions.remarks if remark.startswith("Suspicious")]
    assert len(suspicious) == 2
    assert all("6.203" in remark for remark in suspicious)
