"""Only what was measured again, in sessions that selected nothing, is called a gain."""

import numpy as np
import polars as pl
import pytest
from made_trials import assert_sound, collectives_frame, made_cell, made_row, trials_frame, visits
from polars.testing import assert_frame_equal

from rtxscale.analysis.best import best_table
from rtxscale.analysis.cells import cell_table, replicates
from rtxscale.analysis.conclude import conclude_tables
from rtxscale.analysis.confirmed import confirmed_table, pairs_to_confirm
from rtxscale.analysis.counted import counted_trials, of_stage, settled_trials
from rtxscale.analysis.frames import empty
from rtxscale.analysis.tables import CONFIRMED as COLUMNS
from rtxscale.stats.compare import holm, paired_ratio

AXES = {"gpus": [1, 2], "nccl.algorithm": ["auto", "ring", "tree"], "nccl.channels": ["auto", 8]}
DEFAULT, RING, TREE = made_cell(2, 64), made_cell(2, 64, algorithm="ring"), made_cell(2, 64, algorithm="tree")
ALONE = made_cell(1, 64)


def concluded(rows, axes=AXES):
    conclusions = conclude_tables(trials_frame(rows), collectives_frame(), axes=axes)
    assert_sound(conclusions)
    return conclusions


def swept(ring=104.0, default=100.0, **more):
    """Two visits of one GPU, the default and ring."""
    rows = visits(ALONE, 50.0, 50.0) + visits(DEFAULT, default, default * 1.001, **more)
    return rows + visits(RING, ring, ring * 1.001, **more)


def again(cell, *throughputs, session="c2-{visit}", **columns):
    """Two repeats of each throughput, visit after visit, of the stage `confirm`."""
    return [
        made_row(
            cell, value, visit=visit, repeat=repeat, stage="confirm", session=session.format(visit=visit), **columns
        )
        for visit, value in enumerate(throughputs, start=1)
        for repeat in (1, 2)
    ]


RATIOS = [1.040, 1.042, 1.041, 1.043]
SESSIONS = [100.0, 140.0, 75.0, 90.0]
CONFIRMED = again(DEFAULT, *SESSIONS) + again(RING, *(s * r for s, r in zip(SESSIONS, RATIOS, strict=True)))


def test_the_confirmed_gain_comes_from_the_confirmation_alone_paired_within_its_sessions():
    table = concluded(swept(ring=110.0) + CONFIRMED).confirmed
    (row,) = table.to_dicts()
    right = paired_ratio(RATIOS, [1.0] * 4)
    assert (row["gpus"], row["curve"], row["visits"], row["label"]) == (2, "weak", 4, "gpus 2, ring")
    assert (row["cell_id"], row["default_cell_id"]) == (RING.cell_id, DEFAULT.cell_id)
    assert (1 + row["gain"], 1 + row["gain_low"], 1 + row["gain_high"]) == pytest.approx(
        tuple(float(value) for value in (right.ratio, right.low, right.high))
    )
    assert row["p_holm"] == pytest.approx(float(right.p_value))
    assert row["selected_gain"] == pytest.approx(0.1)
    assert row["verdict"] == "confirmed faster"


def test_only_a_confirmed_gain_is_headlined_as_one():
    before, after = concluded(swept()), concluded(swept() + CONFIRMED)
    assert before.headline.endswith(
        "best cell (ring) measured 4.0 % faster, unconfirmed; `rtxscale confirm RUN` settles it."
    )
    assert after.headline.endswith("defaults; ring is confirmed 4.1 % (3.9-4.4) faster than the default.")
    assert after.best["verdict"].to_list()[-1] == "confirmed faster"


@pytest.mark.parametrize(
    ("ratios", "verdict", "words"),
    [
        (
            [0.98, 0.981, 0.979],
            "confirmed slower",
            "ring, selected as the fastest, is confirmed 2.0 % (1.8-2.2) slower than the default.",
        ),
        (
            [1.01, 0.99, 1.0],
            "not confirmed",
            "is not confirmed: measured again, 0.0 % (-2.5 to +2.5) against the default.",
        ),
        (
            [1.05],
            "needs >= 2 visits",
            "ring, selected as the fastest, is unconfirmed: its confirmation needs >= 2 visits",
        ),
        (
            [1e3, 1e-3],
            "not confirmed",
            "is not confirmed: measured again, 0.0 % (interval wider than x10: more visits) against the default.",
        ),
    ],
)
def test_every_other_end_is_called_what_it_is(ratios, verdict, words):
    base = [100.0] * len(ratios)
    rows = again(DEFAULT, *base) + again(RING, *(100.0 * ratio for ratio in ratios))
    conclusions = concluded(swept() + rows)
    assert conclusions.confirmed["verdict"].to_list() == [verdict]
    assert words in conclusions.headline.replace("+0.0", "0.0")
    assert "confirmed faster" not in " ".join(conclusions.best["verdict"])


def test_rows_of_the_confirmation_change_nothing_that_the_sweep_says():
    slow = again(DEFAULT, *(s / 10 for s in SESSIONS)) + again(RING, *(s / 10 for s in SESSIONS))
    failed = [made_row(RING, None, visit=9, stage="confirm", outcome="hang")]
    before, after = concluded(swept()), concluded(swept() + slow + failed)
    for name in ("cells", "efficiency", "effects", "bandwidth"):
        assert_frame_equal(getattr(before, name), getattr(after, name))
    assert_frame_equal(before.best.drop("verdict"), after.best.drop("verdict"))
    assert before.confirmed.height == 0
    assert set(before.remarks) < set(after.remarks)
    (more,) = set(after.remarks) - set(before.remarks)
    assert more.startswith("1 of 17 trials of the confirmation did not end ok")


def test_cells_of_different_processes_are_paired_by_visit():
    disabled = made_cell(2, 64, p2p="disabled")
    sweep = visits(ALONE, 50.0, 50.0) + visits(DEFAULT, 100.0, 100.1) + visits(disabled, 104.0, 104.1)
    rows = again(DEFAULT, *SESSIONS, session="c-auto-{visit}")
    rows += again(disabled, *(s * r for s, r in zip(SESSIONS, RATIOS, strict=True)), session="c-off-{visit}")
    (row,) = concluded(sweep + rows, {"gpus": [1, 2], "nccl.p2p": ["auto", "disabled"]}).confirmed.to_dicts()
    assert (row["visits"], row["verdict"]) == (4, "confirmed faster")
    assert row["gain"] == pytest.approx(float(paired_ratio(RATIOS, [1.0] * 4).ratio) - 1)


def test_holm_covers_the_gpu_counts_and_a_pair_on_two_curves_counts_once():
    rows, raw = visits(ALONE, 50.0, 50.0, study="both"), []
    for gpus, ratios in ((2, [1.010, 1.012, 1.009]), (4, [1.02, 1.05, 1.03])):
        for per_gpu in (64, 64 // gpus):
            rows += visits(made_cell(gpus, per_gpu), 100.0, 100.1, study="both")
        ring, default = made_cell(gpus, 64, algorithm="ring"), made_cell(gpus, 64)
        rows += visits(ring, 104.0, 104.1, study="both")
        rows += again(default, 100.0, 100.0, 100.0, session=f"c{gpus}-{{visit}}", study="both")
        rows += again(ring, *(100.0 * r for r in ratios), session=f"c{gpus}-{{visit}}", study="both")
        raw.append(float(paired_ratio(ratios, [1.0] * 3).p_value))
    table = concluded(rows, AXES | {"gpus": [1, 2, 4]}).confirmed
    found = dict(table.select("gpus", "p_holm").iter_rows())
    assert [found[2], found[4]] == pytest.approx(holm(raw).tolist())


def test_the_selection_stays_when_the_best_changes_and_that_is_said():
    rows = swept() + CONFIRMED + visits(TREE, 120.0, 120.1)
    conclusions = concluded(rows)
    assert conclusions.best.filter(pl.col("gpus") == 2)["label"].to_list() == ["gpus 2, tree"]
    assert conclusions.best["verdict"].to_list()[-1] == "unconfirmed: another cell was confirmed"
    assert conclusions.confirmed["label"].to_list() == ["gpus 2, ring"]
    assert "ring is confirmed 4.1 %" in conclusions.headline
    assert any("Confirmed is (gpus 2, ring)" in text and "(gpus 2, tree)" in text for text in conclusions.remarks)
    (pair,) = pairs_to_confirm(conclusions.best, conclusions.confirmed)
    assert pair == {"cell_id": RING.cell_id, "default_cell_id": DEFAULT.cell_id, "label": "gpus 2, ring"}


def test_a_confirmation_that_has_only_failed_so_far_holds_its_selection_too():
    failed = [made_row(RING, None, stage="confirm", outcome="crashed")]
    conclusions = concluded(swept() + failed + visits(TREE, 120.0, 120.1))
    assert conclusions.confirmed.select("label", "visits", "gain", "verdict").rows() == [
        ("gpus 2, ring", 0, None, "needs >= 2 visits")
    ]


def test_what_is_to_be_confirmed_is_every_best_cell_that_is_not_the_default():
    four = made_cell(4, 64), made_cell(4, 64, algorithm="ring")
    eight = made_cell(8, 64), made_cell(8, 64, algorithm="ring")
    rows = swept() + visits(four[0], 200.0, 200.0) + visits(four[1], 190.0, 190.0)
    rows += [made_row(eight[0], 380.0), made_row(eight[1], 381.0)]
    conclusions = concluded(rows, AXES | {"gpus": [1, 2, 4, 8]})
    pairs = pairs_to_confirm(conclusions.best, conclusions.confirmed)
    assert [(pair["cell_id"], pair["default_cell_id"]) for pair in pairs] == [
        (RING.cell_id, DEFAULT.cell_id),
        (eight[1].cell_id, eight[0].cell_id),
    ]


def test_nothing_is_to_be_confirmed_without_a_default_or_without_rows():
    for rows in ([], visits(RING, 100.0, 101.0)):
        conclusions = concluded(rows)
        assert pairs_to_confirm(conclusions.best, conclusions.confirmed) == []


def test_without_a_curve_the_confirmed_gain_is_still_said():
    sweep = visits(DEFAULT, 100.0, 100.1) + visits(RING, 104.0, 104.1)
    text = concluded(sweep + CONFIRMED).headline
    assert text.startswith("No efficiency yet")
    assert text.endswith("run 1 GPU as the base; at 2 GPUs ring is confirmed 4.1 % (3.9-4.4) faster than the default.")


CELLS = [made_cell(2, 64, algorithm=a, channels=c) for a in ("auto", "ring", "tree") for c in ("auto", *range(1, 12))]
SWEPT = trials_frame([row for cell in CELLS for row in visits(cell, 1.0, 1.0)])
SWEPT_SESSION = SWEPT["visit"].to_numpy() - 1


def simulated(chance, visits_again=4, effect=0.0):
    """Gains and verdict of one run of 36 cells that are equal but for `effect` of all that are not the default.

    A session has its own level (3 %), and each cell in it its own (1 %): what repeats within a session do not remove.
    """

    def measured(sessions, cells):
        level = chance.normal(0, 0.03, sessions.max() + 1)[sessions]
        return 100.0 * np.exp(level + chance.normal(0, 0.01, cells))

    throughput = measured(SWEPT_SESSION, SWEPT.height) * np.where(SWEPT["cell_id"] == CELLS[0].cell_id, 1, 1 + effect)
    counted = counted_trials(settled_trials(SWEPT.with_columns(throughput_per_s=throughput)))
    reps = replicates(counted)
    cells = cell_table(counted, reps, AXES).frame
    best = best_table(cells, reps)
    pairs = pairs_to_confirm(best, empty(COLUMNS))
    if not pairs:
        return 0.0, None, "default"
    ids = [pairs[0]["cell_id"], pairs[0]["default_cell_id"]]
    own = SWEPT.filter(pl.col("cell_id").is_in(ids) & (pl.col("visit") == 1))
    levels = measured(np.repeat(np.arange(visits_again), 2), 2 * visits_again)
    confirm = pl.concat(
        own.with_columns(
            visit=pl.lit(visit, pl.Int64),
            repeat=pl.lit(repeat, pl.Int64),
            stage=pl.lit("confirm"),
            session_id=pl.lit(f"c{visit}"),
            trial_id=pl.format("{}-{}-{}", "cell_id", pl.lit(visit), pl.lit(repeat)),
            throughput_per_s=pl.Series(
                levels[2 * visit - 2 : 2 * visit]
                * np.where(own["cell_id"] == CELLS[0].cell_id, 1, 1 + effect)
                * np.exp(chance.normal(0, 0.002, 2))
            ),
        )
        for visit in range(1, visits_again + 1)
        for repeat in (1, 2)
    )
    (row,) = confirmed_table(of_stage(confirm, "confirm"), cells, reps, best).to_dicts()
    return row["selected_gain"], row["gain"], row["verdict"]


def test_of_36_equal_cells_the_selected_gain_is_too_high_and_the_confirmed_one_is_not():
    chance = np.random.default_rng(11)
    runs = [simulated(chance) for _ in range(200)]
    selected = np.array([run[0] for run in runs])
    gains = np.array([run[1] for run in runs if run[1] is not None])
    error = gains.std(ddof=1) / np.sqrt(gains.size)
    print(f"selected {selected.mean():.4f}, confirmed {gains.mean():.4f} +- {error:.4f}, of {gains.size}")
    assert selected.mean() > 0.01
    assert abs(gains.mean()) < 3 * error
    assert error < 0.001
    verdicts = [run[2] for run in runs]
    assert verdicts.count("confirmed faster") <= 0.05 * len(runs)
    assert verdicts.count("confirmed faster") + verdicts.count("confirmed slower") > 0


def test_a_gain_that_is_there_is_confirmed():
    chance = np.random.default_rng(12)
    runs = [simulated(chance, effect=0.05) for _ in range(20)]
    assert [run[2] for run in runs].count("confirmed faster") >= 16
