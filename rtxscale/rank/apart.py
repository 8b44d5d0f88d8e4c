"""The no_sync arm: the same ranks train the same steps at once, but without a word to each other.

What they then need more than one worker alone is power, heat, host and memory that they share: the arm is the control
of independent 1-GPU copies at once. It runs last in a trial, after everything else has been measured, and leaves equal
parameters behind. Its steps go into the steps table; what they mean is `analysis.budget`'s business. Caller:
`rank.trial`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from rtxscale.nccl.attest import Attested, Verdict
from rtxscale.rank.clock import run_steps
from rtxscale.rank.warmup import Stepper

PHASE = "no_sync"
SUBJECT = "measure.loss_budget"
ASKED = "steps without synchronisation"
LEAST_SETTLING, SETTLING = 5, 0.1
"""Steps before the arm's own: at least so many, and this share of them.

DDP's first step without synchronisation still hands buffers round, compiled code is made anew, and the device has
idled since the window.
"""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """How the arm went, and the seconds it took with its settling; None where it could not run."""

    attested: Attested
    seconds: float | None = None


def no_sync_arm(stepper: Stepper, steps: int, world: int) -> Arm:
    """Run so many steps apart on all ranks, keep their times as phase `no_sync`, make the ranks equal again.

    Losses that are not finite end the arm, not the trial: its window was measured before.

    Raises:
        Stopped: another rank failed.
    """
    apart = stepper.running.apart()
    if apart is None:
        why = "one rank: nothing is synchronised" if world == 1 else "this workload cannot step without communication"
        return Arm(attested=_attested(None, Verdict.NOT_APPLICABLE, why))
    start = time.perf_counter()
    with apart.steps():
        run_steps(stepper.running.step, settling(steps), stepper.device)
        stepper.control.exchange(None)  # all begin together
        pending = stepper.window(steps)
        pending.wait()
    finite = stepper.keep_finite(PHASE, pending.block())
    equal = apart.rejoin()
    return Arm(attested=_judged(steps, finite=finite, equal=equal), seconds=time.perf_counter() - start)


def settling(steps: int) -> int:
    """Steps that are not timed, before an arm of so many.

    >>> settling(10), settling(200)
    (5, 20)
    """
    return max(LEAST_SETTLING, round(SETTLING * steps))


def _judged(steps: int, *, finite: bool, equal: bool) -> Attested:
    """Unequal parameters after a broadcast mean that the transport cannot be trusted."""
    evidence = "byte sums of parameters and buffers of all ranks after the broadcast from rank 0"
    if not equal:
        return _attested("ranks that differ after the broadcast", Verdict.REFUTED, evidence)
    if not finite:
        return _attested(None, Verdict.NOT_ATTESTED, "the loss of some rank was not finite in the arm")
    return _attested(f"{steps} steps, ranks equal again", Verdict.HONOURED, evidence)


def _attested(observed: str | None, verdict: Verdict, evidence: str) -> Attested:
    return Attested(subject=SUBJECT, requested=ASKED, observed=observed, verdict=verdict, evidence=evidence)
