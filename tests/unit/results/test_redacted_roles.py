"""Words that stand for machines in the results, not for one of them, are nobody's name."""

from rtxscale.doctor.preflight import NODE
from rtxscale.results.read import Run
from rtxscale.results.redact import Names
from rtxscale.results.redacted import ROLES, redacted
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.run.environment import WORKERS
from rtxscale.spec.load import parse_sweep

SWEEP = """
name: roles
question: Does it scale?
study: weak
workload: {kind: vision, model: resnet18, batch_per_gpu: 8}
axes: {gpus: [1, 2]}
"""


def test_they_are_the_ones_that_are_written():
    assert {NODE, WORKERS} == ROLES


def test_they_stay_where_nodes_get_pseudonyms(tmp_path):
    sweep = parse_sweep(SWEEP, "roles.yaml")
    fact = {"environment_id": "e" * 12, "subject": "software"}
    rows = [
        {**fact, "node": NODE, "name": "driver", "value": "driver 580.95.05"},
        {**fact, "node": WORKERS, "name": "CUDA driver", "value": "workers of the box"},
        {**fact, "node": "bignode77", "name": "kernel", "value": "built on bignode77"},
    ]
    with RunWriter.open(tmp_path, sweep, SWEEP) as writer:
        writer.commit({"environment": table("environment", rows)})
    shown = redacted(Run.open(writer.run_dir), Names()).frame("environment").collect().to_dicts()
    assert [(row["node"], row["name"], row["value"]) for row in shown] == [
        ("driver", "driver", "driver 580.95.05"),
        ("workers", "CUDA driver", "workers of the box"),
        ("node-1", "kernel", "built on node-1"),
    ]
