"""A delay planted in a GPU's stream lasts as long as it says, idle or under load.

Holds a GPU in this very process, which the doctor would call in use: so this file comes after the doctor's.
"""

from statistics import mean

import pytest
from scipy import stats

from rtxscale.workloads.delay import CudaSpin, DeviceDelay

pytestmark = pytest.mark.gpu


@pytest.fixture
def torch():
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs an NVIDIA GPU, found none")
    return torch


PAUSE_MS = 20.0
"""Long enough that the card works at nearly the same speed after it and after a longer one."""
PAIRS = 6
"""In the order A B B A: the work beside the delay is not always equally fast."""
LEARNING = 10
"""Steps after which a delay knows how fast the card's clock runs."""


def mean_ms(torch, step, steps=50):
    """Milliseconds of a step, many in a row."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    start.record()
    for _ in range(steps):
        step()
    end.record()
    end.synchronize()
    return start.elapsed_time(end) / steps


@pytest.mark.parametrize("milliseconds", [1.0, 5.0, 20.0])
def test_a_delay_alone_is_right_to_two_per_cent(torch, milliseconds):
    delay = DeviceDelay(milliseconds / 1000, CudaSpin())
    mean_ms(torch, delay)
    assert mean_ms(torch, delay) == pytest.approx(milliseconds, rel=0.02)


@pytest.mark.parametrize("milliseconds", [1.0, 5.0, 20.0])
def test_a_longer_delay_beside_work_is_longer_by_what_it_says(torch, milliseconds):
    """The work is copies within the card's memory, whose clock does not follow the load.

    Matrix products that follow a longer pause run faster, so that the delay would seem shorter than it is.
    """
    source = torch.zeros(128 * 2**20, device="cuda")
    target = torch.empty_like(source)

    def step_ms(delay_ms):
        delay = DeviceDelay(delay_ms / 1000, CudaSpin())

        def step():
            delay()
            for _ in range(10):
                target.copy_(source)

        mean_ms(torch, step, LEARNING)
        return mean_ms(torch, step)

    step_ms(PAUSE_MS)
    differences = []
    for pair in range(PAIRS):
        first, second = (PAUSE_MS, PAUSE_MS + milliseconds)[:: 1 if pair % 2 else -1]
        differences.append((step_ms(first) - step_ms(second)) * (-1 if pair % 2 else 1))
    half = stats.t.ppf(0.975, PAIRS - 1) * stats.sem(differences)
    found = f"{milliseconds} ms found as {mean(differences):.4f} +- {half:.4f}"
    assert half <= 0.1, f"the steps themselves scatter too much to judge by: {found}"
    assert mean(differences) == pytest.approx(milliseconds, abs=max(half, 0.02 * milliseconds)), found
