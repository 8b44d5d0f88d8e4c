"""One writer per run of an object store: an object that names its owner and is written anew as a heartbeat.

An object store has no `flock`. A living owner elsewhere is refused; two that come within the same seconds both write,
and the one that finds the other's name has lost, at the latest before its next trial is put there. Called by
`results.mirror`.
"""

from __future__ import annotations

import contextlib
import json
import threading
from dataclasses import asdict

from rtxscale.errors import ResultsError
from rtxscale.results.lock import HEARTBEAT_S, LEASE_S, Lease, own_lease, owner_is_dead, parse_lease
from rtxscale.results.object_store import ObjectStore

LEASE = "lock"


class StoreLease:
    """The held lease; given back by `release`, or dead a minute after its process."""

    def __init__(self, store: ObjectStore, lease: Lease) -> None:
        """Start the heartbeat; `take` is the way in."""
        self._store, self._lease = store, lease
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="rtxscale-store-lease", daemon=True)
        self._thread.start()

    @classmethod
    def take(cls, store: ObjectStore) -> StoreLease:
        """Take the lease, over a dead owner if need be.

        Raises:
            ResultsError: a living process holds it.
            StorageOutage: the store does not answer.
        """
        held = _held(store)
        if held is not None and not owner_is_dead(held, _age_s(store)):
            raise ResultsError(
                f"{store.url}: found the run held by {held.describe()}; expected no other writer; wait for it to end "
                f"(a lease of a host that died expires after {LEASE_S:.0f} s), or start a new run with --fresh"
            )
        lease = own_lease()
        _write(store, lease)
        taken = cls(store, lease)
        try:
            taken.check()
        except ResultsError:
            taken.release()
            raise
        return taken

    def check(self) -> None:
        """See that the lease is still ours.

        Raises:
            ResultsError: another process took it over.
            StorageOutage: that cannot be told just now.
        """
        held = _held(self._store)
        if held is not None and held.token != self._lease.token:
            raise ResultsError(
                f"{self._store.url}: found it held by {held.describe()}; this process lost the run and must stop; "
                "what it had finished is kept on this host"
            )

    def release(self) -> None:
        """Give the lease back; a second call does nothing, and a store that is away does not matter."""
        if self._stop.is_set():
            return
        self._stop.set()
        self._thread.join()
        with contextlib.suppress(ResultsError):
            self.check()
            self._store.remove(LEASE)

    def _beat(self) -> None:
        while not self._stop.wait(HEARTBEAT_S):
            with contextlib.suppress(ResultsError):
                self.check()
                _write(self._store, self._lease)


def _held(store: ObjectStore) -> Lease | None:
    try:
        return parse_lease(store.read(LEASE))
    except FileNotFoundError:
        return None


def _write(store: ObjectStore, lease: Lease) -> None:
    store.write(LEASE, json.dumps(asdict(lease)).encode())


def _age_s(store: ObjectStore) -> float:
    """Seconds since the heartbeat, by the clock of the store, which all hosts share."""
    probe = f"clock-{own_lease().token}"
    store.write(probe, b"now")
    try:
        found = store.names()
    finally:
        store.remove(probe)
    if probe not in found or LEASE not in found:
        return 0.0
    return found[probe].written_s - found[LEASE].written_s
