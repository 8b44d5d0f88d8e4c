"""What NCCL, DDP and the workload left behind as proof of what they really did.

NCCL writes one log file per process; a trial's part is cut out by offset, as its lines name no communicator. Parsing
and judging are pure and live in `nccl`. Caller: `rank.trial`.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rtxscale.nccl.attest import Attested, Verdict, attest
from rtxscale.nccl.knobs import DEBUG_ENVIRONMENT, Knobs
from rtxscale.nccl.log import LogFacts, parse_log
from rtxscale.workloads.protocol import Bucket

MIB = 1024 * 1024


class NcclLog:
    """This process's NCCL log. Must exist before the first communicator: NCCL opens its file once."""

    def __init__(self) -> None:
        """Name a file of this process's own and have NCCL write to it."""
        self._directory = Path(tempfile.mkdtemp(prefix="rtxscale-nccl-"))
        self._path = self._directory / "nccl.log"
        self._offset = 0
        os.environ.update(DEBUG_ENVIRONMENT, NCCL_DEBUG_FILE=str(self._path))

    def begin(self) -> None:
        """What is written from now on belongs to the next trial."""
        self._offset = self._path.stat().st_size if self._path.exists() else 0

    def text(self) -> str:
        """What NCCL has written since `begin`, as it is."""
        if not self._path.exists():
            return ""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            return file.read().decode(errors="replace")

    def facts(self) -> LogFacts:
        """What NCCL has written since `begin`, understood."""
        return parse_log(self.text())

    def close(self) -> None:
        """Delete the file."""
        shutil.rmtree(self._directory, ignore_errors=True)


def attest_nccl(knobs: Knobs, log: NcclLog | None, world: int) -> tuple[Attested, ...]:
    """One verdict per NCCL knob; without a log nothing applies, as only Gloo is in use."""
    if log is not None:
        return attest(knobs, log.facts(), world)
    reason = "CPU workers use Gloo, not NCCL"
    return tuple(
        replace(one, observed=None, verdict=Verdict.NOT_APPLICABLE, evidence=reason)
        for one in attest(knobs, LogFacts(), world)
    )


def attest_buckets(bucket_mib: float | None, buckets: Sequence[Bucket], world: int) -> Attested:
    """DDP's bucket cap against the layout it built. A bucket may exceed the cap, so the layout is shown, not judged."""
    sizes = [bucket.size_bytes for bucket in buckets]
    if world < 2:
        verdict, evidence = Verdict.NOT_APPLICABLE, "one rank: no gradients are reduced"
    elif not sizes:
        verdict, evidence = Verdict.NOT_ATTESTED, "DDP reported no buckets"
    else:
        verdict = Verdict.NOT_APPLICABLE if bucket_mib is None else Verdict.HONOURED
        evidence = "layout of DDP's reducer after its first backward pass"
    observed = f"{len(sizes)} buckets, largest {max(sizes) / MIB:.2f} MiB" if sizes else None
    return Attested(
        subject="ddp.bucket_mib",
        requested="auto" if bucket_mib is None else f"{bucket_mib:g}",
        observed=observed,
        verdict=verdict,
        evidence=evidence,
    )


def refuted(rows: Sequence[Attested]) -> str:
    """The refuted requests in words; empty when there are none.

    >>> refuted([])
    ''
    """
    return "; ".join(
        f"{row.subject}: asked for {row.requested}, found {row.observed} ({row.evidence})"
        for row in rows
        if row.verdict is Verdict.REFUTED
    )
