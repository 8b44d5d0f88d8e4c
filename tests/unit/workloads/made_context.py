"""The context of a worker, for workloads that are prepared without a session."""

import torch

from rtxscale.workloads.protocol import Context


def made_context(workload, **changes):
    """Alone on the CPU with nothing kept, unless told otherwise."""
    usual = {
        "bucket_mib": None,
        "device": torch.device("cpu"),
        "rank": 0,
        "world": 1,
        "group": None,
        "exchange": lambda value: [value],
        "kept": {},
    }
    return Context(workload=workload, **usual | changes)
