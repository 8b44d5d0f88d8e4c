"""Real NCCL: settings reach it, wraps are swapped warm, and the evidence says so."""

import os
import subprocess
import time
from itertools import pairwise

import pytest

from rtxscale.rank.channel import Order
from rtxscale.rank.command import rank_environment, torchrun_argv
from rtxscale.rank.mailbox import MailboxGiver
from rtxscale.spec.cell import Trial

MEASURE = {"warmup_min_s": 0.5, "warmup_max_s": 20.0, "window_s": 1.0, "min_steps": 10, "tolerance": 0.2}
WORLD = 2


GATED = MEASURE | {"warmup_min_s": 2.0, "warmup_max_s": 60.0, "slope_s": 10.0}
"""Bounds so wide that a card which is still heating up meets them; the time base is the shortest allowed."""
WIDE = {"temperature_slope": 1000.0, "clock_slope": 10.0}
NARROW = {"temperature_slope": 1e-9, "clock_slope": 1e-12, "warmup_max_s": 15.0}


def missing():
    import torch

    found = torch.cuda.device_count() if torch.cuda.is_available() else 0
    return "" if found >= WORLD else f"needs {WORLD} NVIDIA GPUs, found {found}"


pytestmark = pytest.mark.gpu


def vision(bucket="auto", visit=1, gpus=WORLD, probe=True, nccl=None, measure=MEASURE, **workload):
    fields = {"kind": "vision", "model": "resnet50", "batch_per_gpu": 64, "global_batch": 64 * gpus, **workload}
    cell = {"gpus": gpus, "workload": fields, "nccl": nccl or {}, "ddp": {"bucket_mib": bucket}, "measure": measure}
    cell["collectives"] = {"sizes_mib": [64.0, 512.0]} if probe else None
    return Trial.model_validate({"cell": cell, "visit": visit})


def serving(trials, directory, environment=None):
    """One warm session: each trial's name, report and the seconds it took, as they come.

    `environment` holds further variables.
    """
    first = next(iter(trials.values()))
    world = first.cell.gpus
    giver = MailboxGiver(directory, world)
    argv = torchrun_argv(world, ["--mailbox", str(directory), "--device", "cuda", "--threads", "4"])
    process = subprocess.Popen(argv, env=os.environ | rank_environment(first.cell, "cuda") | (environment or {}))
    try:
        for name, trial in trials.items():
            order = Order(trial=trial, trial_id=trial.trial_id)
            start = time.monotonic()
            giver.give(order)
            reports = giver.reports(order, 240, lambda: process.poll() is None)
            assert sorted(reports) == list(range(world)), f"{name}: only ranks {sorted(reports)} answered"
            yield name, reports[0], time.monotonic() - start
        giver.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()


def served(trials, directory, environment=None):
    """Reports of one warm session, by name, and the seconds each took."""
    return {name: (report, seconds) for name, report, seconds in serving(trials, directory, environment)}


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    if reason := missing():
        pytest.skip(reason)
    trials = {
        "auto": vision(),
        **{f"channels {count}": vision(nccl={"channels": count}) for count in (1, 2, 4, 8)},
        "tree": vision(nccl={"algorithm": "tree"}),
        "ring": vision(nccl={"algorithm": "ring"}),
        "ll": vision(nccl={"protocol": "ll"}),
        "bucket 1": vision(bucket=1.0, probe=False),
        "bucket 100": vision(bucket=100.0, probe=False),
        "bucket 1 again": vision(bucket=1.0, probe=False, visit=2),
        "fp32": vision(precision="fp32", probe=False),
        "fp16": vision(precision="fp16", probe=False),
        "oom": vision(batch_per_gpu=60_000, probe=False),
        "auto again": vision(visit=2),
        "gated": vision(probe=False, measure=GATED | WIDE),
        "gated narrowly": vision(probe=False, measure=GATED | NARROW),
    }
    return served(trials, tmp_path_factory.mktemp("warm") / "mailbox")


def attested(report):
    return {row["subject"]: row for row in report.tables["attestation"].to_pylist()}


def bandwidth(report, size_mib):
    rows = report.tables["collectives"].to_pylist()
    return next(row["busbw_gb_s"] for row in rows if row["size_bytes"] == size_mib * 2**20)


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_channels_are_honoured(warm, count):
    report, _ = warm[f"channels {count}"]
    row = attested(report)["nccl.channels"]
    assert (row["observed"], row["verdict"]) == (str(count), "honoured"), row
    assert str(report.outcome) == "ok", report.message


def test_more_channels_move_more(warm):
    rates = [bandwidth(warm[f"channels {count}"][0], 512) for count in (1, 2, 4, 8)]
    assert all(later > 1.3 * earlier for earlier, later in pairwise(rates)), rates


@pytest.mark.parametrize("algorithm", ["tree", "ring"])
def test_the_algorithm_is_honoured(warm, algorithm):
    report, _ = warm[algorithm]
    row = attested(report)["nccl.algorithm"]
    assert (row["observed"], row["verdict"]) == (algorithm, "honoured"), row


def test_the_protocol_is_honoured(warm):
    row = attested(warm["ll"][0])["nccl.protocol"]
    assert (row["observed"], row["verdict"]) == ("ll", "honoured"), row


def test_a_setting_leaves_no_trace_in_the_next_communicator(warm):
    first, again = (bandwidth(warm[name][0], 512) for name in ("auto", "auto again"))
    assert again == pytest.approx(first, rel=0.1)


def test_data_is_right_everywhere(warm):
    rows = [row for report, _ in warm.values() for row in report.tables.get("collectives", _empty()).to_pylist()]
    assert rows
    assert all(row["data_ok"] for row in rows)


def test_a_warm_wrap_has_its_own_buckets(warm):
    layouts = {
        name: [row["size_bytes"] for row in warm[name][0].tables["buckets"].to_pylist()]
        for name in ("bucket 1", "bucket 100", "bucket 1 again")
    }
    assert len(layouts["bucket 1"]) > len(layouts["bucket 100"])
    assert layouts["bucket 1 again"] == layouts["bucket 1"]


@pytest.mark.parametrize(("name", "precision"), [("auto", "bf16"), ("fp32", "fp32"), ("fp16", "fp16")])
def test_the_precision_is_honoured(warm, name, precision):
    row = attested(warm[name][0])["workload.precision"]
    assert (row["observed"], row["verdict"]) == (precision, "honoured"), row


def test_out_of_memory_is_an_outcome_and_the_session_goes_on(warm):
    assert str(warm["oom"][0].outcome) == "oom"
    assert str(warm["auto again"][0].outcome) == "ok", warm["auto again"][0].message


def test_facts_of_the_device_are_there(warm):
    facts = warm["auto"][0].facts
    assert len(facts["gpu_uuids"]) == len(set(facts["gpu_uuids"])) == WORLD
    assert all(uuid.startswith("GPU-") for uuid in facts["gpu_uuids"])
    assert facts["memory_peak_mib"] > 1000
    assert 0 <= facts["host_bound_share"] <= 1


def test_every_card_stands_still_before_a_gated_window(warm):
    report, _ = warm["gated"]
    assert str(report.outcome) == "ok", report.message
    assert "degC/min (at most 1000), SM clock" in report.facts["steady_criterion"]
    assert "not readable" not in report.facts["steady_criterion"]
    assert abs(report.facts["temperature_slope"]) < 300
    assert abs(report.facts["sm_clock_slope"]) < 10


def test_a_bound_that_no_loaded_card_meets_ends_unsteady(warm):
    report, _ = warm["gated narrowly"]
    slopes = report.facts["temperature_slope"], report.facts["sm_clock_slope"]
    if slopes == (0.0, 0.0):
        pytest.skip("needs a card whose temperature or clock moves at all; this one shows the same for 10 s")
    assert str(report.outcome) == "unsteady"
    assert "at most 1e-09" in report.message


def test_load_adds_up_over_a_session(warm):
    loads = [warm[name][0].facts["load_s"] for name in ("auto", "tree", "auto again", "gated")]
    assert loads == sorted(loads)
    assert loads[0] > 0


def test_a_look_at_the_own_card_costs_less_than_a_millisecond():
    if reason := missing():
        pytest.skip(reason)
    import torch

    from rtxscale.rank.session import gpu_uuid_of
    from rtxscale.rank.vitals import open_vitals

    uuid = gpu_uuid_of(torch.device("cuda", 1))
    vitals = open_vitals(uuid)
    assert vitals.probe is not None, f"{uuid} is not among NVML's GPUs"
    costs = []
    for _ in range(200):
        start = time.perf_counter()
        row = vitals.probe.read_named(uuid, ("temperature_c", "sm_clock_mhz"))
        costs.append(time.perf_counter() - start)
    vitals.close()
    assert row.keys() == {"device", "uuid", "temperature_c", "sm_clock_mhz"}
    assert sorted(costs)[len(costs) // 2] < 1e-3


def test_a_warm_trial_spends_little_outside_warm_up_and_window(warm):
    report, wall_s = warm["bucket 1 again"]
    outside_s = wall_s - report.facts["warmup_s"] - report.facts["window_s"]
    assert outside_s < 2.0, outside_s


def test_p2p_disabled_is_honoured(tmp_path):
    if reason := missing():
        pytest.skip(reason)
    report, _ = served({"shm": vision(nccl={"p2p": "disabled"})}, tmp_path / "mailbox")["shm"]
    row = attested(report)["nccl.p2p"]
    assert row["verdict"] == "honoured", row
    assert "P2P" not in row["observed"]


def test_one_gpu_is_bare(tmp_path):
    if reason := missing():
        pytest.skip(reason)
    report, _ = served({"one": vision(gpus=1, probe=False)}, tmp_path / "mailbox")["one"]
    assert str(report.outcome) == "ok", report.message
    assert report.tables["buckets"].num_rows == 0
    assert report.facts["throughput_per_s"] > 0


def _empty():
    import pyarrow as pa

    return pa.table({})
