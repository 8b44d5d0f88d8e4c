"""Writes the same small run again and again, each time killed one disk operation later; see test_results_kill.py.

Run as `python killed_writer.py ROOT`. Each killed run is a process of its own, forked from this one. `ROOT/<k>` is left
by a writer killed at operation k, `ROOT/<k>-<j>` by one killed at k whose successor was killed at j. The file `acked`
lists the trials whose commit had returned. Not a test module.
"""

import itertools
import os
import sys
from pathlib import Path

from rtxscale.results.schema import table
from rtxscale.results.write import RunWriter
from rtxscale.spec.sweep import Sweep

TRIALS = (("a", "s1"), ("b", "s1"), ("c", "s2"))
TEXT = "name: killed\n"
SWEEP = Sweep.model_validate(
    {
        "name": "killed",
        "question": "Is anything lost?",
        "study": "weak",
        "workload": {"kind": "vision", "batch_per_gpu": 8},
        "axes": {"gpus": [1, 2]},
    }
)
STEPS = ("open", "write", "pwrite", "ftruncate", "rename", "replace", "unlink", "mkdir", "rmdir", "fsync", "close")
KILLED = 9


def finish(root, acked=lambda trial_id: None):
    """Open the run and do what is missing, as a sweep does."""
    with RunWriter.open(root, SWEEP, TEXT) as writer:
        writer.check_environment("env")
        for trial_id, session_id in TRIALS:
            if trial_id not in writer.attempts():
                writer.commit(rows(trial_id, session_id))
                acked(trial_id)
            if trial_id == "b":
                writer.compact(session_id)


def rows(trial_id, session_id):
    row = {"trial_id": trial_id, "attempt": 1}
    return {
        "trials": table("trials", [{**row, "session_id": session_id, "outcome": "ok"}]),
        "steps": table("steps", [{**row, "step": 0}, {**row, "step": 1}]),
    }


def kill_at(point):
    """Make the process die at its disk operation number `point`; a write is cut in half."""
    count = itertools.count(1)

    def dying(name, real):
        def step(*arguments, **named):
            if next(count) == point:
                if name in ("write", "pwrite"):
                    descriptor, data, *rest = arguments
                    real(descriptor, bytes(data)[: len(data) // 2], *rest)
                os._exit(KILLED)
            return None if name == "fsync" else real(*arguments, **named)

        return step

    for name in STEPS:
        setattr(os, name, dying(name, getattr(os, name)))


def killed(root, point):
    """Whether a writer in this root died at the point; False when it finished before."""
    root.mkdir(exist_ok=True)
    pid = os.fork()
    if not pid:
        write, log = os.write, os.open(root / "acked", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        kill_at(point)
        finish(root / "runs", lambda trial_id: write(log, trial_id.encode()))
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if code not in (0, KILLED):
        raise SystemExit(f"the writer in {root} failed with {code}")
    return code == KILLED


def main(root):
    finish(root / "whole" / "runs")  # loads what is loaded lazily, once for all that are forked
    last = next(k for k in itertools.count(1) if not killed(root / str(k), k))
    kills = last - 1
    for k in range(5, last, 24):
        for j in range(1, last, 16):
            if killed(root / f"{k}-{j}", k):
                kills += 1 + killed(root / f"{k}-{j}", j)
    sys.stdout.write(f"{last - 1} {kills}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
