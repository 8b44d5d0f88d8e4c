"""What follows from findings: order, ignoring, exit codes; and how they are shown and kept."""

import json

import pytest

from rtxscale.doctor import examine as module
from rtxscale.doctor.examine import RULE_IDS, examine
from rtxscale.doctor.facts import Facts, HostTransfer, PairTransfer, SmiFacts, TransferFacts
from rtxscale.doctor.finding import Hit, Rule, Severity
from rtxscale.doctor.preflight import opening_lines, rows, stop_on_errors
from rtxscale.doctor.show import as_data, environment_rows, lines
from rtxscale.errors import BadInput, RunError
from rtxscale.run.environment import differences, environment_id, unrecorded

from .made_facts import gpu, machine

HOSTILE = "NVIDIA\x1b[31m\u202eGeForce " + "x" * 200
MIXED = machine([gpu(0), gpu(1, "4090", power_limit_w=300.0)])


def test_findings_come_worst_first_and_ignored_ones_last():
    found = examine(MIXED, ["mixed_generations"]).findings
    ranks = [(one.ignored, one.severity.rank) for one in found]
    assert ranks == sorted(ranks)
    assert found[-1].rule == "mixed_generations"


def test_only_errors_that_are_not_ignored_count():
    assert examine(machine()).exit_code == 0
    assert examine(MIXED).exit_code == 1
    assert examine(MIXED, ["mixed_generations"]).exit_code == 0
    assert examine(MIXED, ["power_limit"]).exit_code == 1


def test_an_unknown_rule_is_refused_with_the_nearest():
    with pytest.raises(BadInput, match=r"found 'mixed_generation'; expected a rule, such as mixed_generations"):
        examine(machine(), ["mixed_generation"])


def test_a_rule_that_fails_is_a_warning_and_hides_nothing(monkeypatch):
    def broken(_):
        yield Hit(severity=Severity.INFO, found="first")
        raise ZeroDivisionError("oops")

    rule = Rule(id="broken", needed="n", why="w", fix="f", source="s", check=broken)
    monkeypatch.setattr(module, "RULES", (rule, *module.RULES))
    found = examine(MIXED).findings
    assert [one.found for one in found if one.rule == "broken"] == [
        "this rule failed: ZeroDivisionError: oops",
        "first",
    ]
    assert "mixed_generations" in {one.rule for one in found}


def test_text_fits_and_says_everything():
    text = list(lines(examine(MIXED, ["mixed_generations"])))
    assert max(map(len, text)) <= 80
    joined = "\n".join(text)
    assert "error: mixed_generations (ignored)" in joined
    assert "warning: power_limit" in joined
    assert joined.index("warning: power_limit") < joined.index("note: card")
    assert "  source: playbook P11" in joined
    assert "transfers: not run (not asked for)" in joined
    assert "1 ignored; " in text[1] or "1 ignored; " in text[2]


def test_hostile_names_stay_text():
    facts = machine([gpu(0, name=HOSTILE), gpu(1, lost="\x1b]0;title\x07")], unread=("a\x9bb\nc",))
    examination = examine(facts)
    text = "\n".join(lines(examination))
    assert not set(text) & {"\x1b", "\x07", "\x9b", "\u202e"}
    assert max(map(len, text.splitlines())) <= 80
    assert not set("".join(row["value"] for row in environment_rows(examination, "n"))) & {"\x1b", "\u202e"}


def test_the_json_shape():
    pair = PairTransfer(a=0, b=1, peer=False, there_gb_s=26.0, back_gb_s=26.1, small_copy_us=14.0, data_right=True)
    transfers = TransferFacts(pairs=(pair,), hosts=(HostTransfer(gpu=0, to_device_gb_s=55.0),))
    data = json.loads(json.dumps(as_data(examine(machine(transfers=transfers), ["card"])), allow_nan=False))
    assert set(data) == {"shape", "exit_code", "machine", "findings", "transfers", "texts", "rules"}
    assert data["shape"] == 1
    assert set(data["machine"]) == {"gpus", "driver", "cuda_driver", "software"}
    assert set(data["machine"]["gpus"][0]) == {"index", "name", "uuid", "memory_mib", "used"}
    keys = {"rule", "severity", "found", "needed", "why", "fix", "source", "ignored"}
    assert all(set(one) == keys for one in data["findings"])
    assert {one["severity"] for one in data["findings"]} <= {"error", "warning", "info"}
    assert [one["ignored"] for one in data["findings"] if one["rule"] == "card"] == [True]
    assert data["transfers"]["pairs"][0]["data_right"] is True
    assert data["transfers"]["hosts"][0]["from_device_gb_s"] is None
    assert data["rules"] == list(RULE_IDS)


def test_transfers_are_said_with_their_numbers():
    pair = PairTransfer(a=0, b=1, peer=False, there_gb_s=26.04, back_gb_s=26.1, small_copy_us=14.2, data_right=True)
    text = " ".join(line.strip() for line in lines(examine(machine(transfers=TransferFacts(pairs=(pair,))))))
    assert "GPU 0 to GPU 1 26.0, back 26.1, through the host, a small copy 14 us, data right" in text


def test_a_sweep_stops_on_errors_and_says_how_to_go_on():
    with pytest.raises(RunError) as stopped:
        stop_on_errors(examine(MIXED))
    assert "mixed_generations: error: Blackwell on GPU 0, Ada on GPU 1" in str(stopped.value)
    assert "--ignore mixed_generations runs all the same" in str(stopped.value)
    stop_on_errors(examine(MIXED, ["mixed_generations"]))
    stop_on_errors(examine(machine()))


def test_a_sweep_begins_with_warnings_but_no_notes():
    said = opening_lines(examine(MIXED, ["mixed_generations"]))
    assert max(map(len, said)) <= 80
    joined = " ".join(line.strip() for line in said)
    assert "doctor: power_limit: warning: GPU 1: power limit 300 W" in joined
    assert "doctor: mixed_generations: error (ignored by the user)" in joined
    assert "doctor: card" not in joined


def test_findings_are_kept_as_rows_each_under_a_name_of_its_own():
    smi = SmiFacts(texts=(("nvidia-smi topo -m", "GPU0 X"),))
    kept = rows(examine(machine([gpu(0, power_limit_w=400.0), gpu(1, power_limit_w=400.0)], smi=smi)))
    assert {row["node"] for row in kept} == {"driver"}
    assert {row["subject"] for row in kept} == {"doctor"}
    named = {row["name"]: row["value"] for row in kept}
    assert len(named) == len(kept)
    assert named["power_limit"].startswith("warning: GPU 0: power limit 400 W, stock 575 W; needed: the stock")
    assert named["power_limit 2"].startswith("warning: GPU 1")
    assert named["text of nvidia-smi topo -m"] == "GPU0 X"


def test_a_machine_without_findings_says_so_in_the_results():
    examination = examine(Facts())
    bare = module.Examination(facts=Facts(), findings=())
    assert [row["value"] for row in environment_rows(bare, "n")] == ["none"]
    assert len(environment_rows(examination, "n")) == len(examination.findings)


def test_the_environments_identity_does_not_depend_on_the_doctor():
    fact = {"node": "workers", "subject": "software", "name": "torch", "value": "2.11"}
    found = list(rows(examine(MIXED)))
    assert environment_id([fact, *found]) == environment_id([fact])
    assert differences([fact, *found], [fact]) == ""


def test_rows_are_recorded_once_and_new_ones_added():
    found = list(rows(examine(MIXED)))
    assert unrecorded([], found) == found
    assert unrecorded([{**row, "environment_id": "e"} for row in found], found) == []
    later = list(rows(examine(machine([gpu(0, pids=(7,))]))))
    assert [row["name"] for row in unrecorded(found, later) if row["name"] == "foreign_processes"]
