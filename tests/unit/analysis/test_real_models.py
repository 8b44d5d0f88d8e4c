"""Real runs of four sweeps on one H200: what README says of them comes out of their rows."""

import json
import re
from pathlib import Path

import polars as pl
import pytest

from rtxscale.analysis.flags import waits_for_its_host

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "h200x1_models"
README = (GOLDEN.parents[2] / "README.md").read_text()
PARTS = ("model", "size", "precision", "compile", "context", "checkpointing", "tuning", "data")
PLAIN = {"resident", "full"}
SHORT = {"swin_base_patch4_window7_224": "Swin-B", "resnet50": "ResNet-50", "sdxl": "SDXL"}
ROW = re.compile(r"^\| ([^|]+) \| (\d+) \| ([\d., and]+) \| ([\d., and]+) \| ([\d.]+) \|$", re.MULTILINE)


@pytest.fixture(scope="module")
def counted():
    trials = pl.read_parquet(GOLDEN / "trials.parquet")
    return trials.filter((pl.col("outcome") == "ok") & (pl.col("stage") == "sweep")).sort("visit")


def spoken(cell_json):
    """A cell in README's words: what differs between the rows of the table."""
    workload = json.loads(cell_json)["workload"]
    defaults = {"vision": {"model": "resnet50", "precision": "bf16"}, "diffusion": {"model": "sdxl"}}
    values = {"precision": "bf16", "compile": "off", **defaults.get(workload["kind"], {}), **workload}
    if workload["kind"] == "language":
        values.setdefault("context", 2048)
    words = []
    for name in PARTS:
        value = values.get(name)
        if value in (None, *PLAIN) or (name in ("compile", "checkpointing") and value == "off"):
            continue
        words.append({"checkpointing": name, "compile": "compiled"}.get(name) or SHORT.get(value, str(value)))
    return ", ".join(words)


def table_of(counted):
    """Cell -> (batch, rates, busy shares, largest peak in GiB), by visit."""
    rows = {}
    for (_, batch, cell), visits in counted.group_by("cell_id", "batch_per_gpu", "cell_json", maintain_order=True):
        rates = visits["throughput_per_s"].to_list()
        rows[spoken(cell)] = (batch, rates, visits["gpu_busy_share"].to_list(), visits["memory_peak_mib"].max() / 1024)
    return rows


def numbers(text):
    return [float(part.replace(",", "")) for part in text.split(" and ")]


def test_readme_quotes_every_cell_visit_by_visit(counted):
    table = table_of(counted)
    rows = {name: found for name, *found in ROW.findall(README) if name in table}
    assert set(rows) == set(table)
    for name, (batch, rates, busy, peak) in table.items():
        assert int(rows[name][0]) == batch
        assert numbers(rows[name][1]) == pytest.approx(rates, rel=5e-3), name
        assert numbers(rows[name][2]) == pytest.approx(busy, abs=0.0051), name
        assert float(rows[name][3]) == pytest.approx(peak, abs=0.051), name


def test_a_host_that_is_late_in_the_middle_of_a_step_is_found_by_utilisation_alone():
    """The decoder at 2k: its long update kept every step a lead at the end, and yet steps took 61 to 173 ms."""
    trials = pl.read_parquet(GOLDEN / "trials.parquet").filter(pl.col("outcome") == "ok")
    of_decoder = (
        trials.filter(pl.col("sweep") == "llm-context-1b")
        .with_columns(input_share=pl.lit(0.0))
        .with_columns(bound=waits_for_its_host(), spread=pl.col("step_time_p95_s") / pl.col("step_time_mean_s"))
    )
    assert of_decoder["host_bound_share"].max() == 0
    assert of_decoder.filter("bound").height == 10
    assert of_decoder.filter(pl.col("gpu_busy_share") > 0.99)["spread"].max() < 1.1
    assert of_decoder.filter("bound")["spread"].min() > 1.1
