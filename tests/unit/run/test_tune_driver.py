"""Ray Tune's own failures: told as ours, with what happened and what to do."""

from types import SimpleNamespace

import pytest
from planned import planned_session
from ray import tune

from rtxscale.errors import RunError
from rtxscale.run.agenda import Agenda, remaining
from rtxscale.run.tune_driver import run_trials

LOW_MEMORY = """Caught unexpected exception: 4 worker(s) were killed due to the node running low on memory.
Memory on the node was 22.76GB used / 23.54GB limit
"""


def test_a_node_without_memory_ends_the_sweep_in_a_sentence(monkeypatch, tmp_path):
    plan = SimpleNamespace(sessions=(planned_session("only", 1.0),))

    def fit(_):
        raise RuntimeError(LOW_MEMORY + "Object store memory usage: 0\n" * 100)

    monkeypatch.setattr(tune.Tuner, "fit", fit)
    with pytest.raises(RunError) as caught:
        run_trials(Agenda(remaining(plan, {})), "hub", tmp_path)
    said = str(caught.value)
    assert "the node running low on memory. Memory on the node was 22.76GB used" in said
    assert said.endswith("what is finished is kept: mend that and run the same command again to continue")
    assert len(said) < 500
