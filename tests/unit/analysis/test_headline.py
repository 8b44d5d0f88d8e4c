"""The headline names which of several curves it speaks of, and never an interval that says nothing."""

import pytest
from made_trials import assert_sound, collectives_frame, made_cell, made_row, trials_frame, visits

from rtxscale.analysis.conclude import conclude_tables

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
    assert "weak efficiency 0.90 (0.90-0.90) for batch 128 per GPU, one of 2 curves" in text
    assert "ring" not in text


def test_other_curves_of_the_same_batch_are_counted():
    rows = []
    for precision in ("bf16", "fp32"):
        rows += curve(1, 64, 100.0, "weak", precision=precision) + curve(2, 64, 180.0, "weak", precision=precision)
    text = headline(rows, AXES | {"workload.precision": ["bf16", "fp32"]})
    assert "weak efficiency 0.90 (0.90-0.90), one of 2 curves, with bf16 and NCCL's" in text


def test_a_single_curve_is_not_counted():
    assert "curve" not in headline(curve(1, 64, 100.0, "weak") + curve(2, 64, 180.0, "weak"))


@pytest.mark.parametrize("noise", [1.5, 1e4, 1e200])
def test_an_interval_that_says_nothing_is_not_quoted(noise):
    rows = curve(1, 64, 100.0, "weak") + visits(made_cell(2, 64), 180.0 * noise, 180.0 / noise)
    text = headline(rows)
    assert "at 1.80x of one, weak efficiency 0.90 (too few visits for an interval), with" in text


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
