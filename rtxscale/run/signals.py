"""Ctrl-C and SIGTERM as a clean end: the first one asks, the second one insists.

Before there is anything to end in order, and on the second signal, the handler raises `KeyboardInterrupt`, which
unwinds whatever is open. Ray installs a handler of its own while it connects, so `arm` is called again afterwards.
Caller: `run.sweep`.
"""

from __future__ import annotations

import signal
import threading
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """What the user has asked for: `name` is `SIGINT`, `SIGTERM` or None."""

    def __init__(self) -> None:
        """Nothing has been asked; the first signal raises."""
        self.name: str | None = None
        self.graceful = False

    def arm(self) -> None:
        """Take over the signals; outside the main thread, where Python allows no handlers, do nothing."""
        if threading.current_thread() is threading.main_thread():
            for number in CAUGHT:
                signal.signal(number, self._caught)

    def disarm(self) -> None:
        """Give the signals back to Python's defaults."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        first = self.name is None
        self.name = self.name or signal.Signals(number).name
        if not (first and self.graceful):
            raise KeyboardInterrupt
