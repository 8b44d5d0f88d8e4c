"""Words that stand for machines in the results, not for one of them, are nobody's name."""

import json

from rtxscale.doctor.preflight import NODE
from rtxscale.results.read import Run
from rtxscale.results.redaction.redact import Names
from rtxscale.results.redaction.redacted import ROLES, redacted
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


def test_names_that_rows_and_placement_hold_go_everywhere(tmp_path):
    def row(subject, name, value):
        return {"environment_id": "e" * 12, "node": "workers", "subject": subject, "name": name, "value": value}

    rows = [
        row("host", "hostname", "quietbox"),
        row("host", "user", "grethe"),
        row("host", "chassis serial", "abcdefgh"),
        row("variable", "COMET_API_KEY", "plainwords"),
        row("setting", "NGC_PASSWORD", "4711"),
        row("host", "os", "Ubuntu 24.04"),
        row("package", "authlib-token", "1.2.3.4"),
        row("doctor", "p2p", "ask grethe of quietbox or farbox9, not Ubuntu"),
    ]
    cell = json.dumps({"workload": {"options": {"ftp_password": "plainwords", "width": 3}}})
    message = json.dumps({"db_pass": "plain words"})
    trial = {
        "trial_id": "t" * 12,
        "attempt": 1,
        "node_names": ["farbox9", "farbox9"],
        "cell_json": cell,
        "message": message,
    }
    with RunWriter.open(tmp_path, parse_sweep(SWEEP, "roles.yaml"), SWEEP) as writer:
        writer.commit({"environment": table("environment", rows), "trials": table("trials", [trial])})
    shown = redacted(Run.open(writer.run_dir), Names())
    assert shown.frame("environment").collect()["value"].to_list() == [
        *("redacted-host", "redacted-user", "redacted-serial", "redacted-secret", "redacted-secret"),
        *("Ubuntu 24.04", "1.2.3.4", "ask redacted-user of redacted-host or node-1, not Ubuntu"),
    ]
    (told,) = shown.frame("trials").collect().to_dicts()
    assert told["node_names"] == ["node-1", "node-1"]
    assert json.loads(told["cell_json"]) == {"workload": {"options": {"ftp_password": "redacted-secret", "width": 3}}}
    assert json.loads(told["message"]) == {"db_pass": "redacted-secret"}


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
