"""What sampling costs on its node, in CPU time: the telemetry of 8 GPUs at 10 Hz may take 2 % of one core.

    python tests/bench/telemetry_cost.py                 8 GPUs of a made-up NVML library; needs a C compiler
    python tests/bench/telemetry_cost.py --actor         the same inside its Ray actor, gauges and drains included
    python tests/bench/telemetry_cost.py --real          the GPUs of this machine, and the same scaled to 8
    python tests/bench/telemetry_cost.py --real --actor

The made-up library answers at once, so that Python, the NVML binding and threads are what is measured; only a real
driver (`--real`) says what its calls cost on top. CPU time is user and system time of the process, and with `--actor`
that of an empty actor is taken off. The first second, in which update periods are learnt at 200 Hz, is left out, as is
what importing costs. Nothing is asserted: the last line says whether the bar was met.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

BAR = 0.02
GPUS = 8
SETTLE_S = 2.0
STUB = Path(__file__).with_name("stub_nvml.c")
INSIDE = "TELEMETRY_COST_INSIDE"


def cost_of_sampler(seconds: float, period_s: float) -> tuple[float, int, dict[str, Any]]:
    """Share of a core, GPUs watched, and how sampling went, of a sampler in this process."""
    from rtxscale.telemetry.probe import open_probe
    from rtxscale.telemetry.sampler import Sampler

    sampler = Sampler(open_probe(), "node0", period_s)
    sampler.start()
    time.sleep(SETTLE_S)
    sampler.drain()  # the first one imports
    used_s, began = time.process_time(), time.monotonic()
    time.sleep(seconds)
    sampler.drain()
    share = (time.process_time() - used_s) / (time.monotonic() - began)
    latest = sampler.latest()
    sampler.stop()
    return share, len(latest["gpus"]), latest


def cost_of_actor(seconds: float) -> tuple[float, int, dict[str, Any]]:
    """The same of the actor that a sweep has on each node, over an empty one."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import psutil
    import ray

    from rtxscale.run.watchers import Watcher

    class Empty:
        def pid(self) -> int:
            return os.getpid()

    class Watching(Watcher):
        def pid(self) -> int:
            return os.getpid()

    with tempfile.TemporaryDirectory(prefix="rx-") as scratch:
        ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False, _temp_dir=scratch)
        try:
            empty = ray.remote(Empty).options(num_cpus=0).remote()
            watching = ray.remote(Watching).options(num_cpus=0, max_concurrency=4).remote("node0", "bench")
            processes = [psutil.Process(ray.get(actor.pid.remote())) for actor in (empty, watching)]
            time.sleep(SETTLE_S)
            ray.get(watching.drain.remote())
            before, began = [used(process) for process in processes], time.monotonic()
            end = began + seconds
            while time.monotonic() < end:  # as a sweep does: the newest readings each second, a drain for each trial
                time.sleep(1.0)
                ray.get(watching.latest.remote())
            ray.get(watching.drain.remote())
            passed = time.monotonic() - began
            shares = [(used(process) - start) / passed for process, start in zip(processes, before, strict=True)]
            latest = ray.get(watching.latest.remote())
        finally:
            ray.shutdown()
    return shares[1] - shares[0], len(latest["gpus"]), latest


def used(process: Any) -> float:
    """CPU seconds of a process so far."""
    times = process.cpu_times()
    return float(times.user + times.system)


def with_stub(arguments: list[str]) -> int:
    """Run this again with the made-up NVML library in front."""
    with tempfile.TemporaryDirectory(prefix="rx-") as folder:
        library = Path(folder) / "libnvidia-ml.so.1"
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(STUB)], check=True)
        variables = {**os.environ, "LD_LIBRARY_PATH": folder, INSIDE: "1", "STUB_GPUS": str(GPUS)}
        return subprocess.run([sys.executable, __file__, *arguments], env=variables, check=False).returncode


def main(arguments: list[str]) -> int:
    """Measure, and say whether the bar was met."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", action="store_true", help="this machine's GPUs")
    parser.add_argument("--actor", action="store_true", help="inside the Ray actor, over an empty one")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--period", type=float, default=0.1, help="seconds between two samples; not with --actor")
    asked = parser.parse_args(arguments)
    if not asked.real and INSIDE not in os.environ:
        return with_stub(arguments)
    share, gpus, latest = cost_of_actor(asked.seconds) if asked.actor else cost_of_sampler(asked.seconds, asked.period)
    print(f"{gpus} GPUs: {share:.2%} of a core; {latest['missed_ticks']} ticks missed, {latest['errors']} errors")
    if not gpus:
        print("no GPU was watched: this is the host alone")
        return 1
    scaled = share * GPUS / gpus
    said = "" if gpus == GPUS else f" (from {gpus}, the host's part scaled with them)"
    print(f"{GPUS} GPUs{said}: {scaled:.2%} of a core; bar {BAR:.0%}: {'met' if scaled <= BAR else 'NOT MET'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
