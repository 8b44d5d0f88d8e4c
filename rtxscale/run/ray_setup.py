"""The environment Ray must find before it is imported, and Ray itself.

`RAY_AUTH_MODE` and its like are read while Ray is imported, so nothing in rtxscale writes `import ray`: everybody in
`run` takes `ray` from here. Not here: connecting (`run.cluster`). The variables that Ray Train reads are in
`TRAIN_ENVIRONMENT`, because they belong to the process that calls `fit()`, which may be on another node.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

QUIET_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ENABLE_AUTO_CONNECT": "0",  # else a stray call after shutdown starts a new cluster
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_AIR_NEW_OUTPUT": "0",
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",  # ours ends the sweep within a second; Tune's waits for the trial
    "TUNE_GLOBAL_CHECKPOINT_S": "3600",
}

TRAIN_ENVIRONMENT = {
    "RAY_TRAIN_V2_ENABLED": "1",
    "RAY_TRAIN_HEALTH_CHECK_INTERVAL_S": "0.2",
    "RAY_TRAIN_ENABLE_PREEMPTION_WATCHER": "0",
    "RAY_TRAIN_METRICS_ENABLED": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
    "RAY_TRAIN_ENABLE_PRINT_PATCH": "0",
    "RAY_TRAIN_WORKER_GROUP_START_TIMEOUT_S": "120",
}


def prepare(environment: MutableMapping[str, str]) -> None:
    """Set what Ray reads at import; what the user has set stays.

    A cluster of our own is always started with token authentication; `run.authentication` settles it for one that
    already runs.
    """
    for name, value in QUIET_ENVIRONMENT.items():
        environment.setdefault(name, value)
    if not environment.get("RAY_ADDRESS"):
        environment.setdefault("RAY_AUTH_MODE", "token")


if "ray" not in sys.modules:  # inside Ray's own workers the raylet has decided already
    prepare(os.environ)

import ray  # noqa: E402 - the environment must be complete before Ray is imported

__all__ = ["TRAIN_ENVIRONMENT", "prepare", "ray"]
