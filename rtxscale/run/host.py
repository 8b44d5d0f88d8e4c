"""The warm home of `fit()`: a zero-CPU actor that has imported Ray Train and torch and starts one session at a time.

Killing it ends a stuck session. It knows nothing of trials; what its ranks do is `run.worker`. Caller: `run.session`.
"""

from __future__ import annotations

import asyncio
import importlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rtxscale.plan.model import Placement
from rtxscale.run.failures import Death
from rtxscale.spec.workload import Workload

UNWANTED_CALLBACKS = ("PlacementGroupCleanerCallback", "DatasetsCallback")
"""The cleaner is a detached actor that can outlive its session (we free the group ourselves); datasets are unused."""
TRAINER_HOOKS = ("_create_default_callbacks", "_initialize_and_run_controller")
GROUP_TIMEOUT_S = 600


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """One session to start: its placement, each node's Ray id by rank, the ranks' environment and arguments."""

    session_id: str
    placement: Placement
    ray_nodes: tuple[str, ...]
    environment: dict[str, str]
    arguments: dict[str, Any]
    scratch: Path


class Host:
    """Runs inside its actor."""

    def warm(self) -> int:
        """Import what a session needs, and say which process has done so."""
        _module("ray.train.torch")  # with torch several seconds, paid while nothing waits for it
        return os.getpid()

    def complaints(self, workloads: tuple[Workload, ...], directory: str = "") -> list[str]:
        """What is known to be wrong with the workloads; scripts are relative to the sweep file's directory."""
        return list(_module("rtxscale.workloads.registry").complaints(workloads, directory))

    def fit(self, request: FitRequest) -> Death | None:
        """Run one worker group to its end; None when it was closed, else how it died."""
        from rtxscale.run.worker import serve

        try:
            session_trainer()(
                serve,
                train_loop_config=request.arguments,
                scaling_config=_scaling(request),
                torch_config=torch_config(),
                run_config=_run_config(request),
            ).fit()
        except Exception as error:  # every end of a worker group is an outcome of its trial
            return _death(error)
        return None


def session_trainer() -> Any:
    """`TorchTrainer` as a session needs it, where this Ray has the hooks: with fewer processes to start."""
    TorchTrainer = _module("ray.train.torch").TorchTrainer  # noqa: N806 - a class
    if not all(hasattr(TorchTrainer, hook) for hook in TRAINER_HOOKS):
        return TorchTrainer

    class SessionTrainer(TorchTrainer):  # type: ignore[misc, valid-type] # known only at run time
        """Starts without cleaner and dataset actors, and with Train's controller in this warm process."""

        def _create_default_callbacks(self) -> list[Any]:
            callbacks = super()._create_default_callbacks()
            return [callback for callback in callbacks if type(callback).__name__ not in UNWANTED_CALLBACKS]

        def _initialize_and_run_controller(self, **arguments: Any) -> Any:
            # a process of its own would import torch anew for each session, before the ranks can begin to
            controller = _module("ray.train.v2._internal.execution.controller").TrainController(**arguments)
            asyncio.run(controller.run())
            return controller.get_result()

    return SessionTrainer


def _module(name: str) -> Any:
    """A module imported when it is needed; Ray Train's types say version 1 while version 2 is what runs."""
    return importlib.import_module(name)


def _scaling(request: FitRequest) -> Any:
    on_gpus = request.placement.visible is not None
    return _module("ray.train").ScalingConfig(
        num_workers=request.placement.world,
        use_gpu=on_gpus,
        resources_per_worker={"GPU": 1} if on_gpus else {"CPU": 1},
        label_selector=[{"ray.io/node-id": node} for node in request.ray_nodes],
    )


def torch_config() -> Any:
    """Gloo for hand-out and votes, on the network that Ray uses; each trial makes its own NCCL communicator."""
    from rtxscale.run.worker import settle_interface

    config = _module("ray.train.torch.config")

    class SessionBackend(config._TorchBackend):  # type: ignore[misc, name-defined] # known only at run time
        """Settles the interface in every worker before they connect."""

        def on_start(self, worker_group: Any, backend_config: Any) -> None:
            worker_group.execute(settle_interface)
            super().on_start(worker_group, backend_config)

    class SessionConfig(config.TorchConfig):  # type: ignore[misc, name-defined] # known only at run time
        """`TorchConfig` with that backend."""

        @property
        def backend_cls(self) -> type:
            return SessionBackend

    return SessionConfig(backend="gloo", timeout_s=GROUP_TIMEOUT_S)


def _run_config(request: FitRequest) -> Any:
    train = _module("ray.train")
    return train.RunConfig(
        storage_path=str(request.scratch),
        name=request.session_id,
        worker_runtime_env={"env_vars": request.environment},
        logging_config=train.LoggingConfig(log_level="CRITICAL"),
        # -1 is the default of the last two: what does not fit would be retried for ever
        failure_config=train.FailureConfig(max_failures=0, controller_failure_limit=0, max_preemption_failures=0),
    )


def _death(error: Exception) -> Death:
    """How the group died, as plain text: what a rank raised may not unpickle elsewhere."""
    failures = getattr(error, "worker_failures", None) or {}
    by_rank = {
        rank: _line(getattr(failure, "health_check_failure", failure) or failure) for rank, failure in failures.items()
    }
    return Death(summary=_line(error), by_rank=by_rank)


def _line(error: object) -> str:
    """`Type: last line of the message`; a dead process becomes one sentence."""
    name = type(error).__name__
    if name in ("ActorDiedError", "RayActorError", "WorkerCrashedError"):
        return "its process died (killed, out of host memory, or a fault in native code)"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{name}: {lines[-1][:300] if lines else 'no message'}"
