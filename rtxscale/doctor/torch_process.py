"""Copies between GPUs and the host, measured in a process of its own, which may hang or die without harm.

`python -m rtxscale.doctor.torch_process TASKS`, TASKS being JSON such as `[["pair", 0, 1], ["host", 0], ["together"]]`
with GPUs numbered as CUDA shows them here. Prints one line of JSON as each task begins and one with its result. Only
here does the doctor use torch. Started by `doctor.transfers`.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MIB = 1024 * 1024
PAIR_MIB, HOST_MIB, TOGETHER_MIB = 256, 256, 128
REPEATS = 10
SMALL_REPEATS = 100
SEED = 20_260
LOAD_BATCH = 20
"""Products between two waits of the load: some tens of milliseconds, so that the GPU never runs dry for long."""


def main(text: str) -> int:
    """Run the tasks in order; a task that fails says so and the next one runs."""
    for task in json.loads(text):
        _say({"task": task, "begins": True})
        try:
            result = TASKS[task[0]](*task[1:])
        except Exception as error:  # whatever CUDA raises is the result
            result = {"problem": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"}
        _say({"task": task, "result": result})
    return 0


def pair(a: int, b: int) -> dict[str, Any]:
    """Copy between two GPUs both ways: right data, GB/s, and microseconds of a small copy, the host's part included."""
    import torch

    size = PAIR_MIB * MIB
    there, back = (_on(device, torch.empty(size, dtype=torch.uint8, device="cpu")) for device in (a, b))
    pattern = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=torch.Generator().manual_seed(SEED))
    right = True
    for source, target in ((there, back), (back, there)):
        source.copy_(pattern)
        target.zero_()
        target.copy_(source)
        _settle(a, b)
        # The reference reaches the target from the host, never through the other GPU.
        right &= bool(torch.equal(target, _on(target.device.index, pattern)))
    small_there, small_back = there[:8], back[:8]
    return {
        "peer": torch.cuda.can_device_access_peer(a, b),
        "data_right": right,
        "there_gb_s": gigabytes_per_second(size, lambda: back.copy_(there), lambda: _settle(a, b)),
        "back_gb_s": gigabytes_per_second(size, lambda: there.copy_(back), lambda: _settle(a, b)),
        "small_copy_us": seconds_each(lambda: small_back.copy_(small_there), lambda: _settle(a, b), SMALL_REPEATS)
        * 1e6,
    }


def host(gpu: int) -> dict[str, Any]:
    """Copy between pinned host memory and one GPU, GB/s."""
    import torch

    size = HOST_MIB * MIB
    pinned = torch.ones(size, dtype=torch.uint8).pin_memory()
    device = _on(gpu, pinned)
    return {
        "to_device_gb_s": gigabytes_per_second(
            size, lambda: device.copy_(pinned, non_blocking=True), lambda: _settle(gpu)
        ),
        "from_device_gb_s": gigabytes_per_second(
            size, lambda: pinned.copy_(device, non_blocking=True), lambda: _settle(gpu)
        ),
    }


def together() -> dict[str, Any]:
    """Copy between pinned host memory and all GPUs at once; GB/s of each, from its own clock."""
    import torch

    size, gpus = TOGETHER_MIB * MIB, list(range(torch.cuda.device_count()))
    pinned = [torch.ones(size, dtype=torch.uint8).pin_memory() for _ in gpus]
    devices = [_on(gpu, memory) for gpu, memory in zip(gpus, pinned, strict=True)]
    return {
        "to_device": _all_at_once(size, gpus, lambda gpu: devices[gpu].copy_(pinned[gpu], non_blocking=True)),
        "from_device": _all_at_once(size, gpus, lambda gpu: pinned[gpu].copy_(devices[gpu], non_blocking=True)),
    }


def load(seconds: float, matrix: int = 8192) -> dict[str, Any]:
    """Keep all GPUs busy with bf16 matrix products for so long; TFLOPS of each. A load to be recorded, no benchmark."""
    import torch

    gpus = list(range(torch.cuda.device_count()))
    squares = [torch.randn(matrix, matrix, device=f"cuda:{gpu}", dtype=torch.bfloat16) for gpu in gpus]
    products = [torch.empty_like(square) for square in squares]
    done, began = 0, time.monotonic()
    while (passed := time.monotonic() - began) < seconds:
        for square, product in zip(squares, products, strict=True):
            for _ in range(LOAD_BATCH):
                torch.mm(square, square, out=product)
        _settle(*gpus)
        done += LOAD_BATCH
    return {"tflops": 2 * matrix**3 * done / passed / 1e12 if done else 0.0, "gpus": len(gpus), "seconds": passed}


def _all_at_once(size: int, gpus: list[int], copy: Callable[[int], Any]) -> list[float]:
    import torch

    marks = []
    for gpu in gpus:
        with torch.cuda.device(gpu):
            copy(gpu)
            marks.append([torch.cuda.Event(enable_timing=True) for _ in range(2)])  # type: ignore[no-untyped-call]  # untyped in torch
    _settle(*gpus)
    for repeat in range(REPEATS):
        for gpu, (start, end) in zip(gpus, marks, strict=True):
            with torch.cuda.device(gpu):
                if repeat == 0:
                    start.record()
                copy(gpu)
                if repeat == REPEATS - 1:
                    end.record()
    _settle(*gpus)
    return [size * REPEATS / start.elapsed_time(end) / 1e6 for start, end in marks]


def gigabytes_per_second(size: int, copy: Callable[[], Any], settle: Callable[[], None]) -> float:
    """Rate of copying `size` bytes, GB/s."""
    return size / seconds_each(copy, settle, REPEATS) / 1e9


def seconds_each(copy: Callable[[], Any], settle: Callable[[], None], repeats: int) -> float:
    """Mean seconds of one copy among `repeats` back to back, after one that does not count."""
    copy()
    settle()
    began = time.perf_counter()
    for _ in range(repeats):
        copy()
    settle()
    return (time.perf_counter() - began) / repeats


def _on(gpu: int, memory: torch.Tensor) -> torch.Tensor:
    return memory.to(f"cuda:{gpu}")


def _settle(*gpus: int) -> None:
    import torch

    for gpu in gpus:
        torch.cuda.synchronize(gpu)


def _say(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


TASKS: dict[str, Callable[..., dict[str, Any]]] = {"pair": pair, "host": host, "together": together, "load": load}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
