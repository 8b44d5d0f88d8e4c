"""Sweeps and machines in a few words, for the tests of the plan."""

from rtxscale.devices.inventory import Gpu, Inventory, Node
from rtxscale.plan.expand import make_plan
from rtxscale.spec.sweep import Sweep

VISION = {"kind": "vision", "model": "resnet18", "batch_per_gpu": 8}


def sweep(axes, *, workload=None, **fields):
    return Sweep.model_validate(
        {
            "name": "made",
            "question": "Does it plan?",
            "study": "weak",
            "workload": workload or VISION,
            "axes": axes,
            **fields,
        }
    )


def node(gpus=0, cpus=16, name="NVIDIA GeForce RTX 5090", version=(2, 28, 9), node_id="a"):
    cards = tuple(Gpu(name=name, uuid=f"GPU-{node_id}{i}", index=i, memory_mib=32607) for i in range(gpus))
    return Node(node_id=node_id, cpus=cpus, gpus=cards, nccl_version=version)


def machine(gpus=0, cpus=16, **more):
    return Inventory(nodes=(node(gpus, cpus, **more),))


def plan(axes, inventory, **fields):
    return make_plan(sweep(axes, **fields), inventory)


def swept(planned):
    """The trials of a plan or a session that are no sentinels."""
    return [trial for trial in planned.trials if trial.trial.stage == "sweep"]


def cells(made):
    """Different cells of a plan."""
    return list({planned.trial.cell.cell_id: planned.trial.cell for planned in made.trials}.values())
