"""A directory as the line between ranks and whoever gives out the work, where there is no Ray: the torchrun launcher.

Files appear whole (written aside, then renamed), one per order and one directory per report. Both sides poll; no
collective is involved. Ranks end when the giver closes, and also when its process is gone. Callers: `rank.__main__`
(ranks) and `run` (giver).
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from rtxscale.errors import RunError
from rtxscale.rank.channel import Order, RankReport
from rtxscale.spec.cell import Trial

POLL_S = 0.005
GRACE_S = 30.0
"""Ranks report within moments of each other; one that is silent this long after another is stuck."""
CLOSED = "closed"
GIVER = "giver"


class Mailbox:
    """One rank's side; see `channel.Channel`."""

    def __init__(self, directory: Path, rank: int) -> None:
        """Read orders from `directory`, beginning with the first."""
        self._directory = directory
        self._rank = rank
        self._number = 0

    def take(self) -> Order | None:
        """Wait for the next order; None once the giver has closed or died."""
        path = self._directory / _order_name(self._number + 1)
        while not path.exists():
            if (self._directory / CLOSED).exists() or not _is_alive(self._directory / GIVER):
                return None
            time.sleep(POLL_S)
        self._number += 1
        return read_order(path.read_text())

    def finish(self, order: Order, report: RankReport) -> None:
        """Put the report where the giver finds it."""
        write_report(self._directory / _report_name(self._number, self._rank), report)


class MailboxGiver:
    """The giver's side: one order at a time to all ranks."""

    def __init__(self, directory: Path, world: int, grace_s: float = GRACE_S) -> None:
        """Use an empty directory; wait `grace_s` seconds for the ranks that are silent after the first report.

        Raises:
            RunError: the directory has been used before.
        """
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise RunError(f"mailbox {directory}: found files; expected an empty directory")
        self._directory = directory
        self._world = world
        self._grace_s = grace_s
        self._number = 0
        _write(directory / GIVER, str(os.getpid()).encode())

    def give(self, order: Order) -> None:
        """Hand one order to every rank."""
        self._number += 1
        _write(self._directory / _order_name(self._number), write_order(order).encode())

    def reports(self, order: Order, timeout_s: float, alive: Callable[[], bool]) -> dict[int, RankReport]:
        """Reports on the latest order by rank: all of them, or what there is when time is up or the ranks are dead.

        Missing ranks tell that something went wrong; the caller decides what.
        """
        deadline = time.monotonic() + timeout_s
        paths = {rank: self._directory / _report_name(self._number, rank) for rank in range(self._world)}
        found = 0
        while alive() and found < len(paths) and time.monotonic() < deadline:
            time.sleep(POLL_S)
            before, found = found, sum(path.exists() for path in paths.values())
            if before == 0 < found:
                deadline = min(deadline, time.monotonic() + self._grace_s)
        return {rank: read_report(path) for rank, path in paths.items() if path.exists()}

    def close(self) -> None:
        """Let the ranks end."""
        _write(self._directory / CLOSED, b"")


def write_order(order: Order) -> str:
    """An order as JSON."""
    fields = {"trial_id": order.trial_id, "attempt": order.attempt}
    return json.dumps({"trial": json.loads(order.trial.model_dump_json()), **fields})


def read_order(text: str) -> Order:
    """The order that `write_order` wrote."""
    fields = json.loads(text)
    trial = Trial.model_validate_json(json.dumps(fields["trial"]))
    return Order(trial=trial, trial_id=fields["trial_id"], attempt=fields["attempt"])


def write_report(directory: Path, report: RankReport) -> None:
    """A report as a directory: plain values as JSON, tables as Arrow streams. The directory appears whole."""
    aside = directory.with_suffix(".writing")
    aside.mkdir(parents=True)
    for name, content in report.tables.items():
        with pa.OSFile(str(aside / f"{name}.arrow"), "wb") as sink, pa.ipc.new_stream(sink, content.schema) as writer:
            writer.write_table(content)
    plain = {"rank": report.rank, "outcome": str(report.outcome), "message": report.message, "facts": report.facts}
    (aside / "report.json").write_text(json.dumps(plain, default=_plain))
    aside.rename(directory)


def read_report(directory: Path) -> RankReport:
    """The report that `write_report` wrote."""
    tables = {}
    for path in sorted(directory.glob("*.arrow")):
        with pa.OSFile(str(path)) as source:
            tables[path.stem] = pa.ipc.open_stream(source).read_all()
    return RankReport(**json.loads((directory / "report.json").read_text()), tables=tables)


def _plain(value: Any) -> Any:
    """NumPy numbers as Python's."""
    return value.item()


def _is_alive(giver: Path) -> bool:
    """Whether the process named in the giver's file still runs on this machine."""
    try:
        os.kill(int(giver.read_text()), 0)
    except (FileNotFoundError, ProcessLookupError):
        return False
    except PermissionError:
        return True
    return True


def _order_name(number: int) -> str:
    return f"order-{number:06d}.json"


def _report_name(number: int, rank: int) -> str:
    return f"report-{number:06d}-{rank}"


def _write(path: Path, content: bytes) -> None:
    aside = path.with_suffix(".writing")
    aside.write_bytes(content)
    aside.rename(path)
