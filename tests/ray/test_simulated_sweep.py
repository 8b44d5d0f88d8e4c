"""A simulated sweep by the real command on a Ray cluster, and, if asked for, real workers on nodes that are chosen.

The second takes most of a minute and shows what `test_jobs` shows in part: set RTXSCALE_PLACEMENT=1 to run it.
"""

import os
import subprocess
import sys

import pytest
from conftest import another_node
from tiny import sweep_file, trials_of

pytestmark = pytest.mark.ray

SIMULATED = """\
name: made-up
question: Does the whole pipeline run without a worker?
study: strong
workload: {kind: simulated, machines: 2, gpus_per_machine: 2, cross_node_loss: 0.2, global_batch: 64}
axes: {gpus: [1, 2, 4], placement: [packed, by_class]}
visits: 1
"""


def sweep(head, path, results, *options):
    command = [sys.executable, "-m", "rtxscale", "sweep", str(path), "--address", head.address]
    return subprocess.run(
        [*command, "--results", str(results), *options],
        env=head.environment,
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_a_simulated_sweep_goes_all_the_way_and_is_never_taken_for_a_measurement(head, tmp_path):
    path = tmp_path / "made-up.yaml"
    path.write_text(SIMULATED)
    done = sweep(head, path, tmp_path / "results")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "on 4x simulated GPU on 2 nodes" in done.stdout
    assert "Simulated, not measured: " in done.stdout
    (run_dir,) = (tmp_path / "results").iterdir()
    trials = trials_of(run_dir)
    sweep_trials = [row for row in trials if row["stage"] == "sweep"]
    # Each card alone; packed and two classes of 2; packed and one class of 4.
    assert len(sweep_trials) == 4 + 3 + 2
    assert {(row["source"], row["device"]) for row in trials} == {("simulated", "simulated")}
    assert {tuple(row["node_names"]) for row in trials if row["link_class"] == "cross_node"} == {
        ("sim0", "sim1"),
        ("sim0", "sim0", "sim1", "sim1"),
    }
    assert "simulated: not a measurement" in (run_dir / "report.html").read_text()


@pytest.mark.skipif(not os.environ.get("RTXSCALE_PLACEMENT"), reason="takes most of a minute: set RTXSCALE_PLACEMENT=1")
def test_workers_are_on_the_nodes_that_the_plan_has_chosen(head, tmp_path):
    path = sweep_file(tmp_path, "placed", gpus="[1]", buckets="[25]")
    axes = "axes:\n  gpus: [2]\n  placement: [packed, spread]\n"
    text = path.read_text()
    path.write_text(text[: text.index("axes:")] + axes + text[text.index("visits:") :])
    with another_node(head):
        done = sweep(head, path, tmp_path / "results", "--no-report")
    assert done.returncode == 0, done.stdout + done.stderr
    (run_dir,) = (tmp_path / "results").iterdir()
    where = {row["placement"]: (row["nodes"], row["node_names"], row["link_class"]) for row in trials_of(run_dir)}
    assert where == {
        "packed": (1, ["node0", "node0"], None),
        "spread": (2, ["node0", "node1"], "cross_node"),
    }
