"""Ray hands the AWS variables on to every worker: they are gone before it is reached, wherever the results are."""

import os
from contextlib import contextmanager

import pytest

from rtxscale.errors import RunError
from rtxscale.results import object_store
from rtxscale.run import sweep as run_sweep
from rtxscale.spec.load import parse_sweep

TEXT = "name: hidden\nquestion: Who sees?\nstudy: weak\nworkload: {kind: vision, batch_per_gpu: 2}\naxes: {gpus: [1]}\n"


def test_with_results_on_a_disk_too(monkeypatch, tmp_path):
    seen = []

    @contextmanager
    def no_cluster(*_):
        seen.append([name for name in object_store.SECRETS if name in os.environ])
        raise RunError("no cluster here")
        yield

    monkeypatch.setattr(object_store, "_HIDDEN", {})
    for name in object_store.SECRETS:
        monkeypatch.setenv(name, "made-up")
    monkeypatch.setattr(run_sweep, "connected", no_cluster)
    sweep = parse_sweep(TEXT, "hidden.yaml")
    with pytest.raises(RunError, match="no cluster here"):
        run_sweep.execute(run_sweep.SweepRequest(sweep=sweep, sweep_text=TEXT, results_root=tmp_path))
    assert seen == [[]]
    assert {object_store._secret(name) for name in object_store.SECRETS} == {"made-up"}
