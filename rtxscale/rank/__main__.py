"""Ranks under torchrun: `torchrun --standalone --nproc-per-node N -m rtxscale.rank ...`, without Ray.

`--mailbox DIR` serves orders from a directory until it is closed; `--trial JSON` runs one trial and prints a JSON
summary on rank 0. Started by the torchrun launcher in `run` and by the line that `explain` prints.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from rtxscale.errors import RtxscaleError
from rtxscale.rank.channel import Channel, Order, RankReport
from rtxscale.rank.loop import run_rank
from rtxscale.rank.mailbox import Mailbox
from rtxscale.rank.place import Place, place_from_torchrun
from rtxscale.results.outcomes import Outcome
from rtxscale.spec.cell import Trial

CONTROL_TIMEOUT = timedelta(minutes=30)


class OneTrial:
    """A channel with a single order, which it answers on standard output."""

    def __init__(self, trial: Trial, rank: int) -> None:
        """Hold the order; `outcome` is set when it is done."""
        self._orders = [Order(trial=trial, trial_id=trial.trial_id)]
        self._rank = rank
        self.outcome = ""

    def take(self) -> Order | None:
        """The order, then None."""
        return self._orders.pop() if self._orders else None

    def finish(self, order: Order, report: RankReport) -> None:
        """Print the summary on rank 0."""
        self.outcome = str(report.outcome)
        if self._rank == 0:
            print(json.dumps(summary(order, report), indent=2), flush=True)


def summary(order: Order, report: RankReport) -> dict[str, Any]:
    """What one trial showed, as JSON data: facts, and every table but the steps."""
    tables = {name: content.to_pylist() for name, content in report.tables.items() if name != "steps"}
    return {
        "trial_id": order.trial_id,
        "outcome": str(report.outcome),
        "message": report.message,
        **report.facts,
        **tables,
    }


def main(arguments: list[str] | None = None) -> int:
    """Serve as one rank; 0 unless the only trial failed."""
    options = _parser().parse_args(arguments)
    try:
        place = place_from_torchrun(os.environ, options.device, options.threads)
    except RtxscaleError as error:
        print(f"rtxscale: error: {error}", file=sys.stderr)
        return error.exit_code
    dist.init_process_group("gloo", timeout=CONTROL_TIMEOUT)
    try:
        return _serve(options, place)
    finally:
        dist.destroy_process_group()


def _serve(options: argparse.Namespace, place: Place) -> int:
    channel: Channel
    if options.mailbox is not None:
        channel = Mailbox(options.mailbox, place.rank)
        run_rank(channel, place)
        return 0
    channel = OneTrial(Trial.model_validate_json(options.trial), place.rank)
    run_rank(channel, place)
    return 0 if channel.outcome in (Outcome.OK, Outcome.UNSTEADY) else 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rtxscale.rank", description="One rank of a session; start with torchrun.")
    work = parser.add_mutually_exclusive_group(required=True)
    work.add_argument("--mailbox", type=Path, help="directory that orders come from and reports go to")
    work.add_argument("--trial", help="one trial as JSON; prints a summary")
    parser.add_argument("--device", choices=("cuda", "cpu"), required=True)
    parser.add_argument("--threads", type=int, default=1, help="CPU threads of this rank")
    return parser


if __name__ == "__main__":
    sys.exit(main())
