"""Kills a sweep's processes as often as you like, and says what was lost: `python tests/bench/faults.py --kills 200`.

Starts a head node and a second, simulated node of its own, runs one tiny sweep after the other on them, and sends
SIGKILL to driver, rank, telemetry actor, session and the second node's raylet in turn, at random moments (`--seed`).
Every sweep is continued by the same command until it completes. Then nothing finished may be missing, doubled or half
there, and no process may be left; a cell whose workers happened to be killed twice in a row is given up, and counted.
Prints one JSON object; exit code 1 if a promise was broken, 2 if the cluster itself ended, as Ray's nodes may do on a
machine that is much too busy. `--minutes` ends it after the sweep that is running. Not a test: a kill costs about ten
seconds.
"""

import argparse
import json
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

KILLS_PER_SWEEP = 10


def main() -> int:
    sys.path.insert(0, str(Path(__file__).parents[1] / "ray"))
    from campaign import TARGETS
    from conftest import running_head

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--targets", nargs="*", default=TARGETS, choices=TARGETS)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # and leave no process behind
    home = Path(tempfile.mkdtemp(prefix="rx-", dir="/tmp"))  # sockets need a short path
    (home / "t").mkdir()
    try:
        with running_head(home) as head:
            found = under_fire(head, home, options)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    print(json.dumps(found, indent=2))
    return 1 if found["wrong"] else 2 * bool(found["ended_early"])


def under_fire(head: Any, home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Sweeps until so many kills have been made or the time is up: what was killed, and what went wrong."""
    from campaign import Campaign

    dice, began = random.Random(options.seed), time.monotonic()  # noqa: S311 - not for secrets
    kills: Counter[str] = Counter()
    wrong: list[str] = []
    given_up: list[str] = []
    sweeps, calls, ended_early = 0, 0, ""
    while sum(kills.values()) < options.kills and time.monotonic() - began < 60 * options.minutes:
        wanted = min(KILLS_PER_SWEEP, options.kills - sum(kills.values()))
        campaign = Campaign(head, home, dice, wanted, tuple(options.targets))
        try:
            campaign.run(f"shot-{sweeps}")
        except (OSError, AssertionError, subprocess.SubprocessError) as error:
            ended_early = f"{type(error).__name__}: {error}"
            break
        kills, wrong, sweeps = kills + campaign.kills, wrong + campaign.wrong, sweeps + 1
        given_up, calls = given_up + campaign.given_up, calls + len(campaign.calls)
        print(f"{sweeps} sweeps, {sum(kills.values())} kills, {len(wrong)} wrong", file=sys.stderr, flush=True)
    return {
        "seed": options.seed,
        "sweeps": sweeps,
        "kills": dict(kills),
        "total": sum(kills.values()),
        "calls": calls,
        "given_up": given_up,
        "ended_early": ended_early,
        "wrong": wrong,
        "minutes": round((time.monotonic() - began) / 60, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
