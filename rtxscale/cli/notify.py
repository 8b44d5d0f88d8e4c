"""The command that a sweep runs at its end: told in variables what became of it, by no shell, for a limited time.

The end is any end once the sweep file is read and may run commands: also that the doctor or the plan refuses to begin,
or that no cluster answers.
A failure of it is a warning; the sweep's own exit code stays. Whether it may run is `cli.allowed`'s business. Callers:
`cli.sweep`, `cli.confirm`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from rtxscale.spec.printable import printable

if TYPE_CHECKING:
    from rtxscale.run.sweep import SweepResult
    from rtxscale.spec.sweep import Sweep

LIMIT_S = 30.0
SAID_CHARACTERS = 200


def notified(sweep: Sweep, run: Callable[[], SweepResult], exit_code: Callable[[SweepResult], int]) -> SweepResult:
    """Run the sweep, then its command, whatever the end.

    Raises:
        BaseException: what `run` raises, after the command has been told of it.
    """
    try:
        result = run()
    except KeyboardInterrupt:
        notify(sweep, {"RTXSCALE_OUTCOME": "SIGINT", "RTXSCALE_EXIT_CODE": "130"})
        raise
    except BaseException as error:
        code, message = getattr(error, "exit_code", 1), " ".join(str(error).split())
        told = {"RTXSCALE_OUTCOME": "failed", "RTXSCALE_EXIT_CODE": str(code), "RTXSCALE_MESSAGE": message}
        notify(sweep, told)
        raise
    notify(sweep, variables(result, exit_code(result)))
    return result


def variables(result: SweepResult, code: int) -> dict[str, str]:
    """What became of a sweep, as variables of the command.

    `RTXSCALE_OUTCOME` is `complete`, `some_failed` or `all_failed` (all was tried), `incomplete` (not all was), or why
    it stopped: `limit`, `max_hours`, `stop` or a signal's name. `RTXSCALE_OUTCOMES` counts how finished trials ended.
    """
    outcome = result.interrupted or ("complete" if code == 0 else _lacking(result))
    return {
        "RTXSCALE_RUN": str(result.run_dir.absolute()),
        "RTXSCALE_OUTCOME": outcome,
        "RTXSCALE_EXIT_CODE": str(code),
        "RTXSCALE_FINISHED": str(result.finished),
        "RTXSCALE_TOTAL": str(result.total),
        "RTXSCALE_FAILED": str(result.failed),
        "RTXSCALE_OUTCOMES": " ".join(f"{outcome}={count}" for outcome, count in sorted(result.endings.items())),
    }


def _lacking(result: SweepResult) -> str:
    """Why a sweep that ran to its end is not complete."""
    if result.finished < result.total or not result.failed:
        return "incomplete"
    return "all_failed" if result.failed == result.finished else "some_failed"


def notify(sweep: Sweep, told: dict[str, str]) -> None:
    """Run the sweep's command, if it has one; what goes wrong is one line on stderr."""
    if sweep.notify is None:
        return
    command = list(sweep.notify.command)
    environment = {**os.environ, "RTXSCALE_RUN": "", "RTXSCALE_SWEEP": sweep.name, **told}
    try:
        subprocess.run(  # noqa: S603 - a list of words, no shell
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=LIMIT_S,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.decode(errors="replace").split())[:SAID_CHARACTERS]
        _warn(command[0], f"found exit code {error.returncode}{f' ({said})' if said else ''}")
    except subprocess.TimeoutExpired:
        _warn(command[0], f"found it running after {LIMIT_S:.0f} s, and ended it")
    except (OSError, ValueError) as error:
        _warn(command[0], f"found that it cannot be started ({error})")


def _warn(name: str, found: str) -> None:
    text = f"rtxscale: warning: notify {Path(name).name}: {found}; expected it to end with 0; the results are kept"
    print(printable(text), file=sys.stderr)
