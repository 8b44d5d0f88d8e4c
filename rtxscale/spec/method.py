"""What a measure claims: what it lacks to be published, what in it can never hold, its steady-state criterion in words.

Beside it what a target is, in words. Pure; looks at nothing but a `Measure` or a `Target`. Called by `spec.checks`,
`plan.rules`, `plan.notes` and `report`, so that a file, a plan and a report say the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import ValidationError

from rtxscale.spec.cell import PROFILES, Measure, Target

PUBLISHED = PROFILES["published"]
LEAST_WINDOW_S = 30.0
"""The shortest window that can be published; `published` itself measures 60 s."""

LEAST = {
    "soak_s": ("soak", PUBLISHED["soak_s"], " s"),
    "warmup_min_s": ("least warm-up", PUBLISHED["warmup_min_s"], " s"),
    "window_s": ("window", LEAST_WINDOW_S, " s"),
    "min_steps": ("least number of steps", PUBLISHED["min_steps"], ""),
    "slope_s": ("time base of slopes", PUBLISHED["slope_s"], " s"),
}
"""Field -> its name in words, the least value that can be published, unit."""
MOST = {
    "warmup_max_s": ("longest warm-up", PUBLISHED["warmup_max_s"], " s"),
    "tolerance": ("tolerance", PUBLISHED["tolerance"], ""),
    "temperature_slope": ("temperature slope", PUBLISHED["temperature_slope"], " degC/min"),
    "clock_slope": ("SM clock slope", PUBLISHED["clock_slope"], "/min"),
}
"""Field -> its name in words, the largest value that can be published, unit."""

UPDATES = 100
"""Updates of the energy counter that a window needs: the first and the last may each be off by one."""
COUNTER_S = (0.02, 0.1)
"""Time between two updates of a GPU's energy counter: 20 ms on most, 100 ms on the slowest known."""


@dataclass(frozen=True, kw_only=True)
class Contradiction:
    """Settings that exclude each other: the fields, the one to blame first."""

    fields: tuple[str, ...]
    found: str
    expected: str


def measure_of(cell_json: str) -> Measure | None:
    """The measure of a cell as recorded; None where it is of another version of rtxscale and cannot be read.

    >>> measure_of('{"measure":{"soak_s":5},"workload":{"kind":"vision"}}') == Measure(soak_s=5.0)
    True
    """
    try:
        return Measure.model_validate(json.loads(cell_json).get("measure", {}))
    except (ValidationError, ValueError, AttributeError):
        return None


def target_of(cell_json: str) -> Target | None:
    """The target of a cell as recorded; None where it has none, or one that cannot be read.

    >>> target_of('{"target":{"metric":"loss","value":2.5}}') == Target(metric="loss", value=2.5), target_of("{}")
    (True, None)
    """
    try:
        return Target.model_validate(json.loads(cell_json)["target"])
    except (ValidationError, ValueError, TypeError, KeyError):
        return None


def target_words(target: Target) -> str:
    """When a target is reached, and how it is looked at.

    >>> target_words(Target(metric="top1", value=0.9))
    'top1 at least 0.9 of up to 1,024 held-out samples, looked at every 20 steps'
    """
    relation = "at least" if target.metric == "top1" else "at most"
    seen = "" if target.metric == "loss" else f" of up to {target.samples:,} held-out samples"
    return f"{target.metric} {relation} {target.value:g}{seen}, looked at every {target.every_steps} steps"


def shortfalls(measure: Measure) -> tuple[str, ...]:
    """What is weaker than the profile `published` demands, each with what it needs; empty when it can be published.

    >>> shortfalls(Measure(profile="published", soak_s=5))
    ('soak 5 s, published needs 600 s',)
    >>> shortfalls(Measure(profile="published", clock_slope="off"))
    ('SM clock slope not gated, published allows at most 0.002/min',)
    """
    return tuple(_shortfalls(measure.resolved()))


def _shortfalls(measure: Measure) -> Iterator[str]:
    for field, (name, least, unit) in LEAST.items():
        value = getattr(measure, field)
        if value < least:
            yield f"{name} {value:g}{unit}, published needs {least:g}{unit}"
    for field, (name, most, unit) in MOST.items():
        value = getattr(measure, field)
        if value == "off":
            yield f"{name} not gated, published allows at most {most:g}{unit}"
        elif value > most:
            yield f"{name} {value:g}{unit}, published allows at most {most:g}{unit}"


def contradictions(measure: Measure) -> tuple[Contradiction, ...]:
    """Settings with which no trial could ever become steady.

    >>> contradictions(Measure(warmup_min_s=30))[0].found
    'warmup_min_s 30 with warmup_max_s 20 (profile quick)'
    """
    full, found = measure.resolved(), []
    least_s, most_s = full.warmup_min_s or 0.0, full.warmup_max_s or 0.0
    if most_s <= least_s:
        found.append(
            Contradiction(
                fields=("warmup_max_s", "warmup_min_s"),
                found=f"{_given(measure, 'warmup_min_s')} with {_given(measure, 'warmup_max_s')}",
                expected="a longest warm-up that is longer than the least one",
            )
        )
    base_s, load_s = full.slope_s or 0.0, (full.soak_s or 0.0) + most_s
    if is_gated(measure) and base_s > load_s:
        known = f"{_given(measure, 'soak_s')} and {_given(measure, 'warmup_max_s')}"
        found.append(
            Contradiction(
                fields=("slope_s", "warmup_max_s", "soak_s"),
                found=f"{_given(measure, 'slope_s')} with {known}",
                expected=f"slope_s of at most {load_s:g}, which soak and longest warm-up last together: over more the "
                "slopes are never known",
            )
        )
    return tuple(found)


def is_gated(measure: Measure) -> bool:
    """Whether a GPU's temperature or clock must stand still before a trial is measured."""
    full = measure.resolved()
    return full.temperature_slope != "off" or full.clock_slope != "off"


def criterion_words(measure: Measure, *, gpus: bool) -> str:
    """The steady-state criterion in words; `gpus` adds what is asked of temperature and clock.

    >>> criterion_words(Measure(profile="published"), gpus=True)
    'step times within 2 % for 60 s; temperature within 0.5 degC/min, SM clock within 0.2 %/min over 180 s on every GPU'
    >>> criterion_words(Measure(), gpus=True)
    'step times within 5 % for 1 s; temperature and clock not gated'
    """
    full = measure.resolved()
    steps = f"step times within {100 * (full.tolerance or 0.0):g} % for {full.warmup_min_s:g} s"
    parts = []
    if full.temperature_slope != "off":
        parts.append(f"temperature within {full.temperature_slope:g} degC/min")
    if isinstance(full.clock_slope, float):
        parts.append(f"SM clock within {100 * full.clock_slope:g} %/min")
    if not gpus:
        return steps
    if not parts:
        return f"{steps}; temperature and clock not gated"
    return f"{steps}; {', '.join(parts)} over {full.slope_s:g} s on every GPU"


def energy_shortfall(measure: Measure) -> str:
    """Why a window may be too short for a trustworthy energy, or nothing.

    >>> energy_shortfall(Measure(window_s=1))
    'a window of 1 s is shorter than 100 updates of any energy counter (20 to 100 ms each): energy is not to be trusted'
    >>> energy_shortfall(Measure(window_s=10))
    ''
    """
    window_s, (fast_s, slow_s) = measure.resolved().window_s or 0.0, COUNTER_S
    if window_s < UPDATES * fast_s:
        return (
            f"a window of {window_s:g} s is shorter than {UPDATES} updates of any energy counter "
            f"({1e3 * fast_s:g} to {1e3 * slow_s:g} ms each): energy is not to be trusted"
        )
    if window_s < UPDATES * slow_s:
        return (
            f"a window of {window_s:g} s holds {UPDATES} updates of the energy counter only where it is updated every "
            f"{1e3 * window_s / UPDATES:.3g} ms or faster (20 to 100 ms, by GPU): elsewhere energy is not to be trusted"
        )
    return ""


def _given(measure: Measure, field: str) -> str:
    """A field with its value, and the profile it comes from where it is not spelled out."""
    source = "" if getattr(measure, field) is not None else f" (profile {measure.profile})"
    return f"{field} {getattr(measure.resolved(), field):g}{source}"
