"""Numbers of a dossier name every setting that was varied, and are those of whole windows."""

from types import SimpleNamespace

import polars as pl
import pytest

from rtxscale.analysis.tables import CELLS, COST, EFFECTS, EFFICIENCY
from rtxscale.report.dossier.facts import NOT_APPLICABLE
from rtxscale.report.dossier.method import outcomes
from rtxscale.report.dossier.results import MOST, efficiency, fp8_gain, steps, throughput
from rtxscale.results.schema import table


def cell(number, gpus, rate, label, **axes):
    return {
        "cell_id": f"{number:012d}",
        "label": f"gpus {gpus}, {label}",
        "workload": "vision/resnet50",
        "gpus": gpus,
        "batch_per_gpu": 128,
        "is_default": True,
        "work_unit": "image",
        "throughput_per_s": rate,
        **{f"axis:{name}": value for name, value in axes.items()},
    }


def facts(cells=(), counted=(), effects=(), curve=(), trials=()):
    extra = {name: pl.String() for row in cells for name in row if name.startswith("axis:")}
    return SimpleNamespace(
        conclusions=SimpleNamespace(
            cells=pl.DataFrame(list(cells), schema={**CELLS, **extra}),
            cost=pl.DataFrame(schema=COST),
            effects=pl.DataFrame(list(effects), schema=EFFECTS),
            efficiency=pl.DataFrame(list(curve), schema=EFFICIENCY),
            device="cuda",
        ),
        counted=pl.from_arrow(table("trials", list(counted))),
        trials=pl.from_arrow(table("trials", list(trials))),
    )


CELLS_MADE = [
    cell(1, 1, 2500.0, "bf16", **{"workload.precision": "bf16"}),
    cell(2, 1, 1001.0, "fp32", **{"workload.precision": "fp32"}),
    cell(3, 2, 1900.0, "bf16", **{"workload.precision": "bf16"}),
    cell(4, 2, 1960.0, "fp32", **{"workload.precision": "fp32"}),
    cell(5, 2, 1970.0, "fp32, ring", **{"workload.precision": "fp32", "nccl.algorithm": "ring"})
    | {"is_default": False},
]


def test_cells_of_different_settings_are_told_apart_and_all_told():
    assert throughput(facts(CELLS_MADE)).value == (
        "1 GPU, batch 128 each, bf16: 2,500 images/s; 1 GPU, batch 128 each, fp32: 1,000 images/s; "
        "2 GPUs, batch 128 each, bf16: 1,900 images/s; 2 GPUs, batch 128 each, fp32: 1,960 images/s"
    )


def test_of_very_many_cells_the_rest_is_counted():
    many = [cell(n, 1, 100.0, f"context {n}", **{"workload.context": str(n)}) for n in range(MOST + 2)]
    assert throughput(facts(many)).value.endswith("; and 2 more cells")


def test_curves_are_told_apart_by_what_they_hold_constant():
    points = [
        {"curve": "weak", "series": name, "is_default": True, "gpus": 2, "base_gpus": 1, "efficiency": value}
        for name, value in (("bf16", 0.38), ("fp32", 0.98), ("defaults", 0.9))
    ]
    assert efficiency(facts(curve=points)).value == (
        "weak (bf16), 2 over 1: 0.380; weak (fp32), 2 over 1: 0.980; weak, 2 over 1: 0.900"
    )


def test_steps_per_second_are_those_of_whole_windows_as_throughput_is():
    rows = [{"trial_id": f"{n:012d}", "cell_id": f"{1:012d}", "window_steps": n, "window_s": 2.0} for n in (20, 80)]
    assert steps(facts(CELLS_MADE[:1], counted=rows)).value == "1 GPU, batch 128 each, bf16: 20.00 steps/s"


@pytest.mark.parametrize(("value", "known"), [("fp8", True), ("bf16", False)])
def test_fp8_is_told_where_it_was_varied_and_nowhere_else(value, known):
    row = {
        "axis": "workload.precision",
        "value": value,
        "reference": "fp32",
        "gpus": 1,
        "ratio": 0.26,
        "verdict": "slower",
    }
    found = fp8_gain(facts(effects=[row]))
    assert (found.value == "1: fp8 against fp32 -74.0 % (slower)") if known else (found.status == NOT_APPLICABLE)


def test_trials_end_once_by_their_last_attempt_and_sentinels_are_apart():
    rows = [
        ("a", 1, "cancelled", "sweep"),
        ("a", 2, "ok", "sweep"),
        ("b", 1, "ok", "sweep"),
        ("c", 1, "ok", "sentinel"),
        ("d", 1, "cancelled", "sentinel"),
    ]
    trials = [{"trial_id": one, "attempt": n, "outcome": end, "stage": stage} for one, n, end, stage in rows]
    assert (
        outcomes(facts(trials=trials)).value == "2 ok, 1 ok (sentinels), 1 cancelled (sentinels), 1 attempt tried again"
    )
