"""All rules looked at in order, and what follows: findings worst first, and whether anything may run.

Pure. Callers: `cli.doctor`, `doctor.preflight`.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from rtxscale.doctor import driver_rules, gpu_rules, host_rules, link_rules, software_rules, transfer_rules
from rtxscale.doctor.facts import Facts
from rtxscale.doctor.finding import Finding, Hit, Rule, Severity, finding
from rtxscale.errors import BadInput

RULES: tuple[Rule, ...] = (
    *driver_rules.RULES,
    *software_rules.RULES,
    *gpu_rules.RULES,
    *link_rules.RULES,
    *transfer_rules.RULES,
    *host_rules.RULES,
)
RULE_IDS = tuple(rule.id for rule in RULES)


@dataclass(frozen=True, kw_only=True)
class Examination:
    """What was found on a machine, worst first."""

    facts: Facts
    findings: tuple[Finding, ...]

    @property
    def errors(self) -> tuple[Finding, ...]:
        """Findings that stop a sweep: errors that are not ignored."""
        return tuple(one for one in self.findings if one.severity is Severity.ERROR and not one.ignored)

    @property
    def exit_code(self) -> int:
        """1 for an error that is not ignored, else 0."""
        return 1 if self.errors else 0


def examine(facts: Facts, ignore: Collection[str] = ()) -> Examination:
    """Look at every rule; findings of rules in `ignore` are kept, marked, and stop nothing.

    Raises:
        BadInput: a name in `ignore` is no rule.
    """
    check_names(ignore)
    found = [finding(rule, hit, ignored=rule.id in ignore) for rule in RULES for hit in _checked(rule, facts)]
    return Examination(facts=facts, findings=tuple(sorted(found, key=lambda one: (one.ignored, one.severity.rank))))


def check_names(ignore: Collection[str], known: Sequence[str] = RULE_IDS) -> None:
    """See that every name is a rule.

    Raises:
        BadInput: one is not; the nearest are named.
    """
    for name in ignore:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=3) or known
            raise BadInput(f"--ignore: found {name!r}; expected a rule, such as {', '.join(near)}")


def _checked(rule: Rule, facts: Facts) -> Iterator[Hit]:
    try:
        yield from rule.check(facts)
    except Exception as error:  # a fault in one rule must neither stop a sweep nor hide the other findings
        yield Hit(
            severity=Severity.WARNING,
            found=f"this rule failed: {type(error).__name__}: {error}",
            needed="a rule that can judge this machine",
            why="What it looks at was not checked.",
            fix="please report it with the output of `rtxscale doctor --json`",
        )
