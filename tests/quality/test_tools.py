"""Format, lint, types and floors: the tools a reviewer would run, run as tests so that one command checks all."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(sys.executable).parent


@pytest.mark.parametrize(
    "command",
    [
        [BIN / "ruff", "format", "--check", "."],
        [BIN / "ruff", "check", "."],
        [BIN / "mypy"],
        [BIN / "lint-imports"],
    ],
    ids=["format", "lint", "types", "floors"],
)
def test_tool_finds_nothing(command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-2000:]}"


def test_a_planted_upward_import_is_caught(tmp_path):
    """The contracts can fail: `spec` importing `plan` breaks the floors."""
    import shutil

    shutil.copytree(ROOT / "rtxscale", tmp_path / "rtxscale", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path / "pyproject.toml")
    with (tmp_path / "rtxscale" / "spec" / "section.py").open("a") as file:
        file.write("\nimport rtxscale.plan.model  # planted\n")
    done = subprocess.run(
        [BIN / "lint-imports", "--no-cache"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(tmp_path), "PATH": str(BIN)},
    )
    assert done.returncode == 1, done.stdout
    assert "rtxscale.spec.section -> rtxscale.plan.model" in done.stdout
