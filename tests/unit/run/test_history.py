"""What finished trials tell about those to come."""

from rtxscale.run.history import History
from rtxscale.spec.cell import Cell


def cell(batch=64, gpus=2, **sections):
    workload = {"kind": "vision", "batch_per_gpu": batch, "global_batch": batch * gpus, **sections.pop("workload", {})}
    return Cell.model_validate({"gpus": gpus, "workload": workload, **sections})


def row(of, wall_s=5.0, outcome="ok", peak=None):
    return {
        "cell_json": of.canonical(),
        "outcome": outcome,
        "wall_s": wall_s,
        "batch_per_gpu": of.workload.batch_per_gpu,
        "memory_peak_mib": peak,
    }


def test_the_longest_trial_of_the_same_work_counts_whatever_nccl_and_ddp_were_told():
    history = History(
        [row(cell(), 5.0), row(cell(nccl={"channels": 4}, ddp={"bucket_mib": 1.0}), 9.0), row(cell(), 7.0)]
    )
    assert history.longest_s(cell(nccl={"algorithm": "tree"})) == 9.0
    assert history.longest_s(cell(planted={"arm": "b"})) == 9.0


def test_other_work_or_another_process_says_nothing():
    history = History([row(cell())])
    for other in (
        cell(batch=65),
        cell(gpus=4),
        cell(nccl={"p2p": "disabled"}),
        cell(workload={"precision": "fp32"}),
        cell(launcher="torchrun"),
        cell(measure={"profile": "published"}),
        cell(planted={"delay_ms": 5.0}),
    ):
        assert history.longest_s(other) is None, other


def test_only_trials_that_ended_ok_count():
    history = History()
    history.add(row(cell(), 400.0, outcome="hang"))
    assert history.longest_s(cell()) is None
    history.add(row(cell(), 4.0))
    assert history.longest_s(cell()) == 4.0


def test_peaks_are_those_of_other_batches_of_the_same_model():
    history = History([row(cell(32), peak=6000.0), row(cell(64), peak=10_000.0), row(cell(64), peak=9000.0)])
    history.add(row(cell(16, workload={"precision": "fp32"}), peak=1.0))
    history.add(row(cell(128), peak=None))
    assert history.peaks_mib(cell(256)) == {32: 6000.0, 64: 10_000.0}
    assert history.peaks_mib(cell(256, gpus=4)) == {}


def test_raw_collectives_have_no_batch():
    of = Cell.model_validate({"gpus": 2, "workload": {"kind": "collectives"}})
    history = History([{"cell_json": of.canonical(), "outcome": "ok", "wall_s": 3.0}])
    assert history.longest_s(of) == 3.0
    assert history.peaks_mib(of) == {}


def test_a_cell_of_another_version_is_passed_over():
    assert History([row(cell()) | {"cell_json": '{"gpus":2,"warp":9}'}]).longest_s(cell()) is None
