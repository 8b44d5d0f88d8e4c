import numpy as np
import pytest

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.rank import rows
from rtxscale.rank.channel import Order
from rtxscale.rank.clock import Block
from rtxscale.rank.warmup import Phase
from rtxscale.results.schema import arrow_schema, table_from_columns
from rtxscale.spec.cell import Trial
from rtxscale.workloads.protocol import Bucket

TRIAL = Trial.model_validate({"cell": {"workload": {"kind": "vision", "batch_per_gpu": 2}}, "visit": 1})
ORDER = Order(trial=TRIAL, trial_id="abc", attempt=3)


def block(*step_s):
    return Block(step_s=np.array(step_s), input_s=np.zeros(len(step_s)), enqueued_s=None)


def test_steps_are_numbered_through_all_phases():
    phases = [Phase(name="first", block=block(9.0)), Phase(name="window", block=block(1.0, 2.0))]
    table = rows.steps_table(ORDER, 1, phases)
    assert table.schema == arrow_schema("steps")
    assert table.to_pylist()[2] == {
        "trial_id": "abc",
        "attempt": 3,
        "rank": 1,
        "step": 2,
        "phase": "window",
        "step_time_s": 2.0,
        "input_s": 0.0,
    }


def test_a_trial_without_steps_has_an_empty_table_of_the_right_shape():
    assert rows.steps_table(ORDER, 0, []).schema == arrow_schema("steps")
    assert rows.buckets_table(ORDER, []).num_rows == 0
    assert rows.collectives_table(ORDER, []).schema == arrow_schema("collectives")


def test_buckets_keep_their_order():
    table = rows.buckets_table(ORDER, [Bucket(size_bytes=8, parameters=2), Bucket(size_bytes=4, parameters=1)])
    assert table.column("bucket").to_pylist() == [0, 1]
    assert table.column("size_bytes").to_pylist() == [8, 4]


def test_a_verdict_is_stored_as_its_words():
    row = Attested(subject="s", requested="r", observed=None, verdict=Verdict.NOT_ATTESTED, evidence="e")
    assert rows.attestation_table(ORDER, [row]).column("verdict").to_pylist() == ["not attested"]


def test_facts_join_all_ranks():
    shares = [
        rows.Share(device_name="H", gpu_uuid="GPU-1", work=10.0, step_s=np.array([1.0, 3.0]), loss=2.0),
        rows.Share(device_name="H", gpu_uuid="GPU-2", work=30.0, step_s=np.array([2.0, 2.0]), loss=4.0),
    ]
    facts = rows.joint_facts(shares, 4.0)
    assert facts["work"] == 40.0
    assert facts["throughput_per_s"] == 10.0
    assert facts["step_time_mean_s"] == 2.0
    assert facts["step_time_p50_s"] == 2.0
    assert facts["loss_last"] == 3.0
    assert facts["device_names"] == ["H"]
    assert facts["gpu_uuids"] == ["GPU-1", "GPU-2"]
    assert facts["memory_peak_mib"] is None


def test_a_peak_is_the_largest_of_any_rank():
    shares = [rows.Share(device_name="H", memory_peak_mib=peak, host_bound_share=peak / 8) for peak in (1.0, 3.0)]
    facts = rows.joint_facts(shares, None)
    assert facts["memory_peak_mib"] == 3.0
    assert facts["host_bound_share"] == 0.25
    assert "throughput_per_s" not in facts


def test_columns_of_unequal_length_or_unknown_name_are_refused():
    with pytest.raises(ValueError, match="column step has 2 values, expected 3"):
        table_from_columns("steps", 3, {"step": [1, 2]})
    with pytest.raises(KeyError, match="no column pace"):
        table_from_columns("steps", 1, {"pace": 1})
