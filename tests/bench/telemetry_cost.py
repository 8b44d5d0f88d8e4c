"""What sampling costs on its node: CPU time, of which 8 GPUs at 10 Hz may take 2 % of one core, and throughput.

    python tests/bench/telemetry_cost.py                 8 GPUs of a made-up NVML library; needs a C compiler
    python tests/bench/telemetry_cost.py --actor         the same inside its Ray actor, gauges and drains included
    python tests/bench/telemetry_cost.py --real          the GPUs of this machine, and the same scaled to 8
    python tests/bench/telemetry_cost.py --real --actor
    python tests/bench/telemetry_cost.py --real --throughput [--actor]     training on GPU 0; a minute and a half

The made-up library answers at once, so that Python, the NVML binding and threads are what is measured; only a real
driver (`--real`) says what its calls cost on top. CPU time is user and system time of the process, and with `--actor`
that of an empty actor is taken off. The first second, in which update periods are learnt at 200 Hz, is left out, as is
what importing costs.

With `--throughput`, a process trains while another one samples every GPU, which is stopped and continued by signals in
the order A B B A: rates of steps with telemetry over without, pair by pair, with Student's interval. The bar is 0.5 %.
At the default batch the GPU decides how long a step takes, as in a sweep that is worth its numbers; `--batch 2048`
leaves it to the launching thread, which other processes disturb with or without telemetry.
Nothing is asserted: the last line says whether the bar was met; open: noise decides, more `--pairs` would tell.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

BAR = 0.02
THROUGHPUT_BAR = 0.005
SETTLE_AGAIN_S = 0.5
"""After a sampler was continued: its threads catch up."""
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


@contextlib.contextmanager
def actors() -> Iterator[tuple[Any, Any, Any]]:
    """Ray, an empty actor, and the one that a sweep has on each node; both tell their process id."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray

    from rtxscale.run.watcher import Watcher

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
            yield ray, empty, ray.remote(Watching).options(num_cpus=0, max_concurrency=4).remote("node0", "bench")
        finally:
            ray.shutdown()


def cost_of_actor(seconds: float) -> tuple[float, int, dict[str, Any]]:
    """The same of the actor that a sweep has on each node, over an empty one."""
    import psutil

    with actors() as (ray, empty, watching):
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
    return shares[1] - shares[0], len(latest["gpus"]), latest


@contextlib.contextmanager
def sampler_apart(period_s: float) -> Iterator[tuple[int, Callable[[], Any]]]:
    """A sampler in a process of its own: its process id, and what to do every second while it works."""
    command = [sys.executable, __file__, "--watch", str(period_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline().strip() == "0":
                raise SystemExit("no GPU is watched: this would be the cost of the host's counters alone")
            yield process.pid, lambda: None
        finally:
            process.kill()


@contextlib.contextmanager
def sampler_in_actor(period_s: float) -> Iterator[tuple[int, Callable[[], Any]]]:
    """The same as an actor, asked for its newest readings every second as a sweep does; the period is its own."""
    with actors() as (ray, _, watching):
        pid = ray.get(watching.pid.remote())
        time.sleep(SETTLE_S)
        if not ray.get(watching.latest.remote())["gpus"]:
            raise SystemExit("no GPU is watched: this would be the cost of the host's counters alone")
        yield pid, lambda: ray.get(watching.latest.remote())


def watch(period_s: float) -> None:
    """The sampler's process: says how many GPUs it watches, then samples until it is killed."""
    from rtxscale.telemetry.probe import open_probe
    from rtxscale.telemetry.sampler import Sampler

    sampler = Sampler(open_probe(), "node0", period_s)
    sampler.start()
    time.sleep(SETTLE_S)
    sampler.drain()
    print(len(sampler.latest()["gpus"]), flush=True)
    while True:
        time.sleep(10.0)
        sampler.drain()


@contextlib.contextmanager
def training(batch: int) -> Iterator[Callable[[float, Callable[[], Any]], float]]:
    """A process that trains when asked: steps per second over so many seconds, something being done every second."""
    command = [sys.executable, __file__, "--train", str(batch)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        stdin, stdout = process.stdin, process.stdout
        assert stdin is not None
        assert stdout is not None

        def rate(seconds: float, each_second: Callable[[], Any]) -> float:
            stdin.write(f"{seconds}\n")
            stdin.flush()
            end = time.monotonic() + seconds
            while time.monotonic() < end - 1.0:
                time.sleep(1.0)
                each_second()
            return float(json.loads(stdout.readline()))

        try:
            print(f"training on {stdout.readline().strip()}", flush=True)
            yield rate
        finally:
            process.kill()


def train(rows: int) -> None:
    """The training process: some 300 kernels a step, over so many rows on a GPU; answers with steps a second."""
    import torch

    cuda = torch.cuda.is_available()
    device, precision, width, batch = ("cuda", torch.bfloat16, 2048, rows) if cuda else ("cpu", torch.float32, 64, 64)
    torch.set_num_threads(1)  # the launching thread is what a sampler may disturb
    torch.manual_seed(0)
    blocks = [(torch.nn.Linear(width, width), torch.nn.GELU(), torch.nn.LayerNorm(width)) for _ in range(24)]
    model = torch.nn.Sequential(*(layer for block in blocks for layer in block)).to(device, precision)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    samples = torch.randn(batch, width).to(device, precision)

    def steps(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad(set_to_none=True)
            model(samples).float().square().mean().backward()
            optimizer.step()
        if cuda:
            torch.cuda.synchronize()

    steps(20)
    print(torch.cuda.get_device_name() if cuda else "the CPU: that says nothing of GPUs", flush=True)
    for line in sys.stdin:
        done, began = 0, time.perf_counter()
        while (passed := time.perf_counter() - began) < float(line):
            steps(10)
            done += 10
        print(json.dumps(done / passed), flush=True)


def cost_in_throughput(asked: argparse.Namespace) -> int:
    """Rates of training with telemetry over without, A B B A, and whether the bar is met."""
    from rtxscale.stats.compare import paired_ratio

    rates: dict[bool, list[float]] = {True: [], False: []}
    sampler = sampler_in_actor if asked.actor else sampler_apart
    with training(asked.batch) as rate, sampler(asked.period) as (pid, each_second):
        rate(3 * asked.block, each_second)  # warm
        for pair in range(asked.pairs):
            for watched in (True, False) if pair % 2 == 0 else (False, True):
                os.kill(pid, signal.SIGCONT if watched else signal.SIGSTOP)
                time.sleep(SETTLE_AGAIN_S)
                rates[watched].append(rate(asked.block, each_second if watched else lambda: None))
        os.kill(pid, signal.SIGCONT)
    found = paired_ratio(rates[True], rates[False])
    ratio, low, high = (float(value) for value in (found.ratio, found.low, found.high))
    print(f"throughput with telemetry over without: {ratio:.5f} ({low:.5f}-{high:.5f}, 95 %, {asked.pairs} pairs)")
    met = "met" if low >= 1 - THROUGHPUT_BAR else "NOT MET" if high < 1 - THROUGHPUT_BAR else "open"
    print(f"a loss of at most {THROUGHPUT_BAR:.1%}: {met}")
    return 0


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
    parser.add_argument("--throughput", action="store_true", help="what telemetry costs training beside it")
    parser.add_argument("--pairs", type=int, default=8, help="with --throughput: pairs with and without")
    parser.add_argument("--block", type=float, default=3.5, help="with --throughput: seconds of each measurement")
    parser.add_argument("--batch", type=int, default=16384, help="with --throughput: rows of a step on a GPU")
    parser.add_argument("--period", type=float, default=0.1, help="seconds between two samples; not with --actor")
    asked = parser.parse_args(arguments)
    if not asked.real and INSIDE not in os.environ:
        return with_stub(arguments)
    if asked.throughput:
        return cost_in_throughput(asked)
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
    if sys.argv[1:2] == ["--train"]:
        train(int(sys.argv[2]))
    elif sys.argv[1:2] == ["--watch"]:
        watch(float(sys.argv[2]))
    else:
        sys.exit(main(sys.argv[1:]))
