"""`rtxscale doctor` as a user meets it, here where there is no GPU or on whatever machine runs the tests."""

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from rtxscale.cli import doctor as command
from rtxscale.cli.main import app
from rtxscale.doctor import preflight as checking
from rtxscale.doctor.examine import examine
from rtxscale.errors import BadInput, RunError
from rtxscale.spec.load import parse_sweep

from .made_facts import gpu, machine

SWEEP = """
name: s
question: Does it scale?
study: weak
workload: {{kind: vision, model: resnet18, batch_per_gpu: 4, precision: fp32}}
axes: {{gpus: [1, 2]}}
hardware: {{device: {device}}}
"""


def invoke(*words):
    return CliRunner().invoke(app, ["doctor", *words])


def with_facts(monkeypatch, facts):
    monkeypatch.setattr("rtxscale.doctor.collect.collect", lambda *_, **__: facts)
    monkeypatch.setattr(checking, "collect", lambda *_, **__: facts)


def test_it_runs_on_this_machine(tmp_path):
    done = invoke("--quick", "--results", str(tmp_path))
    assert done.exit_code in (0, 1)
    assert "rules looked at" in done.output
    assert "transfers: not run (--quick)" in done.output
    assert max(map(len, done.output.splitlines())) <= 80


def test_json_is_json_alone(monkeypatch, tmp_path):
    with_facts(monkeypatch, machine([gpu(0, name="NVIDIA\x1b[31m")]))
    data = json.loads(invoke("--json", "--quick", "--results", str(tmp_path)).output)
    assert data["machine"]["gpus"][0]["name"] == "NVIDIA\x1b[31m"
    assert data["transfers"]["not_run"] == "--quick"


def test_errors_are_the_exit_code_and_can_be_ignored(monkeypatch, tmp_path):
    with_facts(monkeypatch, machine([gpu(0), gpu(1, "4090")]))
    words = ("--quick", "--results", str(tmp_path))
    assert invoke(*words).exit_code == 1
    assert invoke("--ignore", "mixed_generations", *words).exit_code == 0
    wrong = invoke("--ignore", "mixed", *words)
    assert (wrong.exit_code, "expected a rule, such as" in wrong.output) == (2, True)


def test_neither_ray_nor_torch_is_loaded(tmp_path):
    code = (
        "import sys\nfrom rtxscale.doctor.preflight import preflight\nfrom pathlib import Path\n"
        f"preflight(Path({str(tmp_path)!r}))\n"
        "print([name for name in ('ray', 'torch', 'polars', 'rich', 'numpy') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() in ("[]", "['numpy']")  # pyarrow may bring numpy


def sweep(device="auto"):
    return parse_sweep(SWEEP.format(device=device), "s.yaml")


def test_a_sweep_is_stopped_by_an_error_unless_it_is_ignored(monkeypatch, tmp_path, capsys):
    with_facts(monkeypatch, machine([gpu(0), gpu(1, "4090", power_limit_w=300.0)]))
    with pytest.raises(RunError, match="--ignore mixed_generations"):
        command.look_first(sweep(), tmp_path, None)
    kept = command.look_first(sweep(), tmp_path, ["mixed_generations"])
    said = capsys.readouterr().out
    assert "doctor: power_limit: warning" in said
    assert "(ignored by the user)" in said
    assert any(row["name"] == "mixed_generations" and "ignored by the user" in row["value"] for row in kept)


def test_a_sweep_on_cpu_workers_does_not_mind_the_gpus(monkeypatch, tmp_path):
    with_facts(monkeypatch, machine([gpu(0), gpu(1, "4090")]))
    kept = command.look_first(sweep("cpu"), tmp_path, None)
    assert "mixed_generations" not in {row["name"] for row in kept}


def test_a_wrong_name_is_found_before_anything_is_looked_at(monkeypatch, tmp_path):
    monkeypatch.setattr(checking, "collect", lambda *_, **__: pytest.fail("looked"))
    with pytest.raises(BadInput):
        command.look_first(sweep(), tmp_path, ["no_such_rule"])


def test_the_declared_power_supply_is_judged(monkeypatch, tmp_path):
    from dataclasses import replace

    facts = machine()
    monkeypatch.setattr(
        "rtxscale.doctor.collect.collect",
        lambda *_, psu_w, **__: replace(facts, settings=replace(facts.settings, psu_w=psu_w)),
    )
    # One card: 1000 W; each further RTX 5090: 575 W.
    assert "power_supply" in invoke("--quick", "--psu-w", "1574", "--results", str(tmp_path)).output
    assert "power_supply" not in invoke("--quick", "--psu-w", "1575", "--results", str(tmp_path)).output
    assert examine(facts).exit_code == 0
