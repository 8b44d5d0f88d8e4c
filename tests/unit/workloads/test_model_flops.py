"""Model FLOPs against what others publish of the same models."""

import pytest

from rtxscale.models.flops import training_flops_per_token
from rtxscale.models.shapes import SIZES
from rtxscale.spec.workload import CollectivesWorkload, DiffusionWorkload, LanguageWorkload, VisionWorkload
from rtxscale.workloads.networks import flops as model_flops
from rtxscale.workloads.networks.flops import training_flops

PUBLISHED_GMAC = {
    "resnet50": 4.09,
    "vit_base_patch16_224": 17.56,
    "swin_base_patch4_window7_224": 15.43,
    "convnext_base": 15.36,
    "efficientnet_b0": 0.39,
}
"""Multiplications of a forward pass on one image of 224 pixels: the models' table of torchvision 0.29, "GFLOPS"."""


@pytest.mark.parametrize("name", PUBLISHED_GMAC)
def test_image_models_cost_what_torchvision_says(name):
    found = training_flops(VisionWorkload(kind="vision", model=name))
    assert found == pytest.approx(3 * 2 * PUBLISHED_GMAC[name] * 1e9, rel=0.002 if PUBLISHED_GMAC[name] > 1 else 0.015)


def test_larger_images_cost_more_and_fewer_classes_less():
    def flops(**fields):
        return training_flops(VisionWorkload(kind="vision", model="resnet50", **fields))

    assert flops(image_size=448) == pytest.approx(4 * flops(image_size=224), rel=0.01)
    assert flops(classes=1000) - flops(classes=10) == 3 * 2 * 2048 * 990


def test_a_unet_is_counted_by_its_latents_and_a_decoder_by_formula():
    unet = {
        size: training_flops(DiffusionWorkload(kind="diffusion", model="tiny", image_size=size)) for size in (32, 64)
    }
    assert 3 < unet[64] / unet[32] < 4
    assert training_flops(LanguageWorkload(kind="language", size="tiny", context=64)) == training_flops_per_token(
        SIZES["tiny"], 64
    )


def test_what_trains_no_known_model_has_none(monkeypatch):
    assert training_flops(CollectivesWorkload(kind="collectives")) is None

    def broken(workload):
        raise NotImplementedError("no such operation on tensors without memory")

    monkeypatch.setattr(model_flops, "created_model", broken)
    model_flops._vision.cache_clear()
    assert training_flops(VisionWorkload(kind="vision")) is None
    model_flops._vision.cache_clear()
