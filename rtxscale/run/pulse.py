"""Whether the head node of the cluster still answers, looked at in a thread of its own.

Ray itself says nothing for a minute and then ends calls in ways that name no cause. A head node that is gone takes its
cluster along, so what is left to do without it is to say so, and to call nothing of Ray's, which would wait for it.
Callers: `run.cluster`, `run.supervision`, `run.sweep`.
"""

from __future__ import annotations

import socket
import threading
import time

from rtxscale.errors import RunError

LOOK_S = 2.0
LOST_S = 30.0
"""A head node that has refused every connection for this long is lost. Ray's own limit is 60 s, and then it ends the
driver."""


class HeadLostError(RunError):
    """The head node is gone, and the cluster with it."""


class Pulse:
    """Of one head node; `ours` when this process started it."""

    def __init__(self, address: str, *, ours: bool) -> None:
        """`address` is host:port of its GCS."""
        self._address, self._ours = address, ours
        self.failing = False
        """Whether it did not answer when it was last asked."""
        self.lost = False
        """Whether it is gone for good."""
        self._stopped = threading.Event()

    def start(self) -> None:
        """Begin to listen."""
        threading.Thread(target=self._listen, daemon=True).start()

    def stop(self) -> None:
        """Listen no longer."""
        self._stopped.set()

    def lost_with(self) -> bool:
        """Whether a call of Ray's that has just failed did so because it is gone."""
        self.lost = self.lost or not self._answers()
        return self.lost

    def error(self) -> HeadLostError:
        """The loss, as the user is told of it."""
        if self._ours:
            return HeadLostError(
                "found that Ray's own processes on this host have ended (killed, or out of memory); expected them as "
                "long as the sweep; what is finished is kept: run the same command again to continue"
            )
        return HeadLostError(
            f"found that the head node at {self._address} does not answer any more; expected it as long as the sweep; "
            "what is finished is kept: start the head node again, then the other nodes (`ray start`, or `ray up`), and "
            "run the same command to continue"
        )

    def _answers(self) -> bool:
        """Whether it takes a connection now; a silent one is waited for for two seconds."""
        host, _, port = self._address.rpartition(":")
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=LOOK_S).close()
        except OSError:
            return False
        return True

    def _listen(self) -> None:
        since = 0.0
        while not self._stopped.wait(LOOK_S):
            silent, now = not self._answers(), time.monotonic()
            since = since if self.failing else now
            self.failing = silent
            self.lost = self.lost or (silent and now - since > LOST_S)
