"""Ctrl-C, SIGTERM and a closed terminal as a clean end: the first one asks, the second one insists.

Before there is anything to end in order, and on the second signal, the handler raises `KeyboardInterrupt`, which
unwinds whatever is open. Ray installs a handler of its own while it connects, so `arm` is called again afterwards.
Caller: `run.sweep`.
"""

from __future__ import annotations

import signal
import threading
import time
from types import FrameType

CAUGHT = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SAME_WISH_S = 1.0
"""A signal this soon after the first is the same wish: `timeout` signals the process and then its group."""


class Interruption:
    """What the user has asked for: `name` is `SIGINT`, `SIGTERM`, `SIGHUP`, `stop` (from another terminal) or None."""

    def __init__(self) -> None:
        """Nothing has been asked; the first signal raises."""
        self.name: str | None = None
        self.graceful = False
        self._first_s = 0.0

    def arm(self) -> None:
        """Take over the signals; outside the main thread, where Python allows no handlers, do nothing."""
        if threading.current_thread() is threading.main_thread():
            for number in CAUGHT:
                if number is signal.SIGHUP and signal.getsignal(number) is signal.SIG_IGN:
                    continue  # `nohup` means it
                signal.signal(number, self._caught)

    def disarm(self) -> None:
        """Give the signals back to Python's defaults."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
                signal.signal(signal.SIGHUP, signal.SIG_DFL)

    def ask(self, name: str) -> None:
        """End the sweep as the first signal would, for another reason."""
        self.name = self.name or name

    def _caught(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        first = self.name is None
        if first:
            self.name, self._first_s = signal.Signals(number).name, now
        elif now - self._first_s < SAME_WISH_S:
            return
        if not (first and self.graceful):
            raise KeyboardInterrupt
