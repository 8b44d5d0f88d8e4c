"""The headline names which of several curves it speaks of, and never an interval that says nothing."""

import math

import pytest
from made_trials import assert_sound, collectives_frame, made_cell, made_row, trials_frame, visits

from rtxscale.analysis.conclude import conclude_tables
from rtxscale.analysis.leading import leading_points
from rtxscale.report.scaling_curves import curve_of
from rtxscale.report.tables.conclusions import outcomes_table, scaling_tables

AXES = {"gpus": [1, 2], "nccl.algorithm": ["auto", "ring"]}


def headline(rows, axes=AXES):
    conclusions = conclude_tables(trials_frame(rows), collectives_frame(), axes=axes)
    assert_sound(conclusions)
    return conclusions.headline


def curve(gpus, per_gpu, value, study, **settings):
    return visits(made_cell(gpus, per_gpu, **settings), value, value, study=study)


def test_of_several_strong_curves_the_largest_batch_is_headlined_and_named():
    rows = []
    for batch, share in ((8, 0.7), (16, 0.8)):
        rows += curve(1, batch, 100.0, "strong") + curve(2, batch // 2, 200.0 * share, "strong")
    text = headline(rows, AXES | {"workload.global_batch": [8, 16]})
    assert (
        "at 1.60x (1.60-1.60) of one, strong efficiency 0.80 (0.80-0.80) for batch 16 in all, one of 2 curves" in text
    )
    assert text.endswith("with NCCL's and DDP's defaults.")


def test_of_several_weak_curves_the_largest_batch_is_headlined_with_its_own_winner():
    rows = []
    for batch, share in ((32, 0.8), (128, 0.9)):
        rows += curve(1, batch, 100.0, "weak") + curve(2, batch, 200.0 * share, "weak")
    rows += curve(2, 32, 300.0, "weak", algorithm="ring")
    text = headline(rows, AXES | {"workload.batch_per_gpu": [32, 128]})
    assert "weak efficiency 0.90 (0.90-0.90) for batch 128 per GPU, one of 2 default curves" in text
    assert "ring" not in text


def test_other_curves_of_the_same_batch_are_counted():
    rows = []
    for precision in ("bf16", "fp32"):
        rows += curve(1, 64, 100.0, "weak", precision=precision) + curve(2, 64, 180.0, "weak", precision=precision)
    text = headline(rows, AXES | {"workload.precision": ["bf16", "fp32"]})
    assert "weak efficiency 0.90 (0.90-0.90), one of 2 curves, with bf16 and NCCL's" in text


def test_a_second_curve_over_another_base_names_it():
    rows = curve(1, 16, 100.0, "both") + curve(2, 16, 190.0, "both") + curve(2, 32, 200.0, "both")
    rows += curve(4, 16, 360.0, "both")
    text = headline(rows, {"gpus": [1, 2, 4], "workload.batch_per_gpu": [16, 32]})
    assert "at 3.60x (3.60-3.60) of one, weak efficiency 0.90" in text
    assert "strong efficiency 0.90 (0.90-0.90) at 1.80x of 2, with" in text


def test_a_single_curve_is_not_counted():
    assert "curve" not in headline(curve(1, 64, 100.0, "weak") + curve(2, 64, 180.0, "weak"))


@pytest.mark.parametrize("noise", [1.5, 1e4, 1e10])
def test_an_interval_that_says_nothing_is_not_quoted(noise):
    rows = curve(1, 64, 100.0, "weak") + visits(made_cell(2, 64), 180.0 * noise, 180.0 / noise)
    text = headline(rows)
    assert "at 1.80x of one, weak efficiency 0.90 (interval wider than x10: more visits), with" in text


def test_a_measured_lead_that_is_not_separable_has_its_sign():
    rows = curve(1, 64, 50.0, "weak") + visits(made_cell(2, 64), 100.0, 120.0)
    rows += visits(made_cell(2, 64, algorithm="ring"), 121.0, 120.0)
    assert headline(rows).endswith("no setting is separable from the defaults (fastest measured: ring, +10.0 %).")


def test_one_visit_of_the_winner_is_unconfirmed():
    rows = [made_row(made_cell(1, 64), 50.0), made_row(made_cell(2, 64), 100.0)]
    rows.append(made_row(made_cell(2, 64, algorithm="ring"), 105.0))
    assert headline(rows).endswith(
        "; fastest measured: ring, 5.0 % over the default, unconfirmed; `rtxscale confirm RUN` settles it."
    )


def concluded(rows, axes=AXES, **more):
    return conclude_tables(trials_frame(rows), collectives_frame(), axes=axes, **more)


def test_without_the_default_the_sentence_speaks_of_the_curve_that_tables_and_charts_lead_with():
    """The fastest series leads everywhere, also where another has the larger name, place or batch."""
    rows = curve(1, 64, 100.0, "weak") + curve(1, 128, 100.0, "weak")
    rows += curve(2, 128, 150.0, "weak", channels=1) + curve(2, 64, 190.0, "weak", algorithm="tree")
    rows += curve(2, 64, 170.0, "weak", algorithm="ring")
    rows += [made_row(made_cell(2, 64), None, outcome="crashed")]
    found = concluded(rows)
    assert "at 1.90x (1.90-1.90) of one" in found.headline
    assert "with tree" in found.headline
    assert "the default settings have no result, this is the fastest of the others" in found.headline
    (table,) = scaling_tables(found, "GPUs")
    assert "tree" in table.title
    curves = curve_of("weak", found.efficiency)
    assert "tree" in curves.labels[0]
    (point,) = leading_points(found.cells, found.efficiency)
    assert "tree" in point["series"]


def test_a_default_that_fails_at_the_largest_count_is_said_to():
    rows = curve(1, 64, 100.0, "weak") + curve(2, 64, 190.0, "weak") + curve(4, 64, 300.0, "weak", algorithm="ring")
    text = concluded(rows).headline
    assert text.startswith("2x NVIDIA H200")
    assert "the default settings have no result at 4 GPUs" in text
    assert "no result" not in headline(curve(1, 64, 100.0, "weak") + curve(2, 64, 190.0, "weak"))


@pytest.mark.parametrize(
    ("asked", "advice", "never"),
    [
        (1, "raise visits to 2 or more", "run the same command again"),
        (2, "run the same command again to finish the sweep", "raise visits"),
        (None, "run the sweep again to finish it, or raise visits to 2 or more", "same command"),
    ],
)
def test_advice_on_single_visits_asks_only_for_what_the_sweep_does_not_ask(asked, advice, never):
    found = concluded([made_row(made_cell(1, 64), 100.0), made_row(made_cell(2, 64), 190.0)], visits=asked)
    (remark,) = [remark for remark in found.remarks if "one visit only" in remark]
    for text in (found.headline, remark.lower()):
        assert advice in text
        assert never not in text


def test_cpu_workers_are_no_gpus_in_the_headline():
    text = headline([made_row(made_cell(1, 64), 100.0, device="cpu")])
    assert "CPU worker counts with a result: 1" in text
    assert "GPU" not in text
    lonely = [made_row(made_cell(gpus, batch), 100.0, device="cpu") for gpus, batch in ((1, 64), (2, 32), (4, 8))]
    for rows in (lonely, lonely[:1], lonely[1:]):
        remarks = " ".join(concluded(rows).remarks).replace("per GPU", "")  # that is in a cell's label
        assert "CPU worker" in remarks
        assert "GPU" not in remarks


@pytest.mark.parametrize(
    ("columns", "reason"),
    [
        ({"throughput_per_s": 0.0}, "whose throughput is 0"),
        ({"throughput_per_s": -5.0}, "whose throughput is negative"),
        ({"throughput_per_s": math.inf}, "whose throughput is not a finite number"),
        ({"throughput_per_s": 1e308}, "whose throughput is above 1e+18 per second, which no machine reaches"),
        ({"throughput_per_s": 1e-320}, "whose throughput is below 1e-09 per second, one unit of work in 30 years"),
        ({"loss_last": math.nan}, "whose loss is not a finite number"),
        ({"cell_id": None}, "without the name of a cell"),
    ],
)
def test_what_does_not_count_is_called_what_it_is(columns, reason):
    good = curve(1, 64, 100.0, "weak")
    found = concluded([*good, made_row(made_cell(2, 64), 190.0) | columns])
    (remark,) = [remark for remark in found.remarks if "ok trial is not counted" in remark]
    assert remark == f"1 ok trial is not counted: 1 {reason}."
    assert " inf " not in found.headline
    assert not any("not counted" in remark for remark in concluded(good).remarks)


def test_attempts_that_were_tried_again_are_kept_with_their_reasons():
    first = made_row(made_cell(2, 64), None, outcome="unsteady", message="halves differ by 9 %")
    found = concluded([*curve(1, 64, 100.0, "weak"), first, made_row(made_cell(2, 64), 190.0, attempt=2)])
    assert found.retries.select("outcome", "trials", "message").rows() == [("unsteady", 1, "halves differ by 9 %")]
    assert found.outcomes.select("outcome", "trials").rows() == [("ok", 3)]
    table = outcomes_table(found)
    assert [row[:2] for row in table.rows] == [("ok", "3"), ("unsteady, then tried again", "1 attempt")]
    assert concluded(curve(1, 64, 100.0, "weak")).retries.is_empty()


def imported(rows):
    return [row | {"source": "imported: t.csv (sha256 0)"} for row in rows]


def test_an_import_is_spoken_of_as_one():
    rows = [made_row(made_cell(1, 64), 100.0), made_row(made_cell(2, 64), 190.0)]
    ring = made_row(made_cell(2, 64, algorithm="ring"), 195.0)
    text = headline(imported(rows), {"gpus": [1, 2]})
    assert "with settings not told; one visit gives no interval, import several independent sessions." in text
    text = headline(imported([*rows, ring]), AXES)
    assert "with nccl.algorithm on auto; one visit" in text
    assert "unconfirmed; measuring both again, in fresh sessions, would settle it." in text
    assert "import a second GPU count" in headline(imported(rows[:1]))
    assert "the only trial, from t.csv" in " ".join(concluded(imported(rows[:1])).remarks)
    assert "2 of 3 trials, from t.csv" in " ".join(concluded([*imported(rows), ring]).remarks)


# Several models


def of_model(model, gpus, value, *, compiled="off", **settings):
    cell = made_cell(gpus, 64, model=model, **settings)
    cell = cell.model_copy(update={"workload": cell.workload.model_copy(update={"compile": compiled})})
    return visits(cell, value, value, study="weak")


MODELS = AXES | {"workload.model": ["tall", "wide"], "workload.compile": ["off", "default"]}


def test_between_models_the_rate_does_not_choose():
    """The first model of the cells leads sentence and tables, though the other does more work per second."""
    rows = of_model("tall", 1, 10.0) + of_model("tall", 2, 18.0) + of_model("tall", 2, 19.0, algorithm="ring")
    rows += of_model("tall", 1, 12.0, compiled="default") + of_model("tall", 2, 22.0, compiled="default")
    rows += of_model("wide", 1, 100.0) + of_model("wide", 2, 120.0)
    found = concluded(rows, MODELS)
    assert "run vision/tall at 1.83x" in found.headline, "within one model the rate chooses: compiled"
    assert "one of 3 default curves, with torch.compile and NCCL's and DDP's defaults" in found.headline
    first, *_ = scaling_tables(found, "GPUs")
    assert "model tall, torch.compile" in first.title
    assert "tall" in curve_of("weak", found.efficiency, found.cells).labels[0]


def test_without_a_default_too_the_first_model_leads_sentence_tables_and_charts():
    rows = of_model("tall", 1, 10.0) + of_model("tall", 2, 18.0, algorithm="ring")
    rows += of_model("wide", 1, 100.0) + of_model("wide", 2, 150.0, algorithm="ring")
    found = concluded(rows, MODELS)
    assert "run vision/tall at 1.80x" in found.headline
    (table,) = scaling_tables(found, "GPUs")
    assert "tall" in table.title
    assert "tall" in curve_of("weak", found.efficiency, found.cells).labels[0]


def test_a_model_is_named_once_and_no_mode_of_compilation_reads_like_the_default_cell():
    rows = of_model("tall", 2, 18.0, compiled="default") + of_model("wide", 2, 150.0)
    text = headline([row | {"device": "cpu"} for row in rows], MODELS)
    assert "2 CPU workers: vision/tall with torch.compile at" in text
    assert "model tall" not in text
    rows += of_model("tall", 1, 10.0, compiled="default")
    text = headline([row | {"device": "cpu"} for row in rows], MODELS)
    assert text.endswith("with torch.compile and default communication.")


def test_models_are_in_the_order_of_the_sweep():
    rows = of_model("tall", 1, 100.0) + of_model("tall", 2, 180.0) + of_model("wide", 1, 10.0)
    assert "run vision/tall" in headline(rows + of_model("wide", 2, 18.0), MODELS)
    assert "run vision/wide" in headline(
        rows + of_model("wide", 2, 18.0), MODELS | {"workload.model": ["wide", "tall"]}
    )
    alone = of_model("tall", 2, 180.0) + of_model("wide", 2, 18.0)
    assert ": vision/wide with no compile at 18" in headline(alone, MODELS | {"workload.model": ["wide", "tall"]})
