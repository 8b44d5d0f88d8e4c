"""A sweep on real GPUs whose trials meet chosen faults; prints its result as JSON. Started by the tests.

`planted_gpu_faults.py SWEEP RESULTS`: a trial's fault is its cell's `planted.arm`, at the first attempt: `visited` has
a process of somebody else on the first GPU while it runs, `held` has one there before it begins, `stop` (SIGSTOP) and
`kill` hit its last rank in the middle.
"""

import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import contextmanager
from pathlib import Path

from rtxscale.run import foreman, pool, session, sweep
from rtxscale.run.cluster import OWNER_VARIABLE
from rtxscale.spec.load import load_sweep

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
AFTER_S = 4.0
HANG_DEADLINE_S = 20.0
VISITOR = """
import sys, torch
held = torch.zeros(2**28, device="cuda:0")
torch.cuda.synchronize()
print("here", flush=True)
sys.stdin.read()
"""


@contextmanager
def visitor():
    """Somebody else's process with a GiB of the first GPU: not below our cluster, and without its mark."""
    environment = {name: value for name, value in os.environ.items() if name != OWNER_VARIABLE}
    with subprocess.Popen(
        [sys.executable, "-c", VISITOR], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    ) as process:
        assert process.stdout.readline().strip() == b"here"
        try:
            yield process
        finally:
            process.stdin.close()
            process.wait(30)


def plant():
    """Let each trial's own cell say what happens to it."""
    run, measure = session.RaySession.run, foreman.Foreman._measure
    fault = [""]

    def measure_with_fault(self, todo):
        fault[0] = todo.planned.trial.cell.planted.arm if todo.attempt == 1 else ""
        if fault[0] != "held":
            return measure(self, todo)
        with visitor():
            return measure(self, todo)

    def run_with_fault(self, order, deadline_s):
        if fault[0] in SIGNALS:
            victim = self._registered[max(self._registered)].pid
            threading.Timer(AFTER_S, os.kill, (victim, SIGNALS[fault[0]])).start()
        if fault[0] != "visited":
            return run(self, order, HANG_DEADLINE_S if fault[0] == "stop" else deadline_s)
        with visitor():
            return run(self, order, deadline_s)

    foreman.Foreman._measure = measure_with_fault
    session.RaySession.run = run_with_fault
    pool.LEAVE_S = 2.0


def main(path, results):
    loaded = load_sweep(Path(path))
    plant()
    result = sweep.execute(
        sweep.SweepRequest(sweep=loaded.sweep, sweep_text=loaded.text, results_root=Path(results), stream=sys.stderr)
    )
    print(json.dumps({"run_dir": str(result.run_dir), "total": result.total, "finished": result.finished}))


if __name__ == "__main__":
    main(*sys.argv[1:])
