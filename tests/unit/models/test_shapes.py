import pytest

from rtxscale.models.shapes import SIZES

# The totals that their authors or their published checkpoints state.
KNOWN = {"1b": 1_100_048_384, "7b": 6_738_415_616, "13b": 13_015_864_320}


@pytest.mark.parametrize("size", KNOWN)
def test_the_formula_gives_the_published_totals(size):
    assert SIZES[size].parameters == KNOWN[size]


@pytest.mark.parametrize("size", SIZES)
def test_heads_divide_evenly(size):
    shape = SIZES[size]
    assert shape.hidden % shape.heads == 0
    assert shape.heads % shape.kv_heads == 0
    assert shape.head_size % 8 == 0, "flash attention needs multiples of 8"
    assert shape.source


@pytest.mark.parametrize(("size", "millions"), [("125m", 134), ("350m", 374)])
def test_small_names_are_classes_of_size(size, millions):
    assert round(SIZES[size].parameters / 1e6) == millions


@pytest.mark.parametrize("size", SIZES)
def test_transformers_builds_the_same_number_of_parameters(size):
    import torch

    from rtxscale.workloads.networks.decoder import build_decoder

    with torch.device("meta"):
        model = build_decoder(SIZES[size])
    assert sum(parameter.numel() for parameter in model.parameters()) == SIZES[size].parameters
    assert len(model.model.layers) == SIZES[size].layers
