"""Ray Tune's part: one silent Tune trial per planned trial, one at a time, in exactly the planned order.

A Tune trial starts no workers. It asks the hub for its measurement and waits for the outcome; the foreman does the
rest. Tune's own ids, directories and results are not used. Caller: `run.sweep`, in a thread of its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rtxscale.errors import RunError
from rtxscale.run.agenda import Agenda
from rtxscale.run.ray_setup import ray
from rtxscale.run.turn import NAMESPACE

MOST_ATTEMPTS = 2
MOST_SAID = 300
TRIAL_RESOURCES = {"memory": 1024, "node:__internal_head__": 0.001}
"""A Tune trial must reserve something; a little memory leaves every CPU and GPU to the sessions, and on the head a lost
node takes none along."""


def measure_one(config: dict[str, Any]) -> dict[str, Any]:
    """The Tune trainable: have the trial measured and report how it ended. It never raises for a failed trial."""
    hub: Any = ray.get_actor(config["hub"], namespace=NAMESPACE)
    outcome: Any = ray.get(hub.request.remote(config["trial_id"], config["attempt"]))
    return {"outcome": str(outcome)}


def run_trials(agenda: Agenda, hub_name: str, scratch: Path) -> None:
    """Let Tune work through the agenda; returns when there is no next trial.

    Raises:
        RunError: Tune itself failed.
        RayError: a call of it failed for a reason that only Ray knows.
    """
    from ray import tune
    from ray.tune.error import TuneError
    from ray.tune.search import Searcher

    class Listed(Searcher):
        """Gives out the agenda's trials one after the other."""

        def suggest(self, trial_id: str) -> Any:
            """The next planned trial as a Tune configuration."""
            todo = agenda.next()
            if todo is None:
                return Searcher.FINISHED
            identity = {"trial_id": todo.planned.trial_id, "attempt": todo.attempt}
            return {**identity, "hub": hub_name, "axes": dict(todo.planned.axes)}

        def on_trial_complete(self, trial_id: str, result: Any = None, error: bool = False) -> None:
            """Nothing to learn: the order is planned."""

        def save(self, checkpoint_path: str) -> None:
            """Nothing to save: a sweep resumes from its rows."""

        def restore(self, checkpoint_path: str) -> None:
            """Nothing to restore."""

        def __reduce__(self) -> Any:
            """Tune pickles its searcher for a restore that never happens."""
            return (object, ())

    tuner = tune.Tuner(
        tune.with_resources(measure_one, TRIAL_RESOURCES),
        tune_config=tune.TuneConfig(
            search_alg=Listed(),
            num_samples=MOST_ATTEMPTS * max(agenda.waiting, 1),
            max_concurrent_trials=1,
            reuse_actors=True,
        ),
        run_config=tune.RunConfig(
            storage_path=str(scratch),
            name="tune",
            verbose=0,
            failure_config=tune.FailureConfig(max_failures=0),
        ),
    )
    try:
        tuner.fit()
    except (TuneError, RuntimeError) as error:  # the latter for all that Tune itself has not expected
        raise RunError(
            f"Ray Tune could not go on ({' '.join(str(error).split())[:MOST_SAID]}); what is finished is kept: mend "
            "that and run the same command again to continue"
        ) from error
