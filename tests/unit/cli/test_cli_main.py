"""The application: light, one style of error, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
import typer
from typer.testing import CliRunner

import rtxscale
from rtxscale.cli.main import Commands, app, failure
from rtxscale.errors import PlanError, ResultsError

HEAVY = ("ray", "torch", "polars", "altair", "pyarrow", "pydantic", "rich", "yaml", "scipy")


def invoke(*words, application=app):
    return CliRunner().invoke(application, list(words))


def failing(error):
    """An application like ours whose one command raises."""
    one = typer.Typer(cls=Commands, rich_markup_mode=None, pretty_exceptions_enable=False)

    @one.callback()
    def _group() -> None: ...

    @one.command()
    def fail() -> None:
        raise error

    return invoke("fail", application=one)


def test_help_is_quick_and_loads_nothing_heavy():
    code = (
        "import sys\nsys.argv = ['rtxscale', '--help']\nfrom rtxscale.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as exit:\n    code = exit.code\n"
        f"print('LOADED', code, [name for name in {HEAVY!r} if name in sys.modules])"
    )
    times = []
    for _ in range(3):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        times.append(time.perf_counter() - start)
        assert done.stdout.splitlines()[-1] == "LOADED 0 []"
    # 0.3 s is the budget; the rest is for a busy machine.
    assert min(times) < 1.0


def test_all_commands_are_there():
    result = invoke("--help")
    assert result.exit_code == 0
    for name in ("plan", "sweep", "show", "report", "explain", "runs"):
        assert f"\n  {name} " in result.output
        assert invoke(name, "--help").exit_code == 0


def test_help_cuts_no_line_short():
    assert "..." not in invoke("--help").output.replace("[ARGS]...", "")


def test_version():
    result = invoke("--version")
    assert (result.exit_code, result.output) == (0, f"rtxscale {rtxscale.__version__}\n")


def test_wrong_usage_is_one_style_and_code_2():
    for words in (("shw",), ("show", "--nonsense"), ("explain",)):
        result = invoke(*words)
        assert result.exit_code == 2
        assert result.stderr.startswith("rtxscale: error: ")
        assert "--help`" in result.stderr
    assert "Did you mean 'show'" in invoke("shw").stderr
    assert invoke().output.startswith("Usage: ")


@pytest.mark.parametrize(("error", "code"), [(PlanError("found x"), 2), (ResultsError("found x"), 1)])
def test_expected_errors_are_one_line(error, code):
    result = failing(error)
    assert (result.exit_code, result.stderr) == (code, "rtxscale: error: found x\n")


def test_unexpected_errors_say_how_to_report_them():
    result = failing(ZeroDivisionError("division by zero"))
    assert result.exit_code == 1
    assert "ZeroDivisionError: division by zero" in result.stderr
    assert "RTXSCALE_DEBUG=1" in result.stderr
    assert "Traceback" not in result.stderr


class PanicException(BaseException):
    """What such a library raises: no Exception."""


def test_a_library_that_panics_is_one_style_too():
    result = failing(PanicException("index out of bounds"))
    assert result.exit_code == 1
    assert result.stderr.startswith("rtxscale: error: PanicException: index out of bounds\n")


def test_messages_do_not_command_the_terminal():
    assert failing(PlanError("found \x1b[31m\x07")).stderr == "rtxscale: error: found \\x1b[31m\\x07\n"


def test_debug_keeps_the_traceback_of_unexpected_errors_only(monkeypatch):
    monkeypatch.setenv("RTXSCALE_DEBUG", "1")
    assert isinstance(failing(ZeroDivisionError()).exception, ZeroDivisionError)
    assert failing(PlanError("found x")).stderr == "rtxscale: error: found x\n"


def test_interruption_is_130():
    assert failing(KeyboardInterrupt()).exit_code == 130
    assert failure(typer.Abort()) == ("rtxscale: interrupted", 130)


def test_a_command_chooses_its_exit_code():
    assert failing(typer.Exit(3)).exit_code == 3


@pytest.mark.parametrize(
    ("words", "target", "message"),
    [
        ("runs", ">&-", "standard output is closed"),
        ("runs", "> /dev/full", "output cannot be written (No space left on device)"),
        ("show", "> /dev/full", "output cannot be written (No space left on device)"),
        ("show --csv telemetry", "> /dev/full", "output cannot be written (No space left on device)"),
        ("--help", "> /dev/full", "output cannot be written (No space left on device)"),
    ],
)
def test_output_that_cannot_be_written_is_one_line(root, words, target, message):
    line = f"{sys.executable} -m rtxscale {words} {target}"
    environment = {**os.environ, "RTXSCALE_RESULTS": str(root)}
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("target", ["2>&-", "2> /dev/full"])
def test_errors_that_cannot_be_written_keep_their_exit_code(tmp_path, target, unbuffered):
    """What a buffer still held, the interpreter's own flush at exit would fail on, and exit with 120."""
    line = f"{sys.executable} -m rtxscale show {tmp_path}/none {target}"
    variables = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    assert subprocess.run(["bash", "-c", line], capture_output=True, env=variables, check=False).returncode == 2


def test_a_closed_pipe_is_quiet(root):
    code = f"rtxscale show --results {root} --csv telemetry | head -1"
    words = f"set -o pipefail; {sys.executable} -m {code}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("trial_id,")
    assert done.stderr == ""
