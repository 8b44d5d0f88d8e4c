"""A sweep whose worker processes are killed or stopped in the middle of chosen trials; prints its result as JSON.

Started by the tests: `planted_faults.py SWEEP RESULTS ADDRESS FAULT...`, one fault per trial in the order they run:
`none`, `kill` (SIGKILL to the last rank) or `stop` (SIGSTOP, so that it hangs; that trial's deadline is short).
"""

import json
import os
import signal
import sys
import threading
from pathlib import Path

from rtxscale.run import session, sweep, torchrun_session
from rtxscale.spec.load import load_sweep

SIGNALS = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
AFTER_S = 1.0
HANG_DEADLINE_S = 8.0


def plant(kind, faults):
    """Make the sessions of this kind send the next fault's signal a second into each order."""
    run = kind.run

    def run_with_fault(self, order, deadline_s):
        fault = faults.pop(0) if faults else "none"
        if fault in SIGNALS:
            victim = self._registered[max(self._registered)].pid
            threading.Timer(AFTER_S, os.kill, (victim, SIGNALS[fault])).start()
        return run(self, order, HANG_DEADLINE_S if fault == "stop" else deadline_s)

    kind.run = run_with_fault


def main(path, results, address, *faults):
    loaded = load_sweep(Path(path))
    left = list(faults)
    plant(session.RaySession, left)
    plant(torchrun_session.TorchrunSession, left)
    result = sweep.execute(
        sweep.SweepRequest(
            sweep=loaded.sweep,
            sweep_text=loaded.text,
            results_root=Path(results),
            address=address,
            stream=sys.stderr,
        )
    )
    print(json.dumps({"run_dir": str(result.run_dir), "total": result.total, "finished": result.finished}))


if __name__ == "__main__":
    main(*sys.argv[1:])
