from __future__ import annotations

import pytest

from rtxscale.analysis.conclude import conclude
from rtxscale.results.redaction.private_names import Names

from . import made_dossiers, made_runs


@pytest.fixture(scope="package", autouse=True)
def nobody_here():
    """Whoever runs the tests, wherever: their names change no expected text."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rtxscale.results.redaction.redacted.names_here", Names)
        yield


@pytest.fixture(scope="session")
def golden(tmp_path_factory):
    """The run measured on two H200s and its conclusions; not to be written to."""
    run = made_dossiers.golden_run(tmp_path_factory.mktemp("golden"))
    return run, conclude(run)


@pytest.fixture(scope="session")
def h200(tmp_path_factory):
    return made_runs.h200_run(tmp_path_factory.mktemp("h200"))


@pytest.fixture(scope="session")
def cpu(tmp_path_factory):
    return made_runs.cpu_run(tmp_path_factory.mktemp("cpu"))


@pytest.fixture(scope="session")
def empty(tmp_path_factory):
    return made_runs.empty_run(tmp_path_factory.mktemp("empty"))


HOSTILE = "</script><script>alert(1)</script> \"' {{7*7}} [bold]x[/bold] \u202eevil 🔥 <!-- " + "y" * 10_000


@pytest.fixture(scope="session")
def hostile(tmp_path_factory):
    return made_runs.h200_run(tmp_path_factory.mktemp("hostile"), visits=1, hostile=HOSTILE)
