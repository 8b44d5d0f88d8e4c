"""Steps that gradient scaling skips are counted as skipped, and only those."""

import pytest
import torch
from made_context import made_context

from rtxscale.spec.workload import LanguageWorkload, VisionWorkload
from rtxscale.workloads.language import Language
from rtxscale.workloads.training.updates import skipped_steps
from rtxscale.workloads.vision import Vision

WORKLOADS = {
    "vision": VisionWorkload(
        kind="vision", model="test_vit", image_size=64, classes=10, precision="fp16", batch_per_gpu=2, accumulation=2
    ),
    "language": LanguageWorkload(kind="language", size="tiny", context=16, precision="fp16", batch_per_gpu=2),
}
OVERFLOWING = 3e38


def prepared(workload):
    context = made_context(workload)
    return {"vision": Vision(), "language": Language()}[workload.kind].prepare(context)


@pytest.mark.parametrize("kind", WORKLOADS)
def test_a_step_that_overflows_is_skipped_and_counted(kind):
    running = prepared(WORKLOADS[kind])
    running.step()
    assert skipped_steps(running) == 0
    before = [parameter.detach().clone() for parameter in running._wrapped.parameters()]
    running._updates.scaler._scale.fill_(OVERFLOWING)
    running.step()
    assert skipped_steps(running) == 1
    assert all(torch.equal(*pair) for pair in zip(before, running._wrapped.parameters(), strict=True))
    assert float(running._updates.scaler._scale) == pytest.approx(OVERFLOWING / 2), "the scaler has seen it too"
    running._updates.scaler._scale.fill_(1024.0)
    running.step()
    assert skipped_steps(running) == 1
    assert not all(torch.equal(*pair) for pair in zip(before, running._wrapped.parameters(), strict=True))
    running.close()


def test_what_scales_nothing_skips_nothing():
    running = prepared(WORKLOADS["language"].model_copy(update={"precision": "fp32"}))
    for _ in range(3):
        running.step()
    assert skipped_steps(running) == 0
    assert skipped_steps(object()) is None
    running.close()
