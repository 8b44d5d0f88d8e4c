"""The rows of a sweep on their way into its run: held back for the next commit, checked, written whole.

Rows that belong to no trial yet wait here; what a run is measured with is written as soon as it is known, so that
whoever continues the run knows its nodes. While the storage is away, writing waits (`run.patience`). Caller:
`run.foreman`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from rtxscale.errors import ResultsError, RunError
from rtxscale.results.write import RunWriter
from rtxscale.run.environment import (
    PACKAGE,
    differences,
    environment_id,
    environment_rows,
    environment_table,
    unrecorded,
)
from rtxscale.run.hub import Registered
from rtxscale.run.patience import Patience


class Ledger:
    """Of one sweep; used by one thread."""

    def __init__(
        self,
        writer: RunWriter,
        patience: Patience,
        *,
        hosts: Mapping[str, Sequence[Mapping[str, str]]],
        examined: Sequence[Mapping[str, str]],
    ) -> None:
        """`hosts` has what is recorded of each node, `examined` further rows of the environment table."""
        self._writer, self._patience = writer, patience
        self._hosts, self._examined = hosts, examined
        self._measured = writer.rows("environment")
        self._held: dict[str, pa.Table] = {}
        self.environment_id = ""
        """Hash of what is measured with; empty until the first session has told its software."""

    def check_environment(self, registered: Sequence[Registered]) -> None:
        """See that this is the environment that the run is measured in, and record what is not recorded yet.

        Raises:
            ResultsError: it is another one, or cannot be written.
            RunError: two workers have different software.
            StorageOutage: the user ends the sweep while the storage is away.
        """
        rows = environment_rows(self._hosts, same_software(registered))
        identity = environment_id(rows)
        if identity != self.environment_id:
            try:
                self._keep_rows(lambda: self._writer.check_environment(identity))
            except ResultsError as error:
                raise ResultsError(f"{error}; what differs: {differences(self._measured, rows)}") from error
            self.environment_id = identity
        new = unrecorded(self._measured, [*([] if self._measured else rows), *self._examined])
        if new:
            self._measured = [*self._measured, *new]
            table = environment_table(new, identity)
            self._keep_rows(lambda: self._writer.commit({"environment": table}))

    def hold(self, name: str, rows: pa.Table) -> None:
        """Keep rows of a table for the next commit."""
        self._held[name] = self._with_held(name, rows)

    def commit(self, tables: Mapping[str, pa.Table]) -> None:
        """Write rows with those held back, all or none.

        Raises:
            StorageOutage: the user ends the sweep while the storage is away.
            ResultsError: they cannot be written for another reason.
        """
        whole = self._held | {name: self._with_held(name, rows) for name, rows in tables.items()}
        self._keep_rows(lambda: self._writer.commit(whole))
        self._held = {}

    def compact(self, session_id: str) -> None:
        """Merge a session's small files; raises as `commit` does."""
        self._keep_rows(lambda: self._writer.compact(session_id))

    def _with_held(self, name: str, rows: pa.Table) -> pa.Table:
        held = self._held.get(name)
        return rows if held is None else pa.concat_tables([held, rows])

    def _keep_rows(self, write: Callable[[], None]) -> None:
        """Write to the run, then to the object store if it has one; while the storage is away, wait."""
        self._patience.until_done(write)
        self._patience.until_done(self._writer.publish)


def same_software(registered: Sequence[Registered]) -> tuple[dict[str, str], ...]:
    """The software of all workers.

    Raises:
        RunError: two workers have different software.
    """
    kinds = {json.dumps([fact for fact in place.software if fact["subject"] != PACKAGE]): place for place in registered}
    if len(kinds) > 1:
        one, other = [place for _, place in sorted(kinds.items())][:2]
        differing = [
            f"{fact['name']} {fact['value']!r} and {twin['value']!r}"
            for fact, twin in zip(one.software, other.software, strict=False)
            if fact != twin and fact["subject"] != PACKAGE
        ]
        raise RunError(
            f"found different software in ranks {one.rank} and {other.rank}: {'; '.join(differing) or 'other facts'}; "
            "expected the same on every node"
        )
    return registered[0].software
