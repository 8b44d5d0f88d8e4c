"""What one card gains over another, against their documented peaks and memory bandwidths."""

import pytest
from made_trials import collectives_frame, made_cell, trials_frame, visits

from rtxscale.analysis.compare import compared_cells, flat_settings, side_of
from rtxscale.analysis.sanity import sanity_remarks
from rtxscale.analysis.tables import SANITY
from rtxscale.analysis.two_cards import card_signals

CARDS = {
    "4090": "NVIDIA GeForce RTX 4090",
    "5090": "NVIDIA GeForce RTX 5090",
    "other": "NVIDIA RTX 6000 Ada Generation",
}
PEAK, BANDWIDTH = 209.5 / 165.2, 1792 / 1008


def side(card, speeds, **cell):
    rows = [
        row
        for (gpus, model), values in speeds.items()
        for row in visits(made_cell(gpus, 256, model=model, **cell), *values, device_names=[CARDS[card]])
    ]
    return side_of(trials_frame(rows), collectives_frame(), {"gpus": [1, 2]})


def signals(a, b):
    frame = card_signals(compared_cells(a, b), (a.cells.frame, b.cells.frame), flat_settings(a.cells))
    assert dict(frame.schema) == SANITY
    return frame


def old(**cell):
    return side("4090", {(1, "resnet50"): [1000.0, 1001.0, 999.0], (2, "resnet50"): [1500.0, 1501.0, 1499.0]}, **cell)


@pytest.mark.parametrize(("gain", "status"), [(1.44, "as expected"), (1.10, "outside"), (2.0, "outside")])
def test_a_gain_lies_between_the_ratios_of_peaks_and_of_memory_bandwidths(gain, status):
    values = [1000 * gain, 1001 * gain, 999 * gain]
    found = signals(old(), side("5090", {(1, "resnet50"): values, (2, "resnet50"): values}))
    one, average = found.to_dicts()
    assert (one["rule"], one["gpus"], one["status"]) == ("card against card", 1, status)
    assert (one["expected_low"], one["expected_high"]) == pytest.approx((PEAK, BANDWIDTH))
    assert one["found"] == pytest.approx(gain)
    assert (average["status"], average["found"]) == ("context", pytest.approx(gain))
    assert "where a lab found 1.44" in average["words"]
    told = sanity_remarks(found)
    assert bool(told) == (status == "outside")
    if told:
        assert told[0].startswith(
            f"Outside what is expected (card against card): RTX 5090 over RTX 4090 {gain:.2f} in ("
        )


def test_the_same_holds_the_other_way_round():
    faster = side("5090", {(1, "resnet50"): [1440.0, 1441.0, 1439.0]})
    one, average = signals(faster, side("4090", {(1, "resnet50"): [1000.0, 1001.0, 999.0]})).to_dicts()
    assert (one["expected_low"], one["expected_high"]) == pytest.approx((1 / BANDWIDTH, 1 / PEAK))
    assert one["status"] == "as expected"
    assert average["found"] == pytest.approx(1.44)


@pytest.mark.parametrize(("swin", "status"), [(1.6, "as expected"), (1.3, "outside")])
def test_transformers_gain_more_than_resnet50(swin, status):
    models = ("resnet50", "swin_base_patch4_window7_224")
    slow = side("4090", {(1, model): [100.0, 100.1] for model in models})
    fast = side("5090", {(1, models[0]): [140.0, 140.1], (1, models[1]): [100 * swin, 100.1 * swin]})
    *_, last = signals(slow, fast).to_dicts()
    assert (last["rule"], last["status"]) == ("RTX 5090 over RTX 4090 by model", status)


def test_models_are_held_against_each_other_in_equal_settings_only():
    slow = side("4090", {(1, "resnet50"): [100.0, 100.1], (1, "swin_base_patch4_window7_224"): [100.0, 100.1]})
    fast = side("5090", {(1, "resnet50"): [140.0, 140.1], (1, "swin_base_patch4_window7_224"): [130.0, 130.1]})
    assert signals(slow, fast)["rule"].to_list()[-1] == "RTX 5090 over RTX 4090 by model"
    mixed = [
        side_of(
            trials_frame(
                [
                    row
                    for model, precision in (("resnet50", "fp16"), ("swin_base_patch4_window7_224", "bf16"))
                    for row in visits(
                        made_cell(1, 256, model=model, precision=precision), *values, device_names=[CARDS[card]]
                    )
                ]
            ),
            collectives_frame(),
            {"gpus": [1]},
        )
        for card, values in (("4090", [100.0, 100.1]), ("5090", [140.0, 140.1]))
    ]
    assert signals(*mixed)["rule"].to_list()[-1] == "RTX 5090 over RTX 4090"


def test_one_card_unknown_facts_or_no_gpu_in_common_say_nothing():
    values = {(1, "resnet50"): [1400.0, 1401.0]}
    assert signals(old(), side("4090", values)).is_empty()
    assert signals(old(), side("other", values)).is_empty()  # no documented peak
    assert signals(old(), side("5090", {(2, "resnet50"): [1400.0, 1401.0]})).is_empty()


def test_fp32_is_held_against_the_peaks_of_fp32():
    values = {(1, "resnet50"): [1400.0, 1401.0]}
    (one,) = signals(old(precision="fp32"), side("5090", values, precision="fp32")).to_dicts()
    assert one["expected_low"] == pytest.approx(104.8 / 82.6)
