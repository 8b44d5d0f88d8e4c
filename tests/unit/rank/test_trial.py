import pytest

from rtxscale.rank.trial import collectives_of, conclude
from rtxscale.rank.warmup import WarmUp
from rtxscale.spec.cell import Cell
from rtxscale.workloads.links.timing import Timing

VISION = {"kind": "vision", "batch_per_gpu": 2}


def warm(steady):
    times = {"first_step_s": 1.0, "soak_s": 0.0, "warmup_s": 2.0, "step_s": 0.1}
    return WarmUp(**times, steps=20, steady=steady, criterion="not steady after 2.0 s: drift +9 %")


def timing(data_ok):
    times = {"time_mean_s": 1.0, "time_p50_s": 1.0, "time_p95_s": 1.0}
    return Timing(
        operation="all_reduce", size_bytes=1024, dtype="fp32", iterations=5, data_ok=data_ok, world=2, **times
    )


@pytest.mark.parametrize(
    ("steady", "data_ok", "refutation", "outcome", "words"),
    [
        (True, True, "", "ok", ""),
        (False, True, "", "unsteady", "not steady after 2.0 s"),
        (False, True, "nccl.channels: asked for 4", "not_honoured", "asked for 4"),
        (True, False, "nccl.channels: asked for 4", "crashed", "wrong data after all_reduce of 1024 bytes"),
    ],
)
def test_wrong_data_outweighs_a_refuted_request_and_that_an_unsteady_end(steady, data_ok, refutation, outcome, words):
    found, message = conclude(warm(steady), [timing(True), timing(data_ok)], refutation)
    assert found == outcome
    assert words in message


def test_a_probe_uses_the_gradients_type_and_a_workload_its_own():
    probe = {"operations": ["all_gather"], "sizes_mib": [2.0]}
    probed = collectives_of(Cell.model_validate({"workload": VISION, "collectives": probe}))
    assert (probed.operations, probed.sizes_mib, probed.dtype) == (("all_gather",), (2.0,), "fp32")
    own = collectives_of(Cell.model_validate({"workload": {"kind": "collectives", "precision": "bf16"}}))
    assert own.dtype == "bf16"
    assert collectives_of(Cell.model_validate({"workload": VISION})) is None
