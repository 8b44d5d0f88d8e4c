"""Real kills at random moments of a sweep on two simulated nodes, until it completes; what is asserted afterwards.

Complete is a sweep whose every cell has a result. A cell whose workers were killed twice in a row is rightly given up;
it counts as complete if it was struck in both attempts, has its rows, and the sweep says so. Used by
`test_campaign.py` (some tens of kills) and by `tests/bench/faults.py` (as many as there is time for). Not a test
module.
"""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from conftest import REPOSITORY, another_node, command_of, processes_of, wait_for
from tiny import sweep_file

from rtxscale.results.live import read_live
from rtxscale.results.manifest import is_ours
from rtxscale.results.read import open_verified
from rtxscale.run.processes import descendants

TITLES = {"rank": "RayTrainWorker", "telemetry": "ray::Watcher", "session": "ray::Host"}
TARGETS = ("driver", "rank", "telemetry", "session", "raylet")
OURS = re.compile(r"RayTrainWorker|TrainController|ray::(Watcher|Host|Hub|Turn|TorchrunHost)|rtxscale[. ](rank|sweep)")
ACKNOWLEDGED = re.compile(r"^\[\d+/\d+\] (?P<cell>.+?): ok", re.MULTILINE)
STRANDED = ", for a node that they need was lost; "
GIVEN_UP = re.compile(r"^(in quarantine: \d+|\d+ of the finished trials failed)", re.MULTILINE)
KILLED = frozenset({"crashed", "hang"})
PLACES = ("packed", "spread")
"""Both workers on the head, and one on each node."""
STUCK_S = 600
"""A driver that has neither said nor done anything for this long hangs: twice what a silent trial may take."""
QUIET_S = 120
FRESH_S = 2.0
"""An older state may be that of the trial before."""
AFTERMATH_S = 90
"""How long after a strike a trial may still die of it: a dead node looks alive for some time."""
MOST_RUNS = 40
"""Of one sweep: drivers and nodes are killed again and again, each time it is continued."""


@dataclass
class Campaign:
    """One sweep under fire. `kills` counts what was really killed; `wrong` holds every broken promise.

    `given_up` are the cells that were killed twice, `calls` exit code and last words of every driver.
    """

    head: object
    directory: Path
    random: random.Random
    wanted: int
    targets: tuple = TARGETS
    buckets: int = 8
    kills: Counter = field(default_factory=Counter)
    wrong: list = field(default_factory=list)
    given_up: list = field(default_factory=list)
    calls: list = field(default_factory=list)

    def run(self, name):
        """Run the sweep to its end under `wanted` kills; what was promised is in `wrong` if it was not kept."""
        buckets = str(list(range(1, self.buckets + 1)))
        sweep = sweep_file(self.directory, name, gpus="[2]", buckets=buckets, window_s=0.3)
        text = sweep.read_text()
        sweep.write_text(text.replace("  gpus: [2]\n", f"  gpus: [2]\n  placement: [{', '.join(PLACES)}]\n"))
        self._acknowledged, self._strikes, self._nodes = [], [], ExitStack()
        results = self.directory / f"{name}-results"
        with self._nodes:
            self._node = self._nodes.enter_context(another_node(self.head))
            if not any(self._one_driver(sweep, results) for _ in range(MOST_RUNS)):
                self.wrong.append(f"{name}: not complete after {MOST_RUNS} calls")
            self._check(name, results)
        self.wrong += [f"{name}: call {at}: {said}" for at, said in enumerate(self.calls, 1) if self.wrong]
        return self

    def _one_driver(self, sweep, results):
        """Start the driver and kill at random moments until it ends; whether the sweep is complete."""
        if self._node.poll() is not None or not self._pids("raylet", None):
            self._nodes.close()
            self._node = self._nodes.enter_context(another_node(self.head))
        path = self.directory / f"driver-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "rtxscale", "sweep", str(sweep), "--results", str(results), "--no-report"]
        with path.open("wb") as log:
            driver = subprocess.Popen(
                [*command, "--address", self.head.address],
                env=self.head.environment,
                cwd=REPOSITORY,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        moved, last = time.monotonic(), None
        while driver.poll() is None:
            state = self._state(results)
            if (seen := (path.stat().st_size, getattr(state, "current", ""))) != last:
                moved, last = time.monotonic(), seen
            if time.monotonic() - moved > STUCK_S:
                self.wrong.append(f"{path}: the driver hangs")
                driver.kill()
                driver.wait(30)
                break
            if sum(self.kills.values()) < self.wanted and self._measuring(results):
                time.sleep(self.random.uniform(0.0, 2.0))
                self._strike(driver, results)
            time.sleep(0.2)
        return self._ended(path, driver.returncode)

    def _ended(self, path, code):
        """Take down what a driver has said; whether nothing is left to do."""
        output = path.read_text(errors="replace")
        self.calls.append(f"exit code {code}: {' | '.join(output.splitlines()[-3:])[-300:]}")
        if "Traceback" in output and "KeyboardInterrupt" not in output:
            self.wrong.append(f"{path}: a traceback")
        self._acknowledged += [match["cell"] for match in ACKNOWLEDGED.finditer(output)]
        self._reported = GIVEN_UP.search(output) is not None
        return code == 0 or (code == 1 and self._reported and STRANDED not in output)

    def _state(self, results):
        with suppress(OSError):
            for run_dir in self._runs(results):
                return read_live(run_dir)
        return None

    @staticmethod
    def _runs(results):
        return [path for path in results.iterdir() if is_ours(path) and not path.name.startswith(".")]

    def _measuring(self, results):
        """A first attempt is being measured: a second kill of one cell in a row would rightly be its last."""
        state = self._state(results)
        fresh = state is not None and time.time_ns() - state.updated_ns < FRESH_S * 1e9
        return fresh and "gpus=" in state.current and "attempt" not in state.current

    def _strike(self, driver, results):
        there = {target: pids for target in self.targets if (pids := self._pids(target, driver))}
        if not there or not self._measuring(results):
            return
        target = min(there, key=lambda one: (self.kills[one], self.random.random()))
        with suppress(ProcessLookupError):
            os.kill(self.random.choice(there[target]), signal.SIGKILL)
            self.kills[target] += 1
            self._strikes.append(time.time_ns())
            self._until_recovered(driver, results)

    def _pids(self, target, driver):
        if target == "driver":
            return [driver.pid]
        if target == "raylet":
            return [pid for pid in descendants(self._node.pid) if "/raylet" in command_of(pid).split(" ")[0]]
        return [pid for pid in processes_of(self.head.home) if TITLES[target] in command_of(pid)]

    def _until_recovered(self, driver, results):
        """Let one fault pass before the next: until another trial has ended well, or the driver has."""
        before = getattr(self._state(results), "finished", 0)
        deadline = time.monotonic() + AFTERMATH_S
        while driver.poll() is None and time.monotonic() < deadline:
            if getattr(self._state(results), "finished", before) >= before + 1:
                return
            time.sleep(0.1)

    def _check(self, name, results):
        run_dir, *others = self._runs(results)
        self.wrong += [f"{name}: a second run of the same sweep: {path.name}" for path in others]
        run = open_verified(run_dir)
        rows = run.frame("trials").collect().to_dicts()
        steps = Counter((row["trial_id"], row["attempt"]) for row in run.frame("steps").collect().to_dicts())
        names = Counter((row["trial_id"], row["attempt"]) for row in rows)
        done = [row for row in rows if row["outcome"] == "ok"]
        cells = {json.dumps(json.loads(row["axes_json"]), sort_keys=True) for row in done}
        self.wrong += [f"{name}: {one} is there {count} times" for one, count in names.items() if count > 1]
        self.wrong += [
            f"{name}: {row['trial_id']} is ok and has no step"
            for row in done
            if not steps[row["trial_id"], row["attempt"]]
        ]
        self.wrong += [f"{name}: steps of {one} without a trial" for one in steps if one not in names]
        if len({row["trial_id"] for row in done}) < len(self._acknowledged):
            self.wrong.append(
                f"{name}: {len(self._acknowledged)} trials were said to be finished, {len(done)} are there"
            )
        for one in (cell for cell in self._planned() if cell not in cells):
            tried = [row for row in rows if json.dumps(json.loads(row["axes_json"]), sort_keys=True) == one]
            if self._reported and self._killed_twice(tried):
                self.given_up.append(one)
            else:
                outcomes = ", ".join(f"{row['outcome']}: {row['message']}" for row in tried) or "no row"
                self.wrong.append(f"{name}: no result of {one} ({outcomes})")
        with suppress(AssertionError):
            wait_for(lambda: not self._left(), QUIET_S, "all to end")
        self.wrong += [f"{name}: still running: {one}" for one in self._left()]

    def _killed_twice(self, tried):
        """Whether each of two attempts or more ended under a strike of its own."""
        free = sorted(self._strikes)
        for row in sorted(tried, key=lambda row: row["ended_ns"]):
            since = row["started_ns"] - AFTERMATH_S * 1e9
            mine = [at for at in free if since <= at <= row["ended_ns"]]
            if row["outcome"] not in KILLED or not mine:
                return False
            free.remove(mine[-1])
        return len(tried) >= 2

    def _planned(self):
        return [
            json.dumps({"ddp.bucket_mib": float(bucket), "gpus": 2, "placement": place}, sort_keys=True)
            for place in PLACES
            for bucket in range(1, self.buckets + 1)
        ]

    def _left(self):
        return [command_of(pid)[:80] for pid in processes_of(self.head.home) if OURS.search(command_of(pid))]
