"""What would fit after a trial has run out of memory."""

import re
from dataclasses import replace

import pytest

from rtxscale.models.memory import memory_of
from rtxscale.plan.feasibility import MARGIN, USABLE, memory_shortage, training_of, what_would_fit
from rtxscale.spec.cell import Cell

RTX_5090_MIB = 32607
H200_MIB = 143771
MIB = 2**20


def language(gpus=1, **fields):
    workload = {"kind": "language", "size": "1b", "context": 2048, "batch_per_gpu": 8, **fields}
    return Cell.model_validate({"gpus": gpus, "workload": workload})


def vision(batch, **fields):
    return Cell.model_validate({"workload": {"kind": "vision", "batch_per_gpu": batch, **fields}})


def peak_mib(cell, **changes):
    return memory_of(replace(training_of(cell.workload, cell.gpus), **changes)).peak / MIB


def test_the_largest_batch_that_fits_by_the_model_comes_first():
    cell = language(batch_per_gpu=64)
    said = what_would_fit(cell, H200_MIB, {})
    batch = int(re.search(r"would fit with batch_per_gpu (\d+) instead of 64", said).group(1))
    assert peak_mib(cell, sequences=batch) <= USABLE * H200_MIB < peak_mib(cell, sequences=batch + 1)


def test_checkpointing_and_more_gpus_are_named_where_they_help():
    cell = language(batch_per_gpu=1, context=8192)
    assert peak_mib(cell) > RTX_5090_MIB
    said = what_would_fit(cell, RTX_5090_MIB, {})
    assert "batch_per_gpu" not in said  # it is one already
    assert "would fit with checkpointing" in said
    assert peak_mib(cell, checkpointing=True) <= USABLE * RTX_5090_MIB


def test_sharding_over_the_same_gpus_is_a_smaller_change_than_more_of_them():
    cell = language(gpus=8, size="7b", batch_per_gpu=1, context=512)
    said = what_would_fit(cell, RTX_5090_MIB, {})
    assert "would fit with parallel fsdp" in said
    assert peak_mib(cell, parallel="fsdp") <= USABLE * RTX_5090_MIB
    assert re.search(
        r"would fit with \d+ GPUs with fsdp", what_would_fit(cell.model_copy(update={"gpus": 1}), RTX_5090_MIB, {})
    )


def test_zero2_can_let_go_of_its_weights_on_the_same_gpus():
    cell = language(gpus=8, size="13b", batch_per_gpu=1, context=2048, checkpointing="on", parallel="zero2")
    assert peak_mib(cell) > USABLE * RTX_5090_MIB >= peak_mib(cell, parallel="zero3")
    assert "would fit with parallel fsdp" in what_would_fit(cell, RTX_5090_MIB, {})


def test_what_fits_without_sharding_is_not_told_to_shard():
    lora = language(gpus=2, size="7b", batch_per_gpu=1, context=8192, tuning="lora")
    assert memory_shortage(lora, RTX_5090_MIB).endswith("has 32; fits from 1 GPU with checkpointing")


def test_what_no_single_change_makes_fit_is_said():
    cell = language(gpus=2, size="13b", batch_per_gpu=1, context=4096, parallel="fsdp")
    said = what_would_fit(cell, RTX_5090_MIB, {})
    assert "and fits from 7 GPUs with fsdp and checkpointing" in said
    assert peak_mib(cell, world=7, checkpointing=True) <= USABLE * RTX_5090_MIB
    assert "does not fit at this batch, however sharded" in what_would_fit(cell, 8000, {})


def test_where_the_model_sees_room_the_advice_still_asks_for_less():
    """The trial did run out of memory: the model, a lower figure, must not recommend what has just failed."""
    cell = language(size="125m", batch_per_gpu=32)
    assert peak_mib(cell) < USABLE * H200_MIB
    batch = int(re.search(r"batch_per_gpu (\d+) instead of 32", what_would_fit(cell, H200_MIB, {})).group(1))
    assert peak_mib(cell, sequences=batch) <= USABLE * peak_mib(cell)


def test_a_measured_smaller_batch_counts_for_more_than_the_model():
    # 64 images took 10,000 MiB: of 0.9 * 32,607 = 29,346 MiB at most 64 * 2.9346 = 187.8 images.
    said = what_would_fit(vision(256), RTX_5090_MIB, {64: 10_000.0, 32: 6_000.0, 512: 1.0})
    assert said == "batch_per_gpu 187 would fit (64 took 10,000 MiB of 32,607)"
    assert "by the memory model" not in what_would_fit(language(), RTX_5090_MIB, {4: 20_000.0})


@pytest.mark.parametrize("peak", [31_000.0, 32_000.0])
def test_a_batch_that_ended_well_fits_however_tight_it_was(peak):
    assert what_would_fit(vision(128), RTX_5090_MIB, {120: peak}).startswith("batch_per_gpu 120 would fit")


def test_the_advice_is_below_the_batch_that_failed():
    assert what_would_fit(vision(65), RTX_5090_MIB, {64: 100.0}).startswith("batch_per_gpu 64 would fit")


def test_what_is_not_known_is_said():
    assert what_would_fit(vision(256, model="unheard_of"), RTX_5090_MIB, {}) == (
        "not known what would fit; try batch_per_gpu 128: activations scale with it"
    )
    assert "a smaller image_size or model" in what_would_fit(vision(1), None, {})
    assert "a smaller context or model" in what_would_fit(language(batch_per_gpu=1), None, {})
    collectives = Cell.model_validate({"gpus": 2, "workload": {"kind": "collectives", "sizes_mib": [1, 4096]}})
    assert what_would_fit(collectives, RTX_5090_MIB, {}) == "not known what would fit; try sizes_mib up to 2048"


def test_without_a_gpu_only_what_was_measured_is_known():
    assert what_would_fit(vision(8), None, {2: 100.0}) == "batch_per_gpu 2 fits"


def test_of_a_decoder_of_ones_own_nothing_is_known():
    assert training_of(language(path="mine").workload, 1) is None
    assert memory_shortage(language(path="mine", batch_per_gpu=4096), RTX_5090_MIB) is None


def test_images_are_refused_with_the_batch_that_fits():
    said = memory_shortage(vision(2048), RTX_5090_MIB)
    assert re.fullmatch(r"needs about 86 GiB per GPU, has 32; would fit with batch_per_gpu \d+ instead of 2048", said)
    batch = int(re.search(r"(\d+) instead", said).group(1))
    needs = [training_of(vision(size).workload, 1).peak for size in (batch, batch + 1)]
    assert needs[0] <= USABLE * RTX_5090_MIB * MIB < needs[1]
    assert memory_shortage(vision(512), RTX_5090_MIB) is None
    assert memory_shortage(vision(2048, model="unheard_of"), RTX_5090_MIB) is None


def test_a_compiled_model_is_refused_for_its_states_alone():
    assert memory_shortage(vision(2048, compile="default"), RTX_5090_MIB) is None
    large = {"model": "vit_large_patch16_224", "optimizer": "adamw"}
    assert memory_shortage(vision(1, compile="default", **large), 4000).startswith("needs about 6 GiB per GPU, has 4")


def test_the_unet_is_refused_with_the_gpus_it_fits_on():
    def unet(gpus, **fields):
        workload = {"kind": "diffusion", "batch_per_gpu": 1, **fields}
        return Cell.model_validate({"gpus": gpus, "workload": workload})

    assert memory_shortage(unet(1), RTX_5090_MIB) == ("needs about 42 GiB per GPU, has 32; fits from 2 GPUs with fsdp")
    assert memory_shortage(unet(2, parallel="fsdp", checkpointing="on"), RTX_5090_MIB) is None
    said = what_would_fit(unet(1, batch_per_gpu=12), H200_MIB, {})
    assert "would fit with batch_per_gpu 10 instead of 12, or checkpointing, or " in said


def test_what_ran_out_of_memory_by_the_counts_gets_a_batch():
    said = what_would_fit(vision(1024), RTX_5090_MIB, {})
    assert re.search(r"it needs at least 43\.\d GiB and would fit with batch_per_gpu \d+ instead of 1024", said)


def test_a_cell_is_refused_from_the_margin_on_and_both_numbers_are_told_apart():
    cell = language(batch_per_gpu=1, context=8192)
    needs = peak_mib(cell)
    assert memory_shortage(cell, round(1.001 * needs / MARGIN)) is None
    assert memory_shortage(cell, round(0.999 * needs / MARGIN)).startswith("needs about 35 GiB per GPU, has 34; ")
    small = vision(32)
    said = memory_shortage(small, round(0.99 * training_of(small.workload, 1).peak / MIB / MARGIN))
    assert re.match(r"needs about (\d+\.\d) GiB per GPU, has (?!\1)", said), said
