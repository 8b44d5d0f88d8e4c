"""Real runs on one H200 whose figures stand in README's "How far to trust it": they come out of their rows."""

from pathlib import Path

import polars as pl
import pytest

from rtxscale.analysis.selftest.equality import check_isolation
from rtxscale.analysis.selftest.verdicts import evidence_of
from rtxscale.analysis.targets import target_table

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "h200x1_checks"
README = (GOLDEN.parents[2] / "README.md").read_text()


def trials(name):
    return pl.read_parquet(GOLDEN / f"{name}.parquet")


@pytest.mark.parametrize(("name", "cells"), [("isolation", 4), ("single", 1)])
def test_readme_quotes_fresh_processes_over_warm_sessions(name, cells):
    check = check_isolation(evidence_of(trials(name)))
    assert len(check.rows) == cells
    quoted = ", ".join(f"{row['ratio']:.4f} ({row['low']:.4f}-{row['high']:.4f})" for row in check.rows)
    assert f"| {quoted} |" in README


def test_readme_quotes_what_fp8_and_bf16_took_to_the_same_loss():
    rows = trials("fp8")
    targets = target_table(rows, rows.select("cell_id", label="precision").unique())
    rates = {name: rows.filter(precision=name).sort("visit")["throughput_per_s"] for name in targets["label"]}
    said = {
        row["label"]: f"{row['reached']} of {row['runs']} runs after {row['median_steps']:.0f} updates and "
        f"{row['median_s']:.1f} s, {rates[row['label']].min():,.0f} to {rates[row['label']].max():,.0f} tokens/s"
        for row in targets.iter_rows(named=True)
    }
    assert f"| bf16: {said['bf16']}; FP8: {said['fp8']} |" in README
