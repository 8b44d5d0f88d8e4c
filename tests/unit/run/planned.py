"""A small plan for the tests of run."""

from rtxscale.plan.model import Placement, PlannedSession, PlannedTrial, SessionKey
from rtxscale.spec.cell import Cell, Ddp, Measure, Trial
from rtxscale.spec.workload import VisionWorkload


def planned_trial(bucket, *, gpus=1, visit=1):
    workload = VisionWorkload(kind="vision", model="resnet18", batch_per_gpu=4, global_batch=4 * gpus, precision="fp32")
    cell = Cell(gpus=gpus, workload=workload, ddp=Ddp(bucket_mib=bucket), measure=Measure().resolved())
    trial = Trial(cell=cell, visit=visit)
    return PlannedTrial(trial=trial, trial_id=trial.trial_id, axes={"gpus": gpus, "ddp.bucket_mib": bucket})


def planned_session(name, *buckets, gpus=1, visit=1):
    trials = tuple(planned_trial(bucket, gpus=gpus, visit=visit) for bucket in buckets)
    workload = trials[0].trial.cell.workload
    key = SessionKey(gpus=gpus, slot=0, launcher="ray", workload=workload.identity, p2p="auto", compile="off")
    place = Placement(nodes=("node0",) * gpus)
    return PlannedSession(session_id=name, key=key, placement=place, visit=visit, trials=trials)
