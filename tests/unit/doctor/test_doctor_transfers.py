"""Transfers under a watchdog: a script in the place of the process that copies; it hangs, dies, talks nonsense."""

import json
import sys
import time

import pytest

from rtxscale.doctor.facts import Facts
from rtxscale.doctor.torch_process import gigabytes_per_second, seconds_each
from rtxscale.doctor.torch_process import main as run_process
from rtxscale.doctor.transfers import Limits, measure_transfers, run_tasks, tasks, transfer_facts, why_not
from rtxscale.topology.pcie import PcieSample

from .made_facts import gpu, machine

# Runs its tasks like the real process; what a task does is in the table `does`.
SCRIPT = """
import json, os, sys, time
does = json.loads(sys.argv[2])
print("a library's greeting", flush=True)
for task in json.loads(sys.argv[1]):
    print(json.dumps({"task": task, "begins": True}), flush=True)
    act = does.get(json.dumps(task), "ok")
    if act == "hang": time.sleep(60)
    if act == "die": os._exit(9)
    if act == "slow": time.sleep(0.5)
    print(json.dumps({"task": task, "result": {"there_gb_s": 26.0, "pid": os.getpid()}}), flush=True)
"""
QUICK = Limits(start_s=20.0, task_s=1.0)


def run(wanted, does=None, limits=QUICK, **options):
    acts = json.dumps({json.dumps(list(task)): act for task, act in (does or {}).items()})
    return run_tasks(wanted, lambda rest: [sys.executable, "-c", SCRIPT, json.dumps(rest), acts], limits, **options)


def test_all_tasks_run_in_one_process():
    results = run(tasks(3))
    assert list(results) == tasks(3)
    assert len({result["pid"] for result in results.values()}) == 1


def test_a_hanging_pair_is_named_and_hides_no_other():
    began = time.monotonic()
    results = run(tasks(3), {("pair", 0, 1): "hang"})
    assert time.monotonic() - began < 20
    assert results["pair", 0, 1] == {"problem": "did not end in 1 s and was given up"}
    assert results["pair", 0, 2]["there_gb_s"] == results["pair", 1, 2]["there_gb_s"] == 26.0
    assert results["pair", 0, 2]["pid"] != results["host", 0]["pid"]


def test_a_task_that_ends_its_process_is_named():
    results = run(tasks(2), {("host", 1): "die"})
    assert results["host", 1] == {"problem": "the process that copied ended with code 9"}
    assert results["pair", 0, 1]["there_gb_s"] == 26.0


def test_a_process_that_never_starts_is_tried_once():
    began = time.monotonic()
    results = run_tasks(tasks(2), lambda _: [sys.executable, "-c", "import time; time.sleep(60)"], Limits(start_s=0.5))
    assert time.monotonic() - began < 15
    assert {result["problem"] for result in results.values()} == {"did not end in 0 s and was given up"}
    assert list(results) == tasks(2)


def test_a_process_that_cannot_import_torch_says_so_for_every_task():
    results = run_tasks(tasks(2), lambda _: [sys.executable, "-c", "import sys; sys.exit(3)"], QUICK)
    assert {result["problem"] for result in results.values()} == {"the process that copied ended with code 3"}


def test_links_are_sampled_while_copies_with_the_host_run():
    seen = []
    run([("host", 0), ("pair", 0, 1)], {("host", 0): "slow"}, while_host_copies=lambda: seen.append(1))
    assert seen
    seen.clear()
    run([("pair", 0, 1)], {("pair", 0, 1): "slow"}, while_host_copies=lambda: seen.append(1))
    assert not seen


def test_results_carry_the_gpus_own_numbers():
    facts = machine([gpu(0, visible=False), gpu(2), gpu(5)])
    pair = {"peer": False, "data_right": True, "there_gb_s": 26.0, "back_gb_s": 25.0, "small_copy_us": 14.0}
    results = {
        ("host", 0): {"to_device_gb_s": 55.0, "from_device_gb_s": 54.0},
        ("host", 1): {"problem": "CUDA error"},
        ("together",): {"to_device": [27.0, 28.0], "from_device": [26.0]},
        ("pair", 0, 1): pair,
    }
    samples = [PcieSample(gpu="GPU-5", generation=2, width=16, utilisation_percent=100.0)]
    found = transfer_facts(results, facts, samples)
    assert [(one.gpu, one.to_device_gb_s, one.to_device_together_gb_s, one.problem) for one in found.hosts] == [
        (2, 55.0, 27.0, ""),
        (5, None, 28.0, "CUDA error"),
    ]
    assert [one.from_device_together_gb_s for one in found.hosts] == [26.0, None]
    assert [(one.a, one.b, one.data_right) for one in found.pairs] == [(2, 5, True)]
    assert [(one.gpu, one.slow) for one in found.links] == [("5", True)]


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (Facts(), "no GPU in use"),
        (machine(software={"torch_cuda": ""}), "no PyTorch with CUDA"),
        (machine([gpu(0, "h200", mig=True)]), "MIG"),
        (machine([gpu(0, pids=(7,))]), "in use"),
    ],
)
def test_what_is_not_run_says_why(facts, reason):
    assert reason in measure_transfers(facts).not_run
    assert why_not(machine()) == ""


def test_the_process_answers_a_task_that_fails(capsys):
    assert run_process(json.dumps([["pair", 0, 1], ["nonsense"]])) == 0
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["task"] for line in said] == [["pair", 0, 1], ["pair", 0, 1], ["nonsense"], ["nonsense"]]
    assert said[3]["result"]["problem"].startswith("KeyError")
    if "problem" not in said[1]["result"]:  # a machine with two GPUs
        assert said[1]["result"]["data_right"]


def test_rates_count_the_copies_after_the_first():
    calls = []

    def copy():
        calls.append(1)
        time.sleep(0.3 if len(calls) == 1 else 0.01)

    assert 0.01 <= seconds_each(copy, lambda: None, 5) < 0.05
    assert len(calls) == 6
    rate = gigabytes_per_second(10**9, lambda: time.sleep(0.01), lambda: None)
    assert 20 < rate <= 100
