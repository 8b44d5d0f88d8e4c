"""Do a GPU's energy counter and its sampled power agree? A minute at idle, a minute under load, each with an interval.

    python tests/bench/energy.py                            every GPU of this machine; two and a half minutes
    python tests/bench/energy.py --seconds 10               shorter, to see that it works
    python tests/bench/energy.py --json FILE                the figures as JSON, too

The bar is 1 %, either way. Met: the whole interval is within; not met: all of it is outside; open: noise decides, a
longer recording would tell. Both numbers come from one sensor, so that agreement shows that sampling is right, not the
sensor. At idle, keep other processes off the GPUs. Ends with 1 where the bar is not met, or nothing could be measured.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rtxscale.telemetry.probe import open_probe
from rtxscale.telemetry.recorder import EnergyRatio, record, totals

BAR = 0.01
SETTLE_S = 15.0
"""A load starts CUDA, and clocks and power settle, before it is recorded."""
SPARE_S = 60.0
MET, NOT_MET, OPEN = "met", "NOT MET", "open"


@contextlib.contextmanager
def load(seconds: float) -> Iterator[None]:
    """All GPUs at full load in another process, beginning when they are."""
    command = [sys.executable, "-m", "rtxscale.doctor.torch_process", json.dumps([["load", seconds]])]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None or "begins" not in process.stdout.readline():
                raise SystemExit("the load did not begin: python -m rtxscale.doctor.torch_process '[[\"load\", 5]]'")
            time.sleep(SETTLE_S)
            yield
            if process.poll() is not None:
                raise SystemExit(f"the load ended before the recording, with code {process.returncode}")
        finally:
            process.kill()


def verdict(found: EnergyRatio) -> str:
    """The bar against the interval.

    >>> verdict(EnergyRatio(ratio=1.0, low=0.995, high=1.005, blocks=10, block_s=6.0))
    'met'
    >>> verdict(EnergyRatio(ratio=1.0, low=0.98, high=1.02, blocks=10, block_s=6.0))
    'open'
    """
    if found.low >= 1 - BAR and found.high <= 1 + BAR:
        return MET
    return NOT_MET if found.high < 1 - BAR or found.low > 1 + BAR else OPEN


def measured(kind: str, seconds: float) -> list[dict[str, Any]]:
    """Record the GPUs so long, and say what each GPU's two energies came to."""
    recorded = record(open_probe(), lambda: time.sleep(seconds))
    found = [(one, one.energy_ratio) for one in totals(recorded) if one.energy_ratio is not None]
    return [
        {
            "kind": kind,
            "gpu": place,
            "name": one.name,
            "seconds": seconds,
            "power_mean_w": one.power_mean_w,
            "energy_counter_j": one.energy_counter_j,
            "energy_integral_j": one.energy_integral_j,
            **asdict(ratio),
            "verdict": verdict(ratio),
        }
        for place, (one, ratio) in enumerate(found)
    ]


def in_words(row: dict[str, Any]) -> str:
    """One line for one GPU."""
    return (
        f"{row['kind']:6} GPU {row['gpu']} ({row['name']}): counter over integral {row['ratio']:.4f} "
        f"({row['low']:.4f}-{row['high']:.4f}, {row['blocks']} blocks of {row['block_s']:.2g} s), "
        f"{row['energy_counter_j']:.0f} J in {row['seconds']:g} s, {row['power_mean_w']:.0f} W; "
        f"within {BAR:.0%}: {row['verdict']}"
    )


def main(arguments: list[str]) -> int:
    """Record, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0, help="length of each recording")
    parser.add_argument("--json", type=Path, help="file for the figures")
    asked = parser.parse_args(arguments)
    rows = measured("idle", asked.seconds)
    if not rows:
        print("no GPU here has both an energy counter and a power reading, or less than 4 s were recorded")
        return 1
    with load(SETTLE_S + asked.seconds + SPARE_S):
        rows += measured("loaded", asked.seconds)
    for row in rows:
        print(in_words(row))
    if asked.json is not None:
        asked.json.write_text(json.dumps(rows, indent=1))
    return 1 if any(row["verdict"] == NOT_MET for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
