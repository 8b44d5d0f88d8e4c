"""The cluster of a simulated workload: nodes and GPUs that do not exist, as an inventory.

Each node has two sockets with half of its GPUs each, in pairs under a PCIe switch. It is marked as assumed, and every
GPU says by its name and UUID what it is. Pure; called by `plan.expand`.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from rtxscale.devices.inventory import Gpu, GpuLink, Inventory, Node
from rtxscale.spec.workload import SimulatedWorkload

NAME = "simulated GPU"
CORES_PER_GPU = 8
NOTE = "simulated: the cluster does not exist, no GPU is used, and every number comes from the law that is planted"


def simulated_inventory(workload: SimulatedWorkload) -> Inventory:
    """The declared machines, from `sim0` on."""
    nodes = tuple(_node(f"sim{place}", workload.gpus_per_machine) for place in range(workload.machines))
    return Inventory(nodes=nodes, assumed=True, notes=(NOTE,))


def _node(name: str, cards: int) -> Node:
    gpus = tuple(Gpu(name=NAME, uuid=f"SIM-{name}-{index}", index=index) for index in range(cards))
    return Node(node_id=name, cpus=CORES_PER_GPU * cards, gpus=gpus, links=tuple(_links(gpus)))


def _links(gpus: tuple[Gpu, ...]) -> Iterator[GpuLink]:
    half = (len(gpus) + 1) // 2
    for one, other in combinations(gpus, 2):
        if (one.index < half) != (other.index < half):
            label = "SYS"
        else:
            label = "PIX" if (one.index % half) // 2 == (other.index % half) // 2 else "NODE"
        yield GpuLink(a=one.uuid, b=other.uuid, label=label)
