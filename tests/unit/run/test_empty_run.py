"""What is left of a run whose sweep cannot run here."""

from planned import planned_session

from rtxscale.results.live import LiveState, write_live
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
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
