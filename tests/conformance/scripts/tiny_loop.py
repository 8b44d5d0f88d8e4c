"""A training script with a loop of its own, as torchrun would start it, and the lines that rtxscale needs."""

import contextlib
import itertools
import sys
import threading
from pathlib import Path

import torch

import rtxscale


def strayed(measured):
    """Call `step` in a thread of the script's own."""
    with contextlib.suppress(Exception):
        measured.step()


def main(how):
    """Train in the way, or with the fault, that is asked for; the number of steps where the script itself ends it."""
    job = rtxscale.job()
    batch_size = job.batch_per_gpu if job else 2
    device = job.device if job else "cpu"
    torch.manual_seed(1)
    model = torch.nn.Linear(8, 1).to(device)
    model = job.wrap(model) if job else model
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    if how == "without":
        sys.exit(0)
    done = 0
    try:
        with rtxscale.measure() as measured:
            for step in itertools.count() if how != "short" else range(4):
                if how == "outside" and step == 3:
                    return done
                if how == "threads":
                    threading.Thread(target=strayed, args=(measured,)).start()
                    break
                if how == "fail" and step == 2:
                    raise ValueError("no such column")
                size = batch_size + step % 2 if how == "uneven" else batch_size
                batch = torch.ones(size, 8, device=device)
                try:
                    loss = (model(batch) - 3).square().mean()
                    loss.backward()
                    optimizer.step()
                    optimizer.zero_grad()
                    done += 1
                    measured.step(work=len(batch), loss=loss)
                except Exception:
                    raise SystemExit("swallowed") from None
    finally:
        if how.startswith("/"):
            Path(how).write_text(f"unwound after {done} steps")


if __name__ == "__main__":
    steps_done = main(sys.argv[1] if len(sys.argv) > 1 else "")
