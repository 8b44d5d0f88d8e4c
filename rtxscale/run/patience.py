"""Waiting for the storage of results to come back: a full disk, a file server or an object store that is away.

A trial that has ended is held in memory until its rows are written, so nothing is measured meanwhile and nothing is
lost, save by ending the sweep in that state. The reason stands where everybody looks: the board. Caller: `run.foreman`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from rtxscale.errors import StorageOutage
from rtxscale.plan.estimate import duration
from rtxscale.run.progress import Board
from rtxscale.run.signals import Interruption

RETRY_S = 10.0
LOOK_S = 0.2
COLD_S = 60.0
"""After a pause of this long a warm session is not what it was: its cards have cooled."""


class Patience:
    """Of one sweep; `paused_s` sums the seconds spent in pauses since it was last taken."""

    def __init__(self, board: Board, interruption: Interruption) -> None:
        """Nothing is wrong yet."""
        self._board, self._interruption = board, interruption
        self._paused_s = 0.0

    def until_done(self, write: Callable[[], None]) -> None:
        """Do it, again and again while the storage is away; `write` must be harmless to repeat.

        Raises:
            StorageOutage: the user ends the sweep meanwhile.
        """
        began: float | None = None
        while True:
            try:
                write()
            except StorageOutage as outage:
                if self._interruption.name:
                    raise
                if began is None:
                    began = time.monotonic()
                    self._board.note(
                        f"paused: {outage}; nothing is measured meanwhile, what has ended is kept in memory; trying "
                        f"again every {RETRY_S:.0f} s"
                    )
                self._board.paused(f"paused since {time.strftime('%H:%M')}: {outage}")
                self._wait()
            else:
                if began is not None:
                    self._over(time.monotonic() - began)
                return

    def taken_pause_s(self) -> float:
        """Seconds paused since this was last asked."""
        paused_s, self._paused_s = self._paused_s, 0.0
        return paused_s

    def _over(self, pause_s: float) -> None:
        self._paused_s += pause_s
        self._board.note(f"the storage is back after {duration(pause_s)}: going on, nothing was lost")

    def _wait(self) -> None:
        deadline = time.monotonic() + RETRY_S
        while time.monotonic() < deadline and not self._interruption.name:
            time.sleep(LOOK_S)
