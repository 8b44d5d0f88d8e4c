"""`rtxscale selftest` around its sweeps: what it needs where, what it continues, how it ends and what it says."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rtxscale.analysis.selftest.verdicts import Check, not_run
from rtxscale.cli import reference, selftest, selftest_sweeps, selftest_verdicts
from rtxscale.cli.main import app
from rtxscale.devices.inventory import Inventory, Node
from rtxscale.errors import BadInput, RunError
from rtxscale.plan.assume import assumed_inventory
from rtxscale.plan.expand import make_plan
from rtxscale.results.location import list_runs, run_name
from rtxscale.run.sweep import SweepResult

TWO, ONE, NONE = assumed_inventory("2x RTX 5090"), assumed_inventory("1x RTX 5090"), assumed_inventory("cpu")
GOLDEN = Path(__file__).parents[2] / "golden" / "nccl_tests"


def form(inventory):
    return selftest_sweeps.form_of(inventory)


def cells_of(plan):
    return {planned.trial.cell.cell_id: planned.trial.cell for planned in plan.trials}.values()


# --- the sweeps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("inventory", "gpus"), [(TWO, 2), (ONE, 1)])
def test_the_full_form_has_at_least_60_pairs_of_equal_arms_and_four_cells_each_way(inventory, gpus):
    arms = make_plan(form(inventory).sweep("arms").sweep, inventory)
    names = {cell.planted.arm for cell in cells_of(arms)}
    assert len(names) == len(list(cells_of(arms))) == 120
    assert {cell.gpus for cell in cells_of(arms)} == {gpus}
    sessions = cells_of(make_plan(form(inventory).sweep("sessions").sweep, inventory))
    ways = [(cell.isolation, cell.launcher) for cell in sessions if not cell.planted.delay_ms]
    assert {way: ways.count(way) for way in ways} == {
        ("warm", "ray"): 4,
        ("process", "ray"): 4,
        ("warm", "torchrun"): 4,
    }
    delayed = [cell for cell in sessions if cell.planted.delay_ms]
    assert sorted(cell.planted.delay_ms for cell in delayed) == [16, 17, 20, 32]
    assert {(cell.isolation, cell.launcher, cell.workload.batch_per_gpu) for cell in delayed} == {("warm", "ray", 256)}


def test_delayed_cells_share_the_session_of_what_they_are_compared_with():
    for inventory in (TWO, NONE):
        plan = make_plan(form(inventory).sweep("sessions").sweep, inventory)
        delays = [{planned.trial.cell.planted.delay_ms for planned in session.trials} for session in plan.sessions]
        assert [found for found in delays if found != {0.0}] == [max(delays, key=len)] * 3
        assert 0.0 in max(delays, key=len)


def test_the_reduced_form_needs_no_gpu_and_little_time():
    loaded = [form(NONE).sweep(name) for name in ("arms", "sessions")]
    assert {sweep.sweep.hardware.device for sweep in loaded} == {"cpu"}
    assert selftest_sweeps.estimate_s(loaded, NONE) < 240
    full = [form(TWO).sweep(name) for name in ("arms", "sessions", "bandwidth")]
    assert selftest_sweeps.estimate_s(full, TWO) < 900


def test_every_packaged_sweep_is_used_named_after_the_selftest_and_without_sentinels():
    used = {
        form(inventory).sweep(name).text: form(inventory).sweep(name).sweep
        for inventory in (TWO, NONE)
        for name in filter(None, selftest_sweeps.SWEEP_OF.values())
        if inventory is TWO or name != "bandwidth"
    }
    assert {path.read_text() for path in selftest_sweeps.CHECKS_DIRECTORY.iterdir()} == set(used)
    for sweep in used.values():
        assert sweep.name.startswith("selftest-")
        assert sweep.sentinels == "off"


def test_what_cannot_be_checked_here_says_why():
    assert selftest_sweeps.obstacle("bandwidth", form(TWO), None) == "all_reduce_perf is not on the PATH"
    assert selftest_sweeps.obstacle("bandwidth", form(ONE), "/bin/x") == "all-reduce needs 2 GPUs, found 1"
    assert selftest_sweeps.obstacle("energy", form(NONE), None).startswith("not applicable")
    assert not selftest_sweeps.obstacle("bandwidth", form(TWO), "/bin/x")
    assert not selftest_sweeps.obstacle("aa", form(NONE), None)


def test_checks_are_shown_in_their_own_order_and_unknown_ones_refused():
    assert selftest.chosen(["launcher", "aa"]) == ("aa", "launcher")
    assert selftest.chosen(None) == tuple(selftest_sweeps.SWEEP_OF)
    with pytest.raises(BadInput, match="found 'a-a'; expected one of simulated, aa"):
        selftest.chosen(["a-a"])


# --- new or continued -------------------------------------------------------------------------------------------------


def judged(root, run, *, complete, name="selftest-1"):
    (root / name).mkdir()
    data = {"runs": {"arms": str(root / run)}, "complete": complete}
    (root / name / "selftest.json").write_text(json.dumps(data))


def test_an_unfinished_run_is_continued_and_one_that_was_judged_is_not_judged_again(tmp_path):
    loaded = form(NONE).sweep("arms")
    names = [run_name(loaded.sweep.name, loaded.sweep.sweep_id, number) for number in (1, 2)]

    def anew():
        return selftest_sweeps.starts_anew(tmp_path, loaded, selftest_sweeps.concluded_runs(tmp_path))

    assert not anew()
    (tmp_path / names[0]).mkdir()
    judged(tmp_path, names[0], complete=False)
    assert not anew(), "cut short: continued"
    judged(tmp_path, names[0], complete=True, name="selftest-2")
    assert anew()
    (tmp_path / names[1]).mkdir()
    assert not anew(), "the newer run is in no verdicts"


def test_verdicts_that_are_not_ours_say_nothing(tmp_path):
    for number, text in enumerate(["", "[]", '{"runs": 3, "complete": true}', '{"complete": true}']):
        (tmp_path / f"selftest-{number}").mkdir()
        (tmp_path / f"selftest-{number}" / "selftest.json").write_text(text)
    assert selftest_sweeps.concluded_runs(tmp_path) == set()


# --- the course -------------------------------------------------------------------------------------------------------


def result(tmp_path, **fields):
    return SweepResult(run_dir=tmp_path / "run", **{"total": 32, "finished": 32, "outcomes": {"ok": 32}, **fields})


@pytest.fixture
def played(monkeypatch, tmp_path):
    """The command on a machine without GPUs, whose sweeps end as told; its result and what was run."""

    def play(results, *arguments, verdicts=None):
        left, ran = list(results), []

        def execute(loaded, wish, *, fresh, limit_minutes):
            ran.append((loaded.sweep.name, fresh, limit_minutes))
            return left.pop(0)

        def judge(name, runs, missing, why, binary):
            sweep = selftest_sweeps.SWEEP_OF[name]
            if why or sweep in missing:
                return not_run(name, why or missing[sweep])
            return Check(name=name, verdict=(verdicts or {}).get(name, "passed"), said="as told", rows=({"a": 1.0},))

        monkeypatch.setattr(selftest, "_execute", execute)
        monkeypatch.setattr(selftest, "judge", judge)
        monkeypatch.setattr(selftest, "_inventory_here", lambda: Inventory(nodes=(Node(node_id="a", cpus=2, gpus=()),)))
        monkeypatch.setenv("PATH", "")
        root = tmp_path / "results"
        return CliRunner().invoke(app, ["selftest", "--results", str(root), *arguments]), ran

    return play


def test_all_passed_is_0_and_the_path_of_the_verdicts_comes_last(played, tmp_path):
    done, ran = played([result(tmp_path)] * 2)
    assert done.exit_code == 0, done.output
    assert [name for name, *_ in ran] == ["selftest-arms-cpu", "selftest-sessions-cpu"]
    assert "reduced form on CPU only, 2 cores: arms, sessions; about" in done.output
    path = Path(done.output.splitlines()[-1])
    data = json.loads(path.read_text())
    assert (data["complete"], data["form"]) == (True, "reduced")
    assert set(data["runs"]) == {"arms", "sessions"}
    assert [check["check"] for check in data["checks"]] == list(selftest_sweeps.SWEEP_OF)
    assert data["checks"][1] == {"check": "aa", "verdict": "passed", "said": "as told", "rows": [{"a": 1.0}]}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list_runs(tmp_path / "results") == [], "the verdicts are no run"


def test_one_failed_check_is_1_and_an_inconclusive_one_is_not(played, tmp_path):
    assert played([result(tmp_path)] * 2, verdicts={"planted": "failed"})[0].exit_code == 1
    done, _ = played([result(tmp_path)] * 2, verdicts={"isolation": "inconclusive"})
    assert done.exit_code == 0
    assert "noise or a missing part decides" in done.output


def test_a_limit_ends_with_3_and_says_what_is_left(played, tmp_path):
    cut = result(tmp_path, finished=10, interrupted="limit")
    done, ran = played([cut], "--limit-minutes", "2", "--json")
    assert done.exit_code == 3
    ((name, _, minutes),) = ran
    assert (name, minutes) == ("selftest-arms-cpu", pytest.approx(2, abs=0.1))
    data = json.loads(done.stdout)
    said = {check["check"]: check["said"] for check in data["checks"]}
    assert said["aa"] == "10 of 32 trials finished, stopped by the time limit"
    assert said["launcher"] == "stopped by the time limit"
    assert (data["complete"], set(data["runs"])) == (False, {"arms"})


def test_no_time_at_all_runs_nothing(played):
    done, ran = played([], "--limit-minutes", "0")
    assert (done.exit_code, ran) == (3, [])


@pytest.mark.parametrize(("name", "code"), [("SIGINT", 130), ("SIGTERM", 143)])
def test_a_signal_ends_everything(played, tmp_path, name, code):
    done, ran = played([result(tmp_path, finished=3, interrupted=name)])
    assert (done.exit_code, len(ran)) == (code, 1)


def test_only_what_a_check_needs_is_run(played, tmp_path):
    assert [name for name, *_ in played([result(tmp_path)], "--check", "launcher")[1]] == ["selftest-sessions-cpu"]
    assert played([], "--check", "simulated", "--check", "bandwidth")[1] == []
    assert played([result(tmp_path)], "--check", "aa", "--fresh")[1] == [("selftest-arms-cpu", True, None)]


def test_a_binary_that_is_not_there_is_refused_before_anything_runs(played):
    done, ran = played([], "--nccl-tests", "/nowhere")
    assert (done.exit_code, ran) == (2, [])


# --- verdicts ---------------------------------------------------------------------------------------------------------


def test_verdicts_of_the_same_second_get_places_of_their_own(tmp_path):
    assert selftest_verdicts.keep(tmp_path, {"a": 1}) != selftest_verdicts.keep(tmp_path, {"a": 2})


def test_a_check_whose_sweep_is_missing_says_so():
    check = selftest_verdicts.judge("aa", {}, {"arms": "3 of 32 trials finished"}, "", None)
    assert check.text == "not run: 3 of 32 trials finished; the same command continues"
    assert selftest_verdicts.judge("simulated", {}, {}, "", None).verdict == "passed"


# --- nccl-tests -------------------------------------------------------------------------------------------------------


def binary(directory, text, code=0):
    """A program that prints its arguments' environment and a table."""
    path = directory / "all_reduce_perf"
    table = directory / "table.txt"
    table.write_text(text)
    path.write_text(f'#!/bin/sh\necho "$@ $NCCL_P2P_DISABLE $CUDA_VISIBLE_DEVICES" > {directory}/asked\n'
                    f"cat {table}\nexit {code}\n")  # fmt: skip
    path.chmod(0o755)
    return path


def test_nccl_tests_runs_on_the_trials_gpus_with_its_p2p_setting(tmp_path):
    path = binary(tmp_path, (GOLDEN / "v2_18_5090x8_no_footer.txt").read_text())
    assert reference.find_binary(tmp_path) == reference.find_binary(path) == str(path)
    environment = reference.reference_environment("disabled", ["GPU-a", "GPU-b"], {"PATH": "/usr/bin:/bin"})
    output = reference.run_all_reduce(str(path), 2, (64, 512), environment)
    assert output.version == "2.18.2"
    assert (tmp_path / "asked").read_text().split() == [
        "-b",
        "64M",
        "-e",
        "512M",
        "-f",
        "2",
        "-g",
        "2",
        "1",
        "GPU-a,GPU-b",
    ]
    assert "NCCL_P2P_DISABLE" not in reference.reference_environment("auto", [], {})


@pytest.mark.parametrize(
    ("text", "code", "words"), [("no such device", 3, "exit code 3"), ("no table", 0, "no header")]
)
def test_a_run_that_says_nothing_is_an_error(tmp_path, text, code, words):
    path = binary(tmp_path, text, code)
    with pytest.raises(RunError, match=words):
        reference.run_all_reduce(str(path), 2, (64, 64), {"PATH": "/usr/bin:/bin"})
    with pytest.raises(RunError, match="expected nccl-tests to run"):
        reference.run_all_reduce(str(tmp_path / "gone"), 2, (64, 64), {})


def test_verdicts_are_shown_where_no_chart_can_be_drawn():
    """A machine that measures needs no chart library."""
    code = (
        "import sys; sys.modules['altair'] = sys.modules['vl_convert'] = None\n"
        "from rtxscale.analysis.selftest.verdicts import not_run\n"
        "from rtxscale.cli.selftest import show_checks\n"
        "show_checks([not_run('aa', 'no time')], sys.stdout)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "no time" in done.stdout
