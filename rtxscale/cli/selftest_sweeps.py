"""The sweeps that the instrument's checks look at: which check needs which, on which machine, new or continued.

They are files in `cli/checks`, run like any other sweep. Starts nothing. Caller: `cli.selftest`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rtxscale.devices.inventory import Inventory
    from rtxscale.spec.load import LoadedSweep

CHECKS_DIRECTORY = Path(__file__).parent / "checks"
VERDICTS_FILE = "selftest.json"
PLACE_PREFIX = "selftest-"

SWEEP_OF: Mapping[str, str | None] = {
    "simulated": None,
    "aa": "arms",
    "planted": "sessions",
    "isolation": "sessions",
    "launcher": "sessions",
    "bandwidth": "bandwidth",
    "energy": "sessions",
}
"""Every check in the order it is shown, with the sweep whose run it looks at."""

RAY_S = 10.0
"""Starting and stopping Ray for one sweep, seconds."""

GPUS = 2
"""GPUs the full form uses; more would only add noise of their own."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """The full form on GPUs, or the reduced one on a CPU worker."""

    gpus: int

    @property
    def name(self) -> str:
        """`full` or `reduced`."""
        return "full" if self.gpus else "reduced"

    def sweep(self, name: str) -> LoadedSweep:
        """The sweep of this form, on as many GPUs as there are, at most `GPUS`."""
        from rtxscale.spec.load import LoadedSweep, parse_sweep, read_text

        path = CHECKS_DIRECTORY / (f"{name}.yaml" if self.gpus else f"{name}-cpu.yaml")
        text = read_text(path)
        if self.gpus:
            text = re.sub(r"^gpus: \d+$", f"gpus: {self.gpus}", text, flags=re.MULTILINE)
        return LoadedSweep(sweep=parse_sweep(text, path.name), text=text)


def form_of(inventory: Inventory) -> Form:
    """Full where there is a GPU, reduced elsewhere."""
    return Form(gpus=min(GPUS, len(inventory.gpus)))


def obstacle(check: str, form: Form, binary: str | None) -> str:
    """Why a check cannot be run here; empty when it can."""
    if check == "energy" and not form.gpus:
        return "not applicable: no GPU here, so no energy counter"
    if check == "bandwidth":
        if binary is None:
            return "all_reduce_perf is not on the PATH"
        if form.gpus < GPUS:
            return f"all-reduce needs {GPUS} GPUs, found {form.gpus}"
    return ""


def sweeps_for(checks: Sequence[str]) -> list[str]:
    """The sweeps that these checks need, each once, in the order of the checks.

    >>> sweeps_for(["simulated", "launcher", "aa", "isolation"])
    ['sessions', 'arms']
    """
    return list(dict.fromkeys(name for check in checks if (name := SWEEP_OF[check]) is not None))


def estimate_s(sweeps: Sequence[LoadedSweep], inventory: Inventory) -> float:
    """Seconds that all sweeps will take, Ray's start and end included; sessions on slow hosts take longer."""
    from rtxscale.plan.expand import make_plan

    return sum(RAY_S + make_plan(loaded.sweep, inventory).estimate.wall_s for loaded in sweeps)


def concluded_runs(root: Path) -> set[str]:
    """Names of the runs that complete self-tests in this results root have looked at.

    A run in none of them is unfinished business, and continued; one that has been judged is not measured by running
    it again.
    """
    found: set[str] = set()
    for path in root.glob(f"{PLACE_PREFIX}*/{VERDICTS_FILE}"):
        try:
            data: Any = json.loads(path.read_text())
            found |= {str(Path(run).name) for run in data["runs"].values()} if data["complete"] else set()
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # not ours, or cut off: then it says nothing
    return found


def starts_anew(root: Path, loaded: LoadedSweep, concluded: set[str]) -> bool:
    """Whether the newest run of this sweep has been judged already."""
    from rtxscale.results.location import runs_of_sweep

    earlier = runs_of_sweep(root, loaded.sweep.sweep_id)
    return bool(earlier) and earlier[-1][1].name in concluded
