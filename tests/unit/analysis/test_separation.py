"""The remark on how many more visits would tell the two fastest cells apart."""

from made_trials import collectives_frame, made_cell, trials_frame, visits

from rtxscale.analysis.conclude import conclude_tables

AXES = {"gpus": [1, 2], "nccl.algorithm": ["auto", "ring"]}


def remarks(first, second):
    rows = visits(made_cell(2, 64), *first) + visits(made_cell(2, 64, algorithm="ring"), *second)
    found = conclude_tables(trials_frame(rows), collectives_frame(), axes=AXES).remarks
    return [remark for remark in found if "would probably tell" in remark or "would be needed to tell" in remark]


def test_a_small_difference_names_the_visits_that_it_would_take():
    # log ratios 2 % and 0 %: mean 1 %, standard deviation 1.41 %; 18 sessions by n = (2.110 + 0.863)^2 x 2
    (remark,) = remarks([100.0, 100.0], [102.02, 100.0])
    assert remark.startswith("About 16 more visits would probably tell (gpus 2, ring) from (gpus 2, defaults)")
    assert remark.endswith("over 2 visits: a rough estimate.")


def test_what_is_separable_needs_no_more():
    assert remarks([100.0, 100.1, 99.9], [105.0, 105.1, 104.9]) == []


def test_equal_cells_are_told_to_be_so():
    (remark,) = remarks([100.0, 101.0, 99.0], [101.0, 100.0, 99.05])
    assert remark.startswith("More than 100 visits")
    assert "take either" in remark


def test_one_visit_says_nothing():
    assert remarks([100.0], [101.0]) == []


def test_the_same_cells_on_both_curves_are_spoken_of_once():
    """A cell of two workers ends the weak and the strong curve alike when both hold its batch."""
    cells = [made_cell(1, 64), made_cell(1, 128), made_cell(2, 64), made_cell(2, 64, algorithm="ring")]
    rates = ([60.0, 61.0], [62.0, 61.0], [100.0, 100.0], [102.02, 100.0])
    rows = [row for cell, rate in zip(cells, rates, strict=True) for row in visits(cell, *rate, study="both")]
    found = conclude_tables(trials_frame(rows), collectives_frame(), axes=AXES)
    assert set(found.efficiency["curve"]) == {"weak", "strong"}
    assert len([remark for remark in found.remarks if "would probably tell" in remark]) == 1
