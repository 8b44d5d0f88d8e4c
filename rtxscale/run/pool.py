"""The GPUs of a sweep between its trials: free of others before one begins, and left as they were by our sessions.

It waits, says what it sees and remembers what was in use; who is who is `run.occupancy`'s business, what follows for a
trial that of `run.failures`. Nothing of somebody else is ended. On CPUs there is nothing to watch. Caller:
`run.foreman`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from rtxscale.errors import RunError
from rtxscale.run.occupancy import (
    LEFT_MIB,
    STUCK_MIB,
    Holder,
    Leftover,
    Occupancy,
    Owner,
    describe,
    leftovers,
    strangers,
)
from rtxscale.run.signals import Interruption

LEAVE_S = 30.0
"""How long to wait for others to leave, and for memory to come back before a session that needs it."""
FREED_S = 10.0
"""How long memory may take to come back after a session; the driver needs a second or so."""
LOOK_S = 0.25


class Pool:
    """The pool of one sweep; `look` tells who is on its GPUs, `note` is what the user reads."""

    def __init__(
        self,
        uuids: Collection[str],
        look: Callable[[], Occupancy],
        note: Callable[[str], None],
        interruption: Interruption,
    ) -> None:
        """Nothing is known yet."""
        self._uuids = frozenset(uuids)
        self._look, self._note, self._interruption = look, note, interruption
        self._before: Occupancy | None = None
        self._stuck = False
        self._noted: set[tuple[str, int]] = set()

    def held_by(self, *, wait: bool = True) -> str:
        """Who else is on the pool's GPUs, after having had time to leave if `wait`; empty where they are free.

        What was seen until then does not count for `visitors`.
        """
        if not self._uuids:
            return ""
        held = [strangers(self._look().now, self._uuids)]
        if held[0] and wait:
            self._note(f"waiting up to {LEAVE_S:.0f} s for GPUs that others use: {describe(held[0])}")

        def free() -> bool:
            if held[-1]:
                held.append(strangers(self._look().now, self._uuids))
            return not held[-1]

        self._until(free, LEAVE_S if wait else 0.0)
        return describe(held[-1])

    def visitors(self) -> str:
        """Who else is on the pool's GPUs or has been since the last look; empty if nobody."""
        return describe(strangers(self._look().seen, self._uuids)) if self._uuids else ""

    def session_starts(self) -> None:
        """Remember what is in use before a session, and say who holds GPUs and cannot be placed.

        Raises:
            RunError: what the session before has left in use does not come back.
        """
        if not self._uuids:
            return
        left = self._left_after(LEAVE_S, STUCK_MIB) if self._stuck else ()
        if left and not self._interruption.name:
            raise RunError(
                f"found {'; '.join(map(str, left))}, {LEAVE_S:.0f} s and more after all its processes had ended; "
                "expected it to be free: see nvidia-smi; what is finished is kept: run the same command again"
            )
        self._stuck = False
        self._before = self._look()
        self._note_unknown(self._before.now)

    def session_ended(self) -> None:
        """See that the GPUs' memory is what it was before the session; what is not is said."""
        left = self._left_after(FREED_S, LEFT_MIB)
        self._stuck = bool(left)
        if left:
            self._note(f"{'; '.join(map(str, left))}, {FREED_S:.0f} s after it ended")

    def _left_after(self, wait_s: float, least_mib: float) -> tuple[Leftover, ...]:
        before = self._before
        if not self._uuids or before is None:
            return ()
        found: list[tuple[Leftover, ...]] = []

        def freed() -> bool:
            found.append(leftovers(before, self._look(), self._uuids, least_mib))
            return not found[-1]

        self._until(freed, wait_s)
        return found[-1]

    def _note_unknown(self, holders: Collection[Holder]) -> None:
        """Once per process: in a container, the ids that the driver tells may mean nothing."""
        unknown = strangers(holders, self._uuids, Owner.UNKNOWN)
        new = [one for one in unknown if (one.uuid, one.pid) not in self._noted]
        self._noted |= {(one.uuid, one.pid) for one in new}
        if new:
            self._note(f"cannot tell whose it is, as in a container: {describe(new)}")

    def _until(self, condition: Callable[[], bool], wait_s: float) -> None:
        """Look until it is so, the time is up or the user interrupts; at least once."""
        deadline = time.monotonic() + wait_s
        while not condition() and time.monotonic() < deadline and not self._interruption.name:
            time.sleep(LOOK_S)
