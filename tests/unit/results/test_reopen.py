"""A run is reopened by its directory: exactly that one, unchanged, and never two at a time."""

import pytest

from rtxscale.errors import ResultsError
from rtxscale.results.read import Run
from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.spec.sweep import Sweep

TEXT = "name: small\r\n# as the user wrote it\n"
SWEEP = Sweep.model_validate(
    {
        "name": "small",
        "question": "Does it scale?",
        "study": "weak",
        "workload": {"kind": "vision", "batch_per_gpu": 8},
        "axes": {"gpus": [1, 2]},
    }
)


def rows(trial_id):
    return {"trials": table("trials", [{"trial_id": trial_id, "attempt": 1, "session_id": "s", "outcome": "ok"}])}


@pytest.fixture
def two_runs(tmp_path):
    """The older and the newer run of one sweep."""
    made = []
    for _ in range(2):
        with RunWriter.open(tmp_path, SWEEP, TEXT, fresh=True) as writer:
            writer.commit(rows("a"))
            made.append(writer.run_dir)
    return made


def test_exactly_the_named_run_is_continued(two_runs):
    older, newer = two_runs
    with RunWriter.reopen(older) as writer:
        assert (writer.run_dir, writer.run_id) == (older, older.name)
        assert writer.attempts() == {"a": ["ok"]}
        writer.commit(rows("b"))
    assert Run.open(older).attempts() == {"a": ["ok"], "b": ["ok"]}
    assert Run.open(newer).attempts() == {"a": ["ok"]}
    assert (older / "sweep.yaml").read_bytes() == TEXT.encode()


def test_a_run_in_use_is_refused(two_runs):
    with RunWriter.open(two_runs[0].parent, SWEEP, TEXT), pytest.raises(ResultsError, match="start a new run"):
        RunWriter.reopen(two_runs[1])
    RunWriter.reopen(two_runs[1]).close()


def test_what_is_no_run_or_has_lost_its_sweep_is_refused_and_left_alone(two_runs, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(ResultsError, match=r"found no readable run\.json"):
        RunWriter.reopen(other)
    assert list(other.iterdir()) == []
    (two_runs[0] / "sweep.yaml").write_bytes(b"\xff")
    with pytest.raises(ResultsError, match=r"found no readable sweep\.yaml"):
        RunWriter.reopen(two_runs[0])
