"""A sweep whose trials meet chosen faults; prints its result as JSON. Started by the tests.

`planted_faults.py torchrun SWEEP RESULTS ADDRESS FAULT...` names one fault per trial in the order they run: `none` or
`kill` (SIGKILL to the last rank).

`planted_faults.py arms SWEEP RESULTS ADDRESS` takes a trial's fault from its cell's `planted.arm`, a key of `ARMS`.
Most happen inside a rank: the order that goes there plants them on its arrival. Classes in here travel by value.
"""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from rtxscale.run import foreman, pool, session, sweep, torchrun_session
from rtxscale.run.occupancy import Holder, Occupancy, Owner, joined
from rtxscale.spec.load import load_sweep

AFTER_S = 1.0
FLOOR_S = 20.0
ALWAYS, FIRST = "always", "first attempt"
ARMS = {
    "segv": FIRST,
    "stuck": FIRST,
    "visited": FIRST,
    "held": FIRST,
    "nan": ALWAYS,
    "refuted": ALWAYS,
    "oom": ALWAYS,
    "unsteady": ALWAYS,
}
GPU = "GPU-planted"
GAME = Holder(node="node0", uuid=GPU, pid=4242, owner=Owner.FOREIGN, name="game", used_mib=3000.0)


class PlantedRunning:
    """A prepared workload with a fault in the third step, of the last rank alone but for `stuck`, where all stop."""

    def __init__(self, running, fault, last):
        self._running, self._fault, self._last = running, fault, last
        self._steps = 0

    def __getattr__(self, name):
        return getattr(self._running, name)

    def step(self):
        self._steps += 1
        if self._steps == 3:
            self._strike()
        return self._running.step()

    def _strike(self):
        if self._fault == "stuck":
            if self._last:
                os.kill(os.getpid(), signal.SIGSTOP)
            time.sleep(10_000)
        elif self._fault == "segv" and self._last:
            os.kill(os.getpid(), signal.SIGSEGV)
        elif self._fault == "oom" and self._last:
            bytearray(1 << 60)

    def loss(self):
        return float("nan") if self._fault == "nan" and self._last and self._steps > 2 else self._running.loss()

    def attest(self):
        from rtxscale.nccl.attest import Attested, Verdict

        rows = self._running.attest()
        if self._fault != "refuted":
            return rows
        planted = Attested(
            subject="nccl.channels", requested="64", observed="2", verdict=Verdict.REFUTED, evidence="planted"
        )
        return (*rows, planted)


class PlantedWorkload:
    """A workload with the fault of the order that came last."""

    def __init__(self, inner, fault):
        self.inner, self._fault = inner, fault

    def prepare(self, context):
        return PlantedRunning(self.inner.prepare(context), self._fault, context.rank == context.world - 1)


class PlantedOrder:
    """An order that plants its fault where somebody reads the trial of it, which only ranks do."""

    def __init__(self, order, fault):
        self.trial_id, self.attempt = order.trial_id, order.attempt
        self._trial, self._fault = order.trial, fault

    @property
    def trial(self):
        from rtxscale.workloads.registry import IMPLEMENTATIONS

        there = IMPLEMENTATIONS["vision"]
        IMPLEMENTATIONS["vision"] = PlantedWorkload(getattr(there, "inner", there), self._fault)
        if self._fault != "unsteady":
            return self._trial
        # Noise is larger than this tolerance, whatever the machine.
        measure = self._trial.cell.measure.model_copy(update={"tolerance": 1e-9, "warmup_max_s": 1.0})
        return self._trial.model_copy(update={"cell": self._trial.cell.model_copy(update={"measure": measure})})


class PlantedPool(pool.Pool):
    """A pool of one GPU that exists in the test alone, on which a game runs when the trial's fault says so."""

    def __init__(self, uuids, look, note, interruption):
        super().__init__([GPU], lambda: joined([look(), planted_occupancy()]), note, interruption)


FAULT = ["none"]
"""Of the trial that is being served."""


def planted_occupancy():
    return Occupancy(
        now=(GAME,) if FAULT[0] == "held" else (), seen=(GAME,) if FAULT[0] == "visited" else (), used_mib={GPU: 100.0}
    )


def plant_arms():
    """Let each trial's own cell say what happens to it."""
    run, measure = session.RaySession.run, foreman.Foreman._measure

    def measure_with_fault(self, todo):
        arm = todo.planned.trial.cell.planted.arm
        FAULT[0] = arm if ARMS.get(arm) == ALWAYS or (ARMS.get(arm) == FIRST and todo.attempt == 1) else "none"
        return measure(self, todo)

    def run_with_fault(self, order, deadline_s):
        return run(self, PlantedOrder(order, FAULT[0]), deadline_s)

    foreman.Foreman._measure = measure_with_fault
    session.RaySession.run = run_with_fault
    foreman.Pool = PlantedPool
    pool.LEAVE_S = 1.0


def plant_kills(faults):
    """Have torchrun's sessions meet the next fault a second into each order."""
    run = torchrun_session.TorchrunSession.run

    def run_with_fault(self, order, deadline_s):
        if faults and faults.pop(0) == "kill":
            victim = self._registered[max(self._registered)].pid
            threading.Timer(AFTER_S, os.kill, (victim, signal.SIGKILL)).start()
        return run(self, order, deadline_s)

    torchrun_session.TorchrunSession.run = run_with_fault


def main(mode, path, results, address, *faults):
    loaded = load_sweep(Path(path))
    if mode == "arms":
        plant_arms()
    else:
        plant_kills(list(faults))
    result = sweep.execute(
        sweep.SweepRequest(
            sweep=loaded.sweep,
            sweep_text=loaded.text,
            results_root=Path(results),
            address=address,
            deadline_floor_s=FLOOR_S if mode == "arms" else sweep.DEADLINE_FLOOR_S,
            stream=sys.stderr,
        )
    )
    print(json.dumps({"run_dir": str(result.run_dir), "total": result.total, "finished": result.finished}))


if __name__ == "__main__":
    main(*sys.argv[1:])
