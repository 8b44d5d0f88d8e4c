"""What is left of a run whose sweep cannot run here."""

import io

import pytest
from planned import planned_session

from rtxscale.errors import RunError
from rtxscale.results.live import LiveState, write_live
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.run.sweep import SweepRequest, execute
from rtxscale.spec.sweep import Sweep

WORKLOAD = planned_session("s", 1.0).trials[0].trial.cell.workload
SWEEP = Sweep(name="empty", question="Why?", study="weak", workload=WORKLOAD, axes={"gpus": (1, 2)})


def test_a_run_without_a_row_disappears(tmp_path):
    with RunWriter.open(tmp_path, SWEEP, "name: empty\n") as writer:
        write_live(writer.run_dir, LiveState(updated_ns=1, total=4, finished=0, current="starting"))
        writer.discard_if_empty()
    assert list(tmp_path.iterdir()) == []


def test_a_run_with_rows_stays_and_is_given_back(tmp_path):
    with RunWriter.open(tmp_path, SWEEP, "name: empty\n") as writer:
        rows = [{"environment_id": "e", "node": "n", "subject": "s", "name": "a", "value": "1"}]
        writer.commit({"environment": table("environment", rows)})
        writer.discard_if_empty()
    with RunWriter.open(tmp_path, SWEEP, "name: empty\n") as again:
        assert again.run_dir == writer.run_dir
        assert again.rows("environment")


def test_what_is_in_quarantine_is_said_before_anything_is_started(tmp_path, monkeypatch):
    def unreachable(*_arguments):
        raise RunError("nothing answers")

    monkeypatch.setattr("rtxscale.run.sweep.connected", unreachable)
    stream = io.StringIO()
    rows = [
        {
            "trial_id": "t",
            "attempt": attempt,
            "cell_id": "c",
            "outcome": "crashed",
            "ended_ns": attempt,
            "message": "gone",
        }
        for attempt in (1, 2)
    ]
    with RunWriter.open(tmp_path, SWEEP, "name: empty\n") as writer:
        writer.commit({"trials": table("trials", rows)})
    request = SweepRequest(sweep=SWEEP, sweep_text="name: empty\n", results_root=tmp_path, stream=stream)
    with pytest.raises(RunError, match="nothing answers"):
        execute(request)
    said = stream.getvalue().splitlines()
    assert said[0].startswith("quarantine: 1 cell of this run has ended the workers twice in a row")
    assert said[1] == "  c: crashed: gone"
    assert "--fresh" in said[2]
    assert said[3].startswith("starting: ")
