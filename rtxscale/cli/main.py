"""The application: all commands, one style of error, one place for exit codes.

Importing this loads typer and nothing heavy; each command imports what it needs when it runs. An expected failure is
one line on stderr; `RTXSCALE_DEBUG=1` shows tracebacks. Caller: the `rtxscale` script and `python -m rtxscale`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperGroup

import rtxscale
from rtxscale.cli import (
    compare,
    confirm,
    doctor,
    dossier,
    explain,
    fit,
    grafana,
    import_results,
    plan,
    record,
    report,
    runs,
    selftest,
    show,
    status,
    stop,
    sweep,
    watch,
)
from rtxscale.errors import RtxscaleError

INTERRUPTED = 130
DEBUG_VARIABLE = "RTXSCALE_DEBUG"
NO_MORE_OUTPUT = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)
"""What writing to an open stream fails with; such an error names no file."""


class Commands(TyperGroup):
    """The command group; every way of failing ends in `failure`."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        """Run one command and exit; typer's own printing of errors is not used."""
        kwargs["standalone_mode"] = False
        try:
            code = super().main(*args, **kwargs)
            sys.stdout.flush()
        except BrokenPipeError:
            _forget(sys.stdout)
            code = 1
        except (SystemExit, GeneratorExit):
            raise
        except BaseException as error:  # libraries' panics are no Exception
            code = _fail(error)
        # What a library wrote there, and could not, would make the interpreter exit with a code of its own.
        _flush_or_forget(sys.stderr)
        sys.exit(code if isinstance(code, int) else 0)


def _fail(error: BaseException) -> int:
    """Say on stderr what went wrong; returns the exit code."""
    _flush_or_forget(sys.stdout)
    if not is_expected(error) and os.environ.get(DEBUG_VARIABLE) == "1":
        raise error
    text, code = failure(error)
    _complain(text)
    return code


def _complain(text: str) -> None:
    """One message on stderr, which may be closed or full; the exit code says enough then."""
    from rtxscale.spec.printable import printable

    try:
        print(printable(text), file=sys.stderr, flush=True)
    except (OSError, ValueError):
        _forget(sys.stderr)


def is_expected(error: BaseException) -> bool:
    """Whether the user or rtxscale itself raised it on purpose; wrong usage is known by `format_message`."""
    return isinstance(error, RtxscaleError | KeyboardInterrupt | typer.Abort) or hasattr(error, "format_message")


def failure(error: BaseException) -> tuple[str, int]:
    """What to print on stderr for an error, and the exit code."""
    if isinstance(error, KeyboardInterrupt | typer.Abort):
        return "rtxscale: interrupted", INTERRUPTED
    if isinstance(error, RtxscaleError):
        return f"rtxscale: error: {error}", error.exit_code
    if hasattr(error, "format_message"):
        return _usage(error), getattr(error, "exit_code", 2)
    if isinstance(error, OSError) and error.filename is None and error.errno in NO_MORE_OUTPUT:
        return f"rtxscale: error: output cannot be written ({error.strerror}); send it elsewhere", 1
    return (
        f"rtxscale: error: {type(error).__name__}: {error}\n"
        f"This was not expected. Please report it with the traceback that {DEBUG_VARIABLE}=1 prints."
    ), 1


def _usage(error: Any) -> str:
    """Wrong usage in the style of all errors; a bare call gets the help as it is."""
    message = str(error.format_message())
    if message.startswith("Usage:"):
        return message
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "rtxscale"
    return f"rtxscale: error: {message}\nSee `{command} --help`."


def _flush_or_forget(stream: TextIO) -> None:
    """Write out what is pending, or give it up where the stream is full or its reader gone."""
    try:
        stream.flush()
    except OSError:
        _forget(stream)


def _forget(stream: TextIO) -> None:
    """Let the interpreter's own flush at exit go nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


app = typer.Typer(
    name="rtxscale",
    cls=Commands,
    help="Scaling sweeps over several NVIDIA GPUs, with numbers that can be defended.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        print(f"rtxscale {rtxscale.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    pass


running = (doctor, plan, fit, sweep, confirm, status, watch, stop, grafana, record)
reading = (show, report, dossier, compare, import_results, explain, runs, selftest)
for command in (*running, *reading):
    command.register(app)


def main() -> None:
    """Run the command line."""
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  for as long as the process lives
    if sys.stdout is None:
        _complain(f"rtxscale: error: standard output is closed; open it, or send it to {os.devnull}")
        sys.exit(1)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, ValueError):
            # A terminal that cannot show a sign gets a question mark, not a crash.
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]  # text streams of a real process
    app(prog_name="rtxscale")
