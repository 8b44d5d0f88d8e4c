"""Somebody's own training: measured like any workload, and told plainly what is wrong with it."""

import re
import runpy
import sys
import threading
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from rtxscale.nccl.attest import Verdict
from rtxscale.rank.loop import one_line, outcome_of
from rtxscale.spec.cell import Planted
from rtxscale.spec.script import ScriptWorkload
from rtxscale.workloads.delay import with_delay
from rtxscale.workloads.files.script import DIRECTORY_VARIABLE, ScriptError, fingerprint
from rtxscale.workloads.protocol import Context, work_of_latest
from rtxscale.workloads.registry import complaints
from rtxscale.workloads.scripts.job import Job
from rtxscale.workloads.scripts.script import Script

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
OPEN = []
"""What a test has prepared; closed behind it, the latest first."""


@pytest.fixture(autouse=True)
def beside_the_sweep(monkeypatch):
    usual = dist.init_process_group, dist.destroy_process_group
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(HERE))
    yield
    while OPEN:
        OPEN.pop().close()
    assert (dist.init_process_group, dist.destroy_process_group) == usual


def declared(**fields):
    place = {} if "directory" in fields else {"directory": "scripts"}
    return ScriptWorkload.model_validate({"kind": "script", "batch_per_gpu": 2, **place, **fields})


def context(workload, world=1):
    return Context(
        workload=workload,
        bucket_mib=None,
        device=torch.device("cpu"),
        rank=0,
        world=world,
        group=None,
        exchange=lambda value: [value],
        kept={},
    )


def prepared(world=1, **fields):
    OPEN.append(Script().prepare(context(declared(**fields), world)))
    return OPEN[-1]


def entry(name, **fields):
    return prepared(entry=f"tiny_entry:{name}", **fields)


def loop(*arguments, **fields):
    return prepared(path="tiny_loop.py", arguments=list(arguments), **fields)


def script_threads():
    return [thread for thread in threading.enumerate() if thread.name == "script"]


def trained(running, steps=4):
    losses = []
    for _ in range(steps):
        running.step()
        losses.append(running.loss())
    return losses


def test_both_forms_train_and_can_be_closed_twice():
    usual = list(sys.path)
    for start in (lambda: entry("build"), loop):
        running = start()
        losses = trained(running)
        assert losses == sorted(losses, reverse=True)
        assert losses[0] > losses[-1]
        assert running.unit == "sample"
        running.close()
        running.close()
    assert script_threads() == []
    assert sys.path == usual


def test_the_rank_says_how_many_steps_a_script_does(tmp_path):
    told = tmp_path / "told.txt"
    running = loop(str(told))
    trained(running, 7)
    assert not told.exists()
    running.close()
    assert told.read_text() == "unwound after 7 steps"


def test_a_script_runs_as_ever_where_no_rank_measures(monkeypatch):
    script = HERE / "scripts" / "tiny_loop.py"
    monkeypatch.setattr(sys, "argv", [str(script), "outside"])
    assert runpy.run_path(str(script), run_name="__main__")["steps_done"] == 3


def test_work_is_the_batch_the_files_number_or_what_the_code_says():
    cases = [
        (lambda: entry("build"), 6),
        (lambda: entry("build", work_per_step=5), 15),
        (lambda: entry("with_work"), 1920),
        (lambda: entry("with_numpy"), 1920),
        (loop, 6),
    ]
    for start, work in cases:
        running = start()
        trained(running, 3)
        assert work_of_latest(running, 3) == work
        running.close()


def test_steps_of_uneven_work_are_counted_one_by_one():
    running = loop("uneven")
    trained(running, 5)
    assert [work_of_latest(running, steps) for steps in (1, 2, 5)] == [2, 5, 12]
    delayed = with_delay(running, Planted(delay_ms=0.1), context(declared()))
    assert work_of_latest(delayed, 5) == 12
    running.close()


def test_the_sweeps_options_reach_the_function():
    running = entry("build", options={"width": 16})
    assert trained(running, 1)
    assert dict(running._job.options) == {"width": 16}
    running.close()


def test_a_step_need_not_have_a_loss():
    running = entry("without_loss")
    assert trained(running, 1) == [None]
    running.close()


def test_a_loss_that_is_not_finite_is_seen_by_the_rank():
    running = entry("diverging")
    (loss,) = trained(running, 1)
    assert loss != loss
    running.close()


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (lambda: entry("failing"), "KeyError: 'no such column' (tiny_entry.py, line {failing} in step)"),
        (lambda: loop("fail"), "ValueError: no such column (tiny_loop.py, line {fail} in main)"),
        (lambda: entry("leaving"), "ScriptError: found sys.exit(3) in tiny_entry.py; expected training"),
        (lambda: loop("without"), "ScriptError: found sys.exit(0) in tiny_loop.py; expected training"),
        (lambda: entry("no_step"), "ScriptError: tiny_entry:no_step: found str returned; expected the training step"),
        (lambda: entry("vector_loss"), "found a tensor of 3 elements as a step's loss; expected a tensor of one"),
        (
            lambda: entry("loss_and_work"),
            "expected a tensor of one element, a number or None; work is told once, by the",
        ),
        (lambda: loop("threads"), "found measure() or its step in a thread of the script's own; expected the script's"),
        (lambda: loop("short"), "found the training loop over after 4 steps; expected one that goes on"),
    ],
    ids=["entry", "loop", "exit", "exit of a script", "no step", "no loss", "pair of a step", "thread", "short loop"],
)
def test_what_is_wrong_in_the_code_is_told_with_its_place(start, words):
    with pytest.raises(Exception) as caught:  # noqa: PT011 - the words are compared below
        trained(start(), 5)
    raised = {name: line_of(name) for name in re.findall(r"{(\w+)}", words)}
    assert words.format(**raised) in one_line(caught.value)
    assert outcome_of(caught.value) == "crashed"


def line_of(name):
    """The line in which a test's script raises."""
    file, text = {
        "failing": ("tiny_entry.py", 'raise KeyError("no such column")'),
        "fail": ("tiny_loop.py", 'raise ValueError("no such column")'),
    }[name]
    lines = (HERE / "scripts" / file).read_text().splitlines()
    return next(number for number, line in enumerate(lines, start=1) if text in line)


def test_running_out_of_memory_stays_what_it_is():
    running = entry("out_of_memory")
    with pytest.raises(torch.OutOfMemoryError) as caught:
        running.step()
    assert outcome_of(caught.value) == "oom"
    running.close()


def test_the_default_process_group_is_the_ranks(monkeypatch):
    with pytest.raises(ScriptError, match="found a call of init_process_group; expected none") as caught:
        entry("second_group")
    assert "in second_group" in one_line(caught.value)
    with monkeypatch.context() as patched:
        patched.setattr(dist, "destroy_process_group", lambda group=None: pytest.fail("destroyed"))
        entry("destroying").close()


def test_the_bytes_that_ran_are_attested():
    running = entry("build")
    trained(running, 1)
    rows = {row.subject: row for row in running.attest()}
    assert rows["workload.entry"].requested == "tiny_entry:build"
    assert rows["workload.entry"].observed == fingerprint([HERE / "scripts" / "tiny_entry.py"])
    assert rows["workload.directory"].observed == str(HERE)
    assert rows["workload.precision"].verdict is Verdict.NOT_ATTESTED
    running.close()


def test_modules_of_the_scripts_own_are_attested_too(monkeypatch):
    for name in ("tiny_entry", "tiny_helper"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (row,) = [row for row in entry("build").attest() if row.subject == "workload.modules"]
    assert row.observed == fingerprint([HERE / "scripts" / "tiny_helper.py"])
    assert row.evidence == "bytes of tiny_helper.py, read after the window"


@pytest.mark.parametrize(
    ("world", "name", "verdict"),
    [(1, "alone", "not applicable"), (2, "alone", "refuted"), (2, "build", "honoured")],
)
def test_code_that_cannot_have_used_the_trials_group_is_found_out(world, name, verdict):
    running = entry(name, world=world)
    (row,) = [row for row in running.attest() if row.subject == "workload.group"]
    assert str(row.verdict) == verdict
    running.close()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"entry": "tiny_entry:build"}, None),
        ({"path": "tiny_loop.py"}, None),
        ({"entry": "tiny_entry:biuld"}, "found no biuld in"),
        ({"entry": "tiny_entri:build"}, "found no tiny_entri.py in"),
        ({"path": "loop.py"}, "found no file loop.py in"),
        ({"entry": "tiny_entry:build", "directory": "nowhere"}, "found no directory"),
        ({"path": "broken.py", "directory": "{tmp}"}, "found no valid Python"),
    ],
)
def test_what_a_sweep_names_is_looked_for_before_anything_runs(fields, words, tmp_path):
    (tmp_path / "broken.py").write_text("with rtxscale.measure( as m:\n")
    base = HERE
    if fields.get("directory") == "{tmp}":
        base, fields = tmp_path, fields | {"directory": "."}
    found = complaints([declared(**fields)], str(base))
    assert len(found) == (words is not None)
    assert words is None or words in found[0]
    assert words is None or "expected" in found[0]


def test_the_example_of_the_readme_runs(tmp_path, monkeypatch):
    section = (ROOT / "README.md").read_text().partition("### Your own training\n")[2].partition("\n### ")[0]
    (code,) = re.findall(r"^```python\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
    assert code.count("rtxscale.measure()") == code.count(".step(work=") == 1
    (tmp_path / "train.py").write_text(code)
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(tmp_path))
    running = prepared(path="train.py", directory=".", batch_per_gpu=16)
    losses = trained(running, 20)
    assert losses[-1] < losses[0]
    assert work_of_latest(running, 20) == 320
    running.close()


def test_the_example_sweeps_function_trains(monkeypatch):
    monkeypatch.setenv(DIRECTORY_VARIABLE, str(ROOT / "sweeps"))
    options = {"depth": 2, "width": 16}
    running = prepared(entry="script_example:build", directory=".", options=options)
    losses = trained(running, 5)
    assert losses[-1] < losses[0]
    running.close()


def test_weights_that_were_left_on_another_device_are_told_apart_from_faults_of_ddp():
    job = Job(context(workload := declared(entry="tiny_entry:build")), workload)
    with pytest.raises(ScriptError, match=r"weights on meta, the job's device is cpu: call model\.to\(job\.device\)"):
        job.wrap(torch.nn.Linear(2, 1, device="meta"))
