"""Whether all trials of a run trained with the same code, where the code is somebody's own.

From the attestation: each trial holds the SHA-256 of the files that it ran. Called by `analysis.conclude`.
"""

from __future__ import annotations

import polars as pl

SUBJECTS = ("workload.entry", "workload.modules")


def code_remarks(counted: pl.DataFrame, attestation: pl.DataFrame | None) -> tuple[str, ...]:
    """A sentence for each file, or group of files, of which trials that count ran different bytes."""
    if attestation is None or attestation.is_empty():
        return ()
    same = ["trial_id", "attempt"]
    rows = attestation.filter(pl.col("subject").is_in(SUBJECTS)).join(counted.select(same), on=same, how="semi")
    versions = rows.group_by("subject", "requested", maintain_order=True).agg(
        pl.col("observed").drop_nulls().value_counts(sort=True)
    )
    found = []
    for subject, requested, counts in versions.iter_rows():
        if len(counts) > 1:
            trials = ", ".join(str(one["count"]) for one in counts)
            what = f"the code of {requested}" if subject == SUBJECTS[0] else "a module that the code imports"
            found.append(
                f"Different code: {what} was changed within this run ({len(counts)} versions, in {trials} trials): "
                "differences between cells may be the code's. Start a new run with --fresh."
            )
    return tuple(found)
