"""What the analysis hands to whoever shows it: a few small frames and sentences, never a chart.

Made by `analysis.conclude`; shown by `report` and `cli`. Every frame exists even when empty; a number that cannot be
concluded is null, never NaN, and `remarks` says why and what to run next.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import polars as pl

from rtxscale.analysis.tables import (
    BUDGET,
    CARDS,
    COST,
    DRIFT,
    FITS,
    INTERACTIONS,
    MFU,
    NODES,
    OBJECTIVES,
    PLACEMENTS,
    RETRIES,
    SANITY,
    SENTINELS,
    TARGETS,
    THROTTLING,
)
from rtxscale.results.outcomes import SIMULATED

NEEDS_VISITS = "needs >= 2 visits"
"""In a note or verdict: one visit gives no interval."""
WITHIN, DRIFTING, NEEDS_SENTINELS = "within", "drifting", "needs >= 2 sentinels"
"""Verdicts on a session's drift; the second one is also the flag of its trials."""

UNCONFIRMED = "unconfirmed"
"""In a verdict: measured while it was selected, which flatters the best of many."""

CONFIRMED_FASTER, CONFIRMED_SLOWER, NOT_CONFIRMED = "confirmed faster", "confirmed slower", "not confirmed"
"""Verdicts of a confirmation; `NEEDS_VISITS` is the fourth."""


def is_import(trials: pl.DataFrame) -> bool:
    """Whether these trials were all measured elsewhere; False where there are none.

    >>> is_import(pl.DataFrame({"source": ["imported: a.csv"]})), is_import(pl.DataFrame({"source": [None, "x"]}))
    (True, False)
    """
    return bool(trials.height and (trials["source"].fill_null(SIMULATED) != SIMULATED).all())


@dataclass(frozen=True, kw_only=True)
class Advice:
    """How to learn more, in words: by the sweep itself, or by importing more where somebody else has measured.

    `visits` is what the sweep asks for, None where that is not known.
    """

    visits: int | None = None
    imported: bool = False

    @property
    def more_visits(self) -> str:
        """What gives a cell of one visit another.

        >>> Advice(visits=1).more_visits, Advice(visits=2).more_visits
        ('raise visits to 2 or more', 'run the same command again to finish the sweep')
        >>> Advice(imported=True).more_visits
        'import several independent sessions'
        """
        if self.imported:
            return "import several independent sessions"
        if self.visits is None:
            return "run the sweep again to finish it, or raise visits to 2 or more"
        return "raise visits to 2 or more" if self.visits < 2 else "run the same command again to finish the sweep"

    @property
    def finish(self) -> str:
        """What completes an unfinished run."""
        if self.imported:
            return "import the rows that are missing as well"
        return "run the sweep again to finish it"

    @property
    def begin_again(self) -> str:
        """What gives numbers to a run that has none."""
        if self.imported:
            return "a table with a finite, positive number in a row that ended well can be concluded from"
        return "once its cause is mended, `rtxscale sweep SWEEP --fresh` measures anew"

    @property
    def settle(self) -> str:
        """What tells whether a selected cell is really faster."""
        if self.imported:
            return "measuring both again, in fresh sessions, would settle it"
        return "`rtxscale confirm RUN` settles it"

    @property
    def run(self) -> str:
        """The word for adding a measurement."""
        return "import" if self.imported else "run"


@dataclass(frozen=True, kw_only=True)
class Conclusions:
    """What a run says."""

    headline: str
    """The answer in one sentence, with its interval, or what is missing for one."""
    device: str = "cuda"
    """`cpu` where every counted trial ran on CPU workers, `simulated` where none ran: what workers are called."""
    imported: bool = False
    """Whether all trials were measured elsewhere, so that nothing can be run again from here."""
    remarks: tuple[str, ...] = field(default=())
    """What cannot be concluded and why; baselines used; suspicious results."""
    cells: pl.DataFrame
    efficiency: pl.DataFrame
    best: pl.DataFrame
    confirmed: pl.DataFrame
    effects: pl.DataFrame
    bandwidth: pl.DataFrame
    placements: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=PLACEMENTS))
    nodes: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=NODES))
    fits: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=FITS))
    interactions: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=INTERACTIONS))
    objectives: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=OBJECTIVES))
    cost: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=COST))
    throttling: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=THROTTLING))
    cards: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=CARDS))
    sanity: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SANITY))
    mfu: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=MFU))
    budget: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=BUDGET))
    drift: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=DRIFT))
    sentinels: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=SENTINELS))
    targets: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=TARGETS))
    outcomes: pl.DataFrame
    retries: pl.DataFrame = field(default_factory=lambda: pl.DataFrame(schema=RETRIES))
