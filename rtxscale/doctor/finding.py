"""Rules and findings as data: what was found, what is needed, why, how to fix it, and who says so.

Nothing is collected or printed here. Callers: the files with rules, `doctor.examine`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from rtxscale.doctor.facts import Facts

SUBJECT = "doctor"
"""Of findings in the environment table: recorded, no part of what was measured."""


class Severity(StrEnum):
    """How bad a finding is, worst first. Only errors stop a sweep."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return tuple(Severity).index(self)


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One way in which a machine meets a rule; a text that is not empty takes the place of the rule's own."""

    severity: Severity
    found: str
    needed: str = ""
    why: str = ""
    fix: str = ""


@dataclass(frozen=True, kw_only=True)
class RuleText:
    """What a rule says by itself, whatever it looks at."""

    id: str
    needed: str
    why: str
    fix: str
    source: str


@dataclass(frozen=True, kw_only=True)
class Rule(RuleText):
    """One thing that is looked at; `check` is pure and gives a hit for each way in which it is not as it should be."""

    check: Callable[[Facts], Iterable[Hit]]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One result of one rule. `ignored`: the user knows, and it stops nothing."""

    rule: str
    severity: Severity
    found: str
    needed: str
    why: str
    fix: str
    source: str
    ignored: bool = False


def finding(rule: RuleText, hit: Hit, *, ignored: bool = False) -> Finding:
    """The rule's texts, and the hit's where it has its own."""
    return Finding(
        rule=rule.id,
        severity=hit.severity,
        found=hit.found,
        needed=hit.needed or rule.needed,
        why=hit.why or rule.why,
        fix=hit.fix or rule.fix,
        source=rule.source,
        ignored=ignored,
    )


def gpus_text(indices: Iterable[int]) -> str:
    """GPUs in words.

    >>> gpus_text([0]), gpus_text([2, 0, 1, 5])
    ('GPU 0', 'GPUs 0-2, 5')
    """
    numbers = sorted(set(indices))
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    parts = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return f"GPU{'s' if len(numbers) > 1 else ''} {', '.join(parts)}"
