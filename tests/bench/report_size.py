"""What a report of many trials costs: seconds of `rtxscale report`, imports and redaction included, and MiB.

`python tests/bench/report_size.py` makes runs of 1,000 and 10,000 trials through the real writer, each setting in two
visits, and reports each as a user would. The bars are 5 s and 5 MiB for 1,000 trials on two quiet cores; 10,000 trials
have none, they are to stay usable. The first report on a machine also bundles the chart library, some 2 s: that is done
before the clock starts. Exit code 1 where a bar is missed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "unit"))

from report import made_runs

from rtxscale.report.scripts import vega_bundle

MIB = 2**20
BARS = {1000: (5.0, 5.0), 10_000: (None, None)}


def measured(trials: int, folder: Path) -> dict[str, float]:
    """Seconds and MiB of the report of a run of so many trials."""
    run = made_runs.large_run(folder, trials=trials).run
    words = [sys.executable, "-m", "rtxscale", "report", str(run.run_dir), "-o", str(folder / f"{trials}.html")]
    began = time.perf_counter()
    subprocess.run(words, check=True, capture_output=True)
    seconds = time.perf_counter() - began
    return {
        "trials": trials,
        "seconds": round(seconds, 2),
        "mib": round((folder / f"{trials}.html").stat().st_size / MIB, 2),
    }


def main() -> int:
    """Measure and say it; 1 where a bar is missed."""
    vega_bundle()
    missed = False
    with tempfile.TemporaryDirectory() as name:
        for trials, (most_s, most_mib) in BARS.items():
            found = measured(trials, Path(name))
            print(json.dumps(found))
            missed |= most_s is not None and found["seconds"] > most_s
            missed |= most_mib is not None and found["mib"] > most_mib
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
