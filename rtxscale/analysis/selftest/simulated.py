"""Trials of equal arms as a perfect but noisy machine would give them, for the check of the analysis itself.

The same rows, the same counting and the same test as for a real run; only the machine is drawn from a seed. Called by
`cli.selftest`, and by tests with machines of other kinds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import polars as pl

from rtxscale.analysis.selftest.verdicts import Check, check_equal_arms, evidence_of
from rtxscale.results.read import polars_schema
from rtxscale.spec.cell import content_id

PAIRS = 500
SEED = 2026
"""Fixed, so that the verdict changes only when the code does: one seed in twenty fails by chance."""


@dataclass(frozen=True, kw_only=True)
class Machine:
    """How a machine varies, each as the standard deviation of a logarithm.

    `trial`: from trial to trial. `session`: from session to session, which pairing within a session removes. `arm`:
    from one arm to another for good, which equal arms must not have.
    """

    trial: float = 0.004
    session: float = 0.02
    arm: float = 0.0


def check_simulated(pairs: int = PAIRS, visits: int = 3, seed: int = SEED) -> Check:
    """The check of equal arms on a simulated machine; the same seed gives the same rows."""
    return check_equal_arms(evidence_of(simulated_arms(Machine(), pairs, visits, seed)), name="simulated")


def simulated_arms(machine: Machine, pairs: int, visits: int, seed: int) -> pl.DataFrame:
    """Rows of the trials table: `2 * pairs` arms of one cell, once a visit, one session a visit."""
    chance = np.random.default_rng(seed)
    arms = 2 * pairs
    noise = chance.normal(0.0, machine.trial, (visits, arms))
    noise += chance.normal(0.0, machine.session, (visits, 1)) + chance.normal(0.0, machine.arm, (1, arms))
    cells = [_cell_json(f"a{number:04d}") for number in range(arms)]
    rows = pl.DataFrame(
        {
            "cell_json": cells * visits,
            "visit": np.repeat(np.arange(1, visits + 1), arms),
            "throughput_per_s": 1000.0 * np.exp(noise).ravel(),
        }
    )
    identity = pl.Series("cell_id", [content_id(cell) for cell in cells] * visits)
    rows = rows.with_columns(identity).with_columns(
        trial_id=pl.format("{}-{}", "cell_id", "visit"),
        session_id=pl.format("s{}", "visit"),
        attempt=pl.lit(1),
        gpus=pl.lit(1),
        slot=pl.lit(0),
        repeat=pl.lit(1),
        outcome=pl.lit("ok"),
    )
    missing = {name: kind for name, kind in polars_schema("trials").items() if name not in rows.columns}
    return rows.with_columns(pl.lit(None, dtype=kind).alias(name) for name, kind in missing.items())


def _cell_json(arm: str) -> str:
    return json.dumps({"planted": {"arm": arm}, "workload": {"kind": "vision", "batch_per_gpu": 1}})
