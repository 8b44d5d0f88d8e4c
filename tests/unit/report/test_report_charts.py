"""The figures of a run: valid, offline, strict, and showing the right numbers."""

from __future__ import annotations

import ast
import json
import math
import os
import re
from dataclasses import replace
from pathlib import Path

import altair as alt
import polars as pl
import pytest
import vl_convert

from rtxscale.analysis.tables import EFFECTS, EFFICIENCY
from rtxscale.errors import BadInput
from rtxscale.report import charts
from rtxscale.report.bandwidth_series import told_apart
from rtxscale.report.charts.bandwidth import bandwidth_figures
from rtxscale.report.charts.bandwidth_references import References
from rtxscale.report.charts.budget import SIDES
from rtxscale.report.charts.export import picture_spec, write_charts
from rtxscale.report.charts.figure import chart_of
from rtxscale.report.charts.figures import expectation, figures
from rtxscale.report.charts.knobs import effects_figure, heat_figures, knob_axes, relative_to_default
from rtxscale.report.charts.scaling import Expectation, scaling_figures
from rtxscale.report.charts.theme import DARK, LIGHT, config, legend_columns
from rtxscale.report.scaling_curves import curve_of
from rtxscale.report.scripts import vega_lite_version

ALTAIR_LIMIT = 5000
UNKNOWN_CARD = Expectation(silence="nothing is known")


@pytest.fixture(scope="module")
def h200_figures(h200):
    return figures(h200.run, h200.conclusions)


@pytest.fixture(scope="module")
def cpu_figures(cpu):
    return figures(cpu.run, cpu.conclusions)


def by_key(drawn, key):
    return next(figure for figure in drawn if figure.key == key)


def curve(rows):
    full = [
        {
            "curve": "weak",
            "series": "defaults",
            "is_default": True,
            "base_gpus": 1,
            "base_cell_id": "b",
            "note": "",
            **row,
        }
        for row in rows
    ]
    return pl.DataFrame(full, schema=EFFICIENCY)


def test_a_weak_sweep_with_knobs_has_every_chart(h200_figures):
    assert [figure.key for figure in h200_figures] == [
        "weak-throughput",
        "weak-efficiency",
        "heat-2",
        "heat-4",
        "effects",
        "bandwidth-all_reduce",
        "telemetry-temperature",
        "telemetry-clock",
        "telemetry-power",
        "telemetry-utilisation",
        "energy",
    ]


def test_a_cpu_study_has_both_curves_and_only_the_telemetry_there_is(cpu_figures):
    assert [figure.key for figure in cpu_figures] == [
        "weak-throughput",
        "weak-efficiency",
        "strong-throughput",
        "strong-efficiency",
        "effects",
        "telemetry-utilisation",
    ]
    assert "CPU workers" in json.dumps(by_key(cpu_figures, "weak-throughput").spec())


def test_an_empty_run_has_no_chart(empty):
    assert figures(empty.run, empty.conclusions) == []


def test_every_spec_is_drawn(cpu_figures, h200_figures):
    for figure in [*cpu_figures, by_key(h200_figures, "heat-4"), by_key(h200_figures, "bandwidth-all_reduce")]:
        svg = vl_convert.vegalite_to_svg(picture_spec(figure, DARK), vl_version=vega_lite_version())
        assert svg.startswith("<svg")
        assert figure.title in svg
        assert "NaN" not in svg


def test_a_control_character_in_any_text_is_drawn_as_its_escape(cpu_figures):
    y = alt.Y("value:Q", axis=alt.Axis(title="im\x1bages/s"))
    figure = replace(
        by_key(cpu_figures, "weak-throughput"),
        **{"title": "a\x1b[31mb", "caption": "c\x00d.", "chart": chart_of("rows").mark_point().encode(y=y)},
        datasets={"rows": [{"value": 1.0, "text": "e\x1bf"}]},
    )
    svg = vl_convert.vegalite_to_svg(picture_spec(figure), vl_version=vega_lite_version())
    assert [text for text in (r"a\x1b[31mb", r"c\x00d.", r"im\x1bages/s") if text not in svg] == []
    assert figure.spec()["datasets"] == {"rows": [{"value": 1.0, "text": r"e\x1bf"}]}


def test_every_style_that_a_chart_asks_for_is_one_of_the_look(golden, h200, cpu_figures):
    sources = [ast.parse(path.read_text()) for path in Path(charts.__file__).parent.glob("*.py")]
    calls = [node for tree in sources for node in ast.walk(tree) if isinstance(node, ast.Call)]
    words = [word.value for call in calls for word in call.keywords if word.arg == "style"]
    written = {word.value for word in words if isinstance(word, ast.Constant)}
    expected = Expectation(card="RTX 5090", target=True, extra_gpu=(0.85, 0.95))
    scaling = scaling_figures(h200.conclusions.efficiency, "image", "GPUs", expected)
    specs = [figure.spec() for figure in [*figures(*golden), *scaling, *cpu_figures]]
    drawn = {layer["mark"].get("style") for spec in specs for layer in spec.get("layer", ())} - {None}
    sides = {style for style, _, _ in SIDES.values()}
    known = config(LIGHT)["style"]
    assert {"window", "target-label", "halo"} <= drawn - written, "those that no call writes out"
    assert written | drawn | sides <= set(known)
    assert known["window"]["color"] == LIGHT.shade


def test_specs_are_strict_json_with_safe_fields_and_few_rows(h200_figures, cpu_figures):
    for figure in [*h200_figures, *cpu_figures]:
        spec = figure.spec()
        text = json.dumps(spec, allow_nan=False)
        assert all(re.fullmatch(r"[a-z_]+", name) for name in re.findall(r'"field": "([^"]+)"', text))
        assert max(len(rows) for rows in spec["datasets"].values()) <= ALTAIR_LIMIT
        assert {layer["data"]["name"] for layer in spec["layer"] if "data" in layer} <= set(spec["datasets"])
        assert figure.caption.endswith(".")


def test_the_ideal_line_is_the_base_times_the_count(h200, h200_figures):
    ideal = by_key(h200_figures, "weak-throughput").datasets["ideal"]
    base = h200.conclusions.efficiency.filter(pl.col("gpus") == 1)["throughput_per_s"][0]
    assert [(row["gpus"], row["rate"]) for row in ideal] == [(1, base), (4, pytest.approx(4 * base))]


def test_default_best_and_worst_are_told_apart_and_nothing_is_lost(h200, h200_figures):
    figure = by_key(h200_figures, "weak-efficiency")
    at_four = h200.conclusions.efficiency.filter(pl.col("gpus") == 4).sort("efficiency")
    assert figure.labels == ("defaults", at_four["series"][-1], at_four["series"][0])
    drawn = {row["series"] for rows in ("told", "grey") for row in figure.datasets[rows]}
    assert drawn == set(h200.conclusions.efficiency["series"])


def test_every_series_starts_at_the_shared_base(h200_figures):
    told = by_key(h200_figures, "weak-efficiency").datasets["told"]
    starts = {row["series"]: row for row in told if row["gpus"] == 1}
    assert len(starts) == 3
    assert {row["efficiency"] for row in starts.values()} == {1.0}


def test_the_target_is_drawn_where_it_applies_and_the_caption_says_whose_it_is(h200):
    efficiency = h200.conclusions.efficiency

    def weak(known):
        return by_key(list(scaling_figures(efficiency, "image", "GPUs", known)), "weak-efficiency")

    drawn = weak(Expectation(card="RTX 5090", target=True, extra_gpu=(0.91, 0.97)))
    assert drawn.datasets["target"] == [{"efficiency": 0.9, "text": "target 0.9"}]
    assert "Dotted: the target 0.9 for RTX 5090 with AMP and compile." in drawn.caption
    assert "Band: expected of RTX 5090" in drawn.caption
    eager = weak(Expectation(card="RTX 5090", target=False, extra_gpu=(0.91, 0.97)))
    assert "No target: 0.9 is set for RTX 5090 with AMP and compile, as no point here is." in eager.caption
    plain = weak(UNKNOWN_CARD)
    assert "No band: nothing is known." in plain.caption
    assert "0.9" not in plain.caption
    for figure in (eager, plain):
        assert "target" not in figure.datasets
        assert not any("target" in str(layer) for layer in figure.spec()["layer"])
    known = expectation(h200.run.frame("trials").collect(), efficiency)
    assert known == Expectation(card="H200", silence="no range is documented for H200")


def test_neither_cpu_workers_nor_strong_curves_have_a_target(cpu, cpu_figures):
    applies = Expectation(card="RTX 5090", target=True)
    strong = by_key(list(scaling_figures(cpu.conclusions.efficiency, "image", "GPUs", applies)), "strong-efficiency")
    for figure in (strong, *(by_key(cpu_figures, f"{kind}-efficiency") for kind in ("weak", "strong"))):
        assert "target" not in figure.datasets
        assert "target" not in figure.caption


def test_series_stand_apart_so_that_their_bars_do_not_lie_on_each_other(h200, cpu):
    for made in (h200, cpu):
        for figure in (one for one in figures(made.run, made.conclusions) if one.section == "scaling"):
            told = figure.datasets["told"]
            for count in {row["gpus"] for row in told}:
                places = [(row["series"], row["at"]) for row in told if row["gpus"] == count]
                assert len({at for _, at in places}) == len({series for series, _ in places})
                assert all(abs(at - count) < 0.1 * max(row["gpus"] for row in told) for _, at in places)
            drawn = [layer for layer in figure.spec()["layer"] if layer["data"]["name"] == "told"]
            assert {layer["encoding"]["x"]["field"] for layer in drawn} == {"at"}


def test_the_expected_band_converts_extra_gpu_efficiency(h200):
    card = Expectation(card="x", extra_gpu=(0.5, 1.0))
    figure = by_key(list(scaling_figures(h200.conclusions.efficiency, "image", "GPUs", card)), "weak-efficiency")
    # (1 + x (N - 1)) / N
    assert figure.datasets["expected"] == [
        {"gpus": 1, "low": 1.0, "high": 1.0},
        {"gpus": 2, "low": 0.75, "high": 1.0},
        {"gpus": 3, "low": pytest.approx(2 / 3), "high": 1.0},
        {"gpus": 4, "low": 0.625, "high": 1.0},
    ]


def test_a_known_card_has_target_and_range():
    def seen(*names, device="cuda", precision="bf16", compiled="default", **drawn):
        columns = {"device": device, "precision": precision, "compile": compiled, "cell_id": "a"}
        trials = pl.DataFrame({"device_names": list(names)}).with_columns(
            **{name: pl.lit(value, pl.String) for name, value in columns.items()}
        )
        point = {"curve": "weak", "cell_id": "a", "gpus": 2, "efficiency": 0.86, **drawn}
        return expectation(trials, pl.DataFrame([point], schema=EFFICIENCY))

    known = seen(["NVIDIA GeForce RTX 5090"], None)
    assert (known.card, known.target, known.extra_gpu) == ("RTX 5090", True, (0.91, 0.97))
    others = [{"compiled": "off"}, {"compiled": None}, {"precision": "fp32"}]
    undrawn = [{"cell_id": "b"}, {"gpus": 1}, {"efficiency": None}, {"curve": "strong"}]
    assert [seen(["NVIDIA GeForce RTX 5090"], **other).target for other in (*others, *undrawn)] == [False] * 7
    silent = {
        "the trials ran on different models": seen(["NVIDIA GeForce RTX 5090"], ["NVIDIA H200"]),
        "nothing is documented of Foo": seen(["Foo"]),
        "a range is documented of graphics cards alone, and these are CPU workers": seen(["cpu"], device="cpu"),
    }
    assert all(one == Expectation(silence=why) for why, one in silent.items())


def test_no_interval_no_bar():
    rows = [
        {"cell_id": "b", "gpus": 1, "throughput_per_s": 10.0, "efficiency": 1.0},
        {"cell_id": "c", "gpus": 2, "throughput_per_s": 19.0, "efficiency": 0.95},
    ]
    throughput, efficiency = scaling_figures(curve(rows), "image", "GPUs", UNKNOWN_CARD)
    assert "intervals" not in throughput.caption + efficiency.caption
    assert efficiency.datasets["told"][1]["efficiency_text"] == "0.950"


def test_a_wide_interval_does_not_flatten_the_chart():
    wide = {"throughput_low": 9.0, "throughput_high": 80.0, "efficiency_low": 0.4, "efficiency_high": 3.9}
    rows = [
        {"cell_id": "b", "gpus": 1, "throughput_per_s": 10.0, "efficiency": 1.0},
        {"cell_id": "c", "gpus": 2, "throughput_per_s": 19.0, "efficiency": 0.95, **wide},
    ]
    throughput, efficiency = scaling_figures(curve(rows), "image", "GPUs", UNKNOWN_CARD)
    domains = [figure.spec()["layer"][-1]["encoding"]["y"]["scale"]["domain"] for figure in (throughput, efficiency)]
    assert domains == [[0, pytest.approx(25)], [pytest.approx(0.7), pytest.approx(1.27)]]
    assert "cut" in throughput.caption
    assert efficiency.datasets["told"][1]["efficiency_text"] == "0.95 (0.40-3.90)"


def test_values_that_are_not_numbers_become_null():
    rows = [
        {"cell_id": "b", "gpus": 1, "throughput_per_s": 10.0, "efficiency": 1.0, "efficiency_low": math.nan},
        {"cell_id": "c", "gpus": 2, "throughput_per_s": 19.0, "efficiency": 0.95, "efficiency_high": math.inf},
    ]
    for figure in scaling_figures(curve(rows), "image", "GPUs", UNKNOWN_CARD):
        assert "null" in json.dumps(figure.spec(), allow_nan=False)


def test_heat_tiles_are_geometric_means_over_the_default(h200, h200_figures):
    cells = h200.conclusions.cells
    tiles = by_key(h200_figures, "heat-4").datasets["tiles"]
    at_four = cells.filter(pl.col("gpus") == 4)
    base = at_four.filter("is_default")["throughput_per_s"][0]
    one = at_four.filter((pl.col("axis:nccl.channels") == "1") & (pl.col("axis:ddp.bucket_mib") == "100"))
    expected = math.exp(sum(math.log(value / base) for value in one["throughput_per_s"]) / one.height)
    tile = next(row for row in tiles if row["x"] == "1" and row["y"] == "100")
    assert tile["ratio"] == pytest.approx(expected)
    assert tile["cells"] == 6
    assert len(tiles) == 15


def test_a_heat_tile_is_no_mean_over_settings_that_the_others_lack():
    """compile gains 1.42 in bf16; in fp32 it was not measured, where everything is slower."""
    measured = {("fp32", "off"): 1062.0, ("bf16", "off"): 4739.0, ("bf16", "default"): 6726.0}
    made = pl.DataFrame(
        [
            {
                "cell_id": f"{precision} {compiled} {checkpointing}",
                "workload": "vision/resnet50",
                "gpus": 1,
                "batch_per_gpu": 256,
                "global_batch": 256,
                "is_default": True,
                "throughput_per_s": rate * (0.7 if checkpointing == "on" else 1.0),
                "axis:workload.precision": precision,
                "axis:workload.compile": compiled,
                "axis:workload.checkpointing": checkpointing,
            }
            for (precision, compiled), rate in measured.items()
            for checkpointing in ("off", "on")
        ]
    )
    (figure,) = heat_figures(made, pl.DataFrame(schema=EFFECTS), "GPUs")
    assert figure.title == "workload.checkpointing against workload.compile, 1 GPU"
    ratios = {(row["x"], row["y"]): row["ratio"] for row in figure.datasets["tiles"]}
    assert ratios["off", "default"] / ratios["off", "off"] == pytest.approx(6726 / 4739)
    assert {row["cells"] for row in figure.datasets["tiles"]} == {1}
    alone = made.filter((pl.col("axis:workload.compile") == "off") == (pl.col("axis:workload.precision") == "fp32"))
    (figure,) = heat_figures(alone, pl.DataFrame(schema=EFFECTS), "GPUs")
    assert len(figure.datasets["tiles"]) == 4


def test_hostile_axis_names_stay_values(h200):
    cells = h200.conclusions.cells.rename({"axis:nccl.channels": "axis:a.b[0]:c'd", "axis:ddp.bucket_mib": 'axis:"x"'})
    drawn = list(heat_figures(cells, pl.DataFrame(schema=EFFECTS), "GPUs"))
    assert len(drawn) == 2
    assert re.findall(r'"field": "([^"]+)"', json.dumps(drawn[0].spec()))[0] in ("x", "y", "ratio", "text")
    assert "a.b[0]:c'd" in drawn[0].title


def test_the_knobs_with_most_values_come_first_and_size_is_no_knob(h200):
    knobs = ["nccl.channels", "ddp.bucket_mib", "nccl.algorithm", "nccl.p2p"]
    assert knob_axes(h200.conclusions.cells) == knobs
    targets = pl.Series("axis:target.value", [f"0.{place}" for place in range(h200.conclusions.cells.height)])
    assert knob_axes(h200.conclusions.cells.with_columns(targets)) == knobs, "when a run ends says nothing of its rate"


def test_no_default_no_ratio(h200):
    cells = h200.conclusions.cells.filter(~pl.col("is_default"))
    assert relative_to_default(cells, knob_axes(cells), {}).is_empty()
    assert list(heat_figures(cells, pl.DataFrame(schema=EFFECTS), "GPUs")) == []


def test_effects_are_percent_changes_and_unclear_ones_hollow():
    clear = {"axis": "nccl.algorithm", "value": "ring", "reference": "auto", "ratio": 1.02, "verdict": "faster"}
    unclear = {"axis": "workload.precision", "value": "fp32", "reference": "bf16", "ratio": 0.5, "verdict": "unclear"}
    unknown = {"axis": "nccl.p2p", "value": "disabled", "reference": "auto", "ratio": math.nan}
    rows = [{"gpus": 2, **row} for row in ({**clear, "ratio_low": 1.01, "ratio_high": 1.03}, unclear, unknown)]
    figure = effects_figure(pl.DataFrame(rows, schema=EFFECTS), "GPUs")
    first, second = figure.datasets["effects"]
    assert (first["change"], first["low"], first["clear"]) == (pytest.approx(2), pytest.approx(1), True)
    assert (second["label"], second["low"], second["clear"]) == ("workload.precision fp32 / bf16", None, False)
    assert "No bar" in figure.caption
    assert "cut" not in figure.caption
    wide = effects_figure(pl.DataFrame([{**rows[0], "ratio_high": 4.0}], schema=EFFECTS), "GPUs")
    assert "cut" in wide.caption
    assert effects_figure(pl.DataFrame(schema=EFFECTS), "GPUs") is None


def test_bandwidth_joins_cells_that_a_collective_cannot_tell_apart(h200):
    (figure,) = bandwidth_figures(h200.conclusions.bandwidth, h200.conclusions.cells, "GPUs", References())
    row = next(r for r in figure.datasets["told"] if r["series"] == "4 GPUs, defaults" and r["size"] == 512 * 2**20)
    assert row["cells"] == 3
    assert row["low"] <= row["busbw"] <= row["high"]
    assert row["busbw"] == pytest.approx(313 * 512 / 518, rel=0.02)


def test_of_many_bandwidth_series_the_default_the_best_and_the_worst_are_kept():
    rows = pl.DataFrame(
        {
            "series": ["2 GPUs, defaults", *(f"2 GPUs, {n} channels" for n in range(20))],
            "gpus": [2] * 21,
            "size_bytes": [1024] * 21,
            "busbw_gb_s": [5.5, *(float(n) for n in range(20))],
        }
    )
    kept = told_apart(rows)
    assert len(kept) == 8
    assert kept[:2] == ["2 GPUs, defaults", "2 GPUs, 19 channels"]
    assert kept[-1] == "2 GPUs, 0 channels"


def test_pictures_are_written(cpu_figures, tmp_path):
    paths = write_charts(cpu_figures[:1], tmp_path / "charts")
    assert [path.name for path in paths] == ["weak-throughput.png", "weak-throughput.svg"]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert LIGHT.series[0] in paths[1].read_text()


def test_pictures_replace_no_device_and_make_no_way(cpu_figures, tmp_path):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "deep" / "charts", tmp_path / "file", tmp_path / "file" / "charts"):
        with pytest.raises(BadInput, match="nothing was written"):
            write_charts(cpu_figures[:1], place)
    os.mkfifo(tmp_path / "weak-throughput.svg")
    with pytest.raises(BadInput, match="found a pipe"):
        write_charts(cpu_figures[:1], tmp_path)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_legend_never_has_less_than_one_column():
    assert legend_columns(("a" * 500,), 360) == 1
    assert legend_columns(("a", "b"), 720) > 2


def test_of_many_curves_that_are_all_default_the_best_and_the_worst_are_told_apart():
    rows = [
        {"series": f"batch {n} per GPU", "is_default": True, "gpus": gpus, "base_gpus": 1, "throughput_per_s": 9.0 * n}
        for n in range(9)
        for gpus in (1, 2)
    ]
    curve = curve_of("weak", pl.DataFrame(rows, schema=EFFICIENCY))
    assert curve.labels == [f"default (batch {n} per GPU)" for n in (8, 7, 6, 5, 0)]
    assert curve.others == 4
