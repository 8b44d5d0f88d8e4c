from __future__ import annotations

import pytest
from report import made_runs

from rtxscale.results.redaction.private_names import Names


@pytest.fixture(scope="package", autouse=True)
def nobody_here():
    """Whoever runs the tests, wherever: their names change no expected text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rtxscale.results.redaction.redacted.names_here", Names)
        yield


@pytest.fixture(scope="session")
def root(tmp_path_factory):
    """A results root with one run."""
    root = tmp_path_factory.mktemp("results")
    made_runs.cpu_run(root)
    return root


@pytest.fixture(scope="session")
def empty_root(tmp_path_factory):
    """A results root with a run that has measured nothing."""
    root = tmp_path_factory.mktemp("empty")
    made_runs.empty_run(root)
    return root
