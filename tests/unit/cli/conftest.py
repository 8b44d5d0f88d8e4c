from __future__ import annotations

import pytest
from report import made_runs


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
