"""What was asked of NCCL against what its log says it did: honoured, refuted, or not proven either way.

Pure. Nothing is honoured by default: without evidence the verdict is `not attested`. `rank` calls it after a trial with
the facts of `nccl.log`; a refuted request ends the trial as `not_honoured`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from rtxscale.nccl.knobs import Knobs, version_text
from rtxscale.nccl.log import LogFacts, Selection

LARGE_BYTES = 2**20
"""Smaller messages do not count: NCCL may use other communicators, kernels and fewer channels for them."""

BYTES_PER_CHANNEL = 2**16
"""A message at least this large per requested channel uses all of them.

Source: NCCL drops channels while a message is smaller than channels x threads x threshold, at most 640 x 64 B for the
simple protocol (`topoGetAlgoInfo` in src/enqueue.cc, v2.20 to v2.30); for LL up to 16 ranks.
"""

DIRECT_ALGORITHMS = frozenset({"nvls", "nvlstree"})
"""NVLink multicast: data moves between GPUs although no P2P transport is connected."""


class Verdict(StrEnum):
    """The value of `attestation.verdict`."""

    HONOURED = "honoured"
    REFUTED = "refuted"
    NOT_ATTESTED = "not attested"
    NOT_APPLICABLE = "not applicable"


@dataclass(frozen=True, kw_only=True)
class Attested:
    """One knob: what was asked, what was seen (None if nothing was), the verdict and where it was seen."""

    subject: str
    requested: str
    observed: str | None
    verdict: Verdict
    evidence: str


def attest(knobs: Knobs, facts: LogFacts, world: int) -> tuple[Attested, ...]:
    """One verdict per knob: algorithm, channels, protocol, P2P, in this order.

    `facts` should come from the log since the trial's communicator was created, of rank 0 at least: only rank 0 logs
    choices per message. With one rank nothing is communicated and nothing applies.
    """
    judged = (_algorithm(knobs, facts), _channels(knobs, facts), _protocol(knobs, facts), _p2p(knobs, facts))
    if world < 2:
        return tuple(_instead(one, Verdict.NOT_APPLICABLE, "one rank: nothing is communicated") for one in judged)
    return tuple(_without_doubt(one, facts) for one in judged)


def _algorithm(knobs: Knobs, facts: LogFacts) -> Attested:
    """A forced algorithm holds for all-reduce alone."""
    chosen = [one for one in _large(facts) if one.function in ("all_reduce", None)]
    return _choice("nccl.algorithm", knobs.algorithm, chosen, [one.algorithm for one in chosen], facts)


def _protocol(knobs: Knobs, facts: LogFacts) -> Attested:
    chosen = _representative(facts)
    return _choice("nccl.protocol", knobs.protocol, chosen, [one.protocol for one in chosen], facts)


def _choice(
    subject: str, requested: str, chosen: Sequence[Selection], values: Sequence[str], facts: LogFacts
) -> Attested:
    """Judge a named choice: honoured if every message had it, refuted if one did not."""
    seen: Counter[str] = Counter()
    for one, value in zip(chosen, values, strict=True):
        seen[value] += one.count
    others = set(seen) - {requested}
    if requested == "auto":
        verdict = Verdict.NOT_APPLICABLE
    elif not seen or _is_mixed_and_nameless(requested, seen, chosen):
        verdict = Verdict.NOT_ATTESTED
    else:
        verdict = Verdict.REFUTED if others else Verdict.HONOURED
    return Attested(
        subject=subject,
        requested=requested,
        observed=", ".join(name for name, _ in seen.most_common()) or None,
        verdict=verdict,
        evidence=_evidence(chosen, facts),
    )


def _is_mixed_and_nameless(requested: str, seen: Counter[str], chosen: Sequence[Selection]) -> bool:
    """Whether other choices may belong to other collectives: before 2.23 the log does not name them."""
    return requested in seen and len(seen) > 1 and all(one.function is None for one in chosen)


def _channels(knobs: Knobs, facts: LogFacts) -> Attested:
    requested, chosen = knobs.channels, _representative(facts)
    counted = [one for one in chosen if one.channels is not None]
    observed = max((one.channels or 0 for one in counted), default=None)
    evidence = _evidence(counted, facts)
    if not counted and facts.channels:
        observed = max(facts.channels)
        evidence = f"communicators with {_listed(facts.channels)} channels; use per message is not logged"
    if facts.refused:
        evidence += "; NCCL said: " + " / ".join(facts.refused)
    return Attested(
        subject="nccl.channels",
        requested="auto" if requested is None else str(requested),
        observed=None if observed is None else str(observed),
        verdict=_channels_verdict(requested, counted, facts),
        evidence=evidence,
    )


def _channels_verdict(requested: int | None, counted: Sequence[Selection], facts: LogFacts) -> Verdict:
    """Too many at any large message refutes; too few only where the message is large enough to need them all."""
    if requested is None:
        return Verdict.NOT_APPLICABLE
    if not counted:
        if not facts.channels or (requested in facts.channels and len(facts.channels) > 1):
            return Verdict.NOT_ATTESTED  # with several communicators nobody knows which one is meant
        return Verdict.HONOURED if requested in facts.channels else Verdict.REFUTED
    used = max(one.channels or 0 for one in counted)
    if used == requested:
        return Verdict.HONOURED
    largest = max(one.size_bytes for one in counted)
    if used > requested or largest >= requested * BYTES_PER_CHANNEL:
        return Verdict.REFUTED
    return Verdict.NOT_ATTESTED


def _p2p(knobs: Knobs, facts: LogFacts) -> Attested:
    """`disabled` is refuted by any P2P transport or NVLink multicast; `auto` may do without P2P (GeForce does)."""
    direct = sorted(name for name in facts.transports if name.startswith("P2P/"))
    direct += sorted({one.algorithm for one in _large(facts) if one.algorithm in DIRECT_ALGORITHMS})
    if knobs.p2p == "auto":
        verdict = Verdict.NOT_APPLICABLE
    elif direct:
        verdict = Verdict.REFUTED
    else:
        verdict = Verdict.HONOURED if facts.transports else Verdict.NOT_ATTESTED
    connections = [f"{name} {count} times" for name, count in sorted(facts.transports.items())]
    others = sorted(set(facts.transports) - set(direct))
    return Attested(
        subject="nccl.p2p",
        requested=knobs.p2p,
        observed=_listed([*direct, *others]) or None,
        verdict=verdict,
        evidence="connections: " + _listed(connections) if connections else "no connection in the log",
    )


def _large(facts: LogFacts) -> list[Selection]:
    return [one for one in facts.selections if one.size_bytes >= LARGE_BYTES]


def _representative(facts: LogFacts) -> list[Selection]:
    """Large all-reduces, or every large message when there is no all-reduce among them."""
    large = _large(facts)
    return [one for one in large if one.function == "all_reduce"] or large


def _evidence(chosen: Sequence[Selection], facts: LogFacts) -> str:
    """Where a choice was seen, or why it was not."""
    if not chosen:
        if facts.selections_logged is False:
            return f"{version_text(facts.version)} does not log its choices"
        return f"no message of at least {LARGE_BYTES} bytes in {facts.lines} NCCL lines"
    largest = max(chosen, key=lambda one: one.size_bytes)
    functions = _listed(sorted({one.function or "message" for one in chosen}))
    channels = "" if largest.channels is None else f", channels {largest.first_channel} to {largest.last_channel}"
    return (
        f"{sum(one.count for one in chosen)} x {functions} of at least {LARGE_BYTES} bytes; "
        f"largest {largest.size_bytes}: {largest.algorithm}/{largest.protocol}{channels}"
    )


def _without_doubt(one: Attested, facts: LogFacts) -> Attested:
    """With lines missing, what is seen still refutes, but what is not seen proves nothing."""
    if (facts.lossy or facts.cut) and one.verdict is Verdict.HONOURED:
        return _instead(one, Verdict.NOT_ATTESTED, f"{one.evidence}; lines are missing from this log, or cut short")
    return one


def _instead(one: Attested, verdict: Verdict, evidence: str) -> Attested:
    return Attested(
        subject=one.subject, requested=one.requested, observed=one.observed, verdict=verdict, evidence=evidence
    )


def _listed(items: Sequence[object]) -> str:
    return ", ".join(map(str, items))
