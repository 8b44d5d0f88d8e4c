"""Lines of a dossier that are numbers of the method and the conditions: lengths of windows, extremes of sensors.

One function a line, from `Facts` to an answer; None where the run does not say. Called by `dossier.record`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import polars as pl

from rtxscale.analysis.counted import of_stage, settled_trials
from rtxscale.plan.order import SENTINEL
from rtxscale.report.dossier.facts import Answer, Facts, distinct, measured, without_sentinels
from rtxscale.report.numbers import how_many, number, percent
from rtxscale.report.tables.evidence import profile_words, steady_words, study_words
from rtxscale.spec.declare import UNKNOWN

Derived = Callable[[Facts], Answer | None]


def _range(name: str, unit: str, *, positive: bool = False) -> Derived:
    """Median, smallest and largest of a column of the counted trials."""

    def derive(facts: Facts) -> Answer | None:
        values = facts.counted[name].drop_nulls()
        values = values.filter(values > 0) if positive else values
        if values.is_empty():
            return None
        return measured(_spread(values, unit), f"trials.{name}")

    return derive


def _spread(values: pl.Series, unit: str) -> str:
    middle, low, high = (_number(value) for value in (values.median(), values.min(), values.max()))
    return f"{number(middle, 3)} {unit} median, {number(low, 3)} to {number(high, 3)} over {len(values)} trials"


def _number(value: Any) -> float:
    return float(value)


def profile(facts: Facts) -> Answer | None:
    """The profile, and whether it can be published."""
    known = facts.trials["profile"].drop_nulls()
    return None if known.is_empty() else measured(profile_words(facts.trials), "trials.profile")


def soak(facts: Facts) -> Answer | None:
    """Soaks, once per session, workload and precision; none is an answer."""
    values = facts.counted["soak_s"].drop_nulls()
    if values.is_empty():
        return None
    long = values.filter(values > 0)
    return measured("none" if long.is_empty() else _spread(long, "s"), "trials.soak_s")


def criterion(facts: Facts) -> Answer | None:
    """The criterion with its parameters."""
    words = steady_words(facts.counted)
    return None if words == UNKNOWN else measured(words, "trials.steady_criterion")


def study(facts: Facts) -> Answer | None:
    """Which curves were asked for; an import need not say."""
    words = study_words(facts.trials)
    if words == UNKNOWN:
        return None
    return measured(words, "trials.study")


def steady(facts: Facts) -> Answer | None:
    """How many counted trials met the criterion, and how many attempts never did."""
    known = facts.counted["steady"].drop_nulls()
    if known.is_empty():
        return None
    unsteady = facts.trials.filter(pl.col("outcome") == "unsteady").height
    return measured(f"{known.sum()} of {len(known)}; {unsteady} attempts were never steady", "trials.steady")


def slopes(facts: Facts) -> Answer | None:
    """The steepest slopes over all counted trials."""
    texts = []
    for name, unit in (("temperature_slope", "degC/min"), ("sm_clock_slope", "1/min")):
        known = facts.counted[name].drop_nulls().abs()
        if not known.is_empty():
            texts.append(
                f"{name.removesuffix('_slope').replace('_', ' ')} at most {number(_number(known.max()), 2)} {unit}"
            )
    return measured("; ".join(texts), "trials.temperature_slope, trials.sm_clock_slope") if texts else None


def visits(facts: Facts) -> Answer | None:
    """Visits, sessions and repeats that count."""
    if facts.counted.is_empty():
        return None
    numbers = (facts.counted[name].n_unique() for name in ("visit", "session_id", "repeat"))
    return measured("visits {}, sessions {}, repeats {}".format(*numbers), "trials")


def window(facts: Facts) -> Answer | None:
    """Length of the windows in seconds and steps."""
    seconds, steps = (facts.counted[name].drop_nulls() for name in ("window_s", "window_steps"))
    if seconds.is_empty():
        return None
    inside = "" if steps.is_empty() else f"; {_spread(steps, 'steps')}"
    return measured(f"{_spread(seconds, 's')}{inside}", "trials.window_s, trials.window_steps")


def outcomes(facts: Facts) -> Answer | None:
    """Trials by how they ended, sentinels apart, and how many attempts were followed by another one."""
    settled = settled_trials(facts.trials)
    ways = []
    for words, rows in (("", without_sentinels(settled)), (" (sentinels)", of_stage(settled, SENTINEL))):
        counts = Counter(rows["outcome"].drop_nulls())
        ways += [f"{count} {name}{words}" for name, count in counts.most_common()]
    again = facts.trials.height - settled.height
    ways += [f"{how_many(again, 'attempts')} tried again"] if again else []
    return measured(distinct(ways), "trials.outcome") if settled.height else None


def throttling(facts: Facts) -> Answer | None:
    """Windows with thermal or power-brake slowdown, and the reasons that the cards gave."""
    known = facts.counted["throttle_share"].drop_nulls()
    if known.is_empty():
        return None
    reasons = facts.telemetry["throttle_reasons"].explode().drop_nulls().unique().sort()
    said = f"; reasons seen: {distinct(reasons)}" if len(reasons) else ""
    return measured(f"{(known > 0).sum()} of {len(known)} windows{said}", "trials.throttle_share, telemetry")


def power_cap(facts: Facts) -> Answer | None:
    """The largest share of a window at the power limit."""
    known = facts.counted["power_cap_share"].drop_nulls()
    return (
        None
        if known.is_empty()
        else measured(f"at most {percent(_number(known.max()))} of a window", "trials.power_cap_share")
    )


def _largest(name: str, unit: str) -> Derived:
    """The largest of a column of the counted trials."""

    def derive(facts: Facts) -> Answer | None:
        known = facts.counted[name].drop_nulls()
        return None if known.is_empty() else measured(f"{number(_number(known.max()), 3)} {unit}", f"trials.{name}")

    return derive


def _telemetry(name: str, unit: str, how: str) -> Derived:
    """The largest or median over the used GPUs of what telemetry saw in the windows."""

    def derive(facts: Facts) -> Answer | None:
        known = facts.telemetry[name].drop_nulls()
        if known.is_empty():
            return None
        return measured(f"{number(_number(getattr(known, how)()), 4)} {unit}", f"telemetry.{name}, in the windows")

    return derive


METHOD_NUMBERS: dict[str, Derived] = {
    "profile": profile,
    "warmup": _range("warmup_s", "s"),
    "soak": soak,
    "load": _range("load_s", "s"),
    "criterion": criterion,
    "steady": steady,
    "study": study,
    "slopes": slopes,
    "window": window,
    "visits": visits,
    "outcomes": outcomes,
    "throttling": throttling,
    "power_cap": power_cap,
    "sm_clock": _range("sm_clock_mhz", "MHz"),
    "temperature": _largest("temperature_max_c", "degC"),
    "memory_peak": _largest("memory_peak_mib", "MiB"),
    "memory_temperature": _telemetry("memory_temperature_c", "degC", "max"),
    "fan": _telemetry("fan_percent", "% at most", "max"),
    "memory_typical": _telemetry("memory_used_mib", "MiB used, median", "median"),
}
