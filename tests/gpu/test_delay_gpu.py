"""A delay planted in a GPU's stream lasts as long as it says, idle or under load."""

import pytest

from rtxscale.workloads.delay import CudaSpin, DeviceDelay

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch():
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU, found none")
    return torch


@pytest.mark.parametrize("milliseconds", [1.0, 5.0, 20.0])
@pytest.mark.parametrize("loaded", [False, True])
def test_a_delay_is_right_to_two_per_cent(torch, milliseconds, loaded):
    square = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    delay = DeviceDelay(milliseconds / 1000, CudaSpin())

    def mean_ms(step, steps=50):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(steps):
            step()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / steps

    def work():
        for _ in range(10 if loaded else 0):
            torch.mm(square, square)

    def delayed():
        delay()
        work()

    mean_ms(work)
    mean_ms(delayed)
    before, during, after = mean_ms(work), mean_ms(delayed), mean_ms(work)
    assert during - (before + after) / 2 == pytest.approx(milliseconds, rel=0.02)
