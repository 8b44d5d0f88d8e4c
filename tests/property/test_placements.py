"""Placements against a plain search: on any machines, what is chosen is right, and what is refused is not there."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from rtxscale.devices.inventory import Gpu, GpuLink, Node
from rtxscale.plan.model import Placement
from rtxscale.plan.placement import Placer
from rtxscale.spec.cell import LINK_CLASSES

CLASSES = {
    "NV4": "nvlink",
    "BOARD": "same_switch",
    "PIX": "same_switch",
    "PXB": "same_switch",
    "PHB": "same_root",
    "NODE": "same_numa",
    "SYS": "cross_socket",
}
ORDER = ["NV4", "BOARD", "PIX", "PXB", "PHB", "NODE", "SYS"]  # near to far


@st.composite
def machines(draw):
    """One to three nodes of up to five GPUs with any indices, every pair with any link, or without links at all."""
    nodes = []
    for name in "abc"[: draw(st.integers(1, 3))]:
        indices = sorted(draw(st.sets(st.integers(0, 5), max_size=5)))
        gpus = tuple(Gpu(name="RTX", uuid=f"{name}{index}", index=index) for index in indices)
        pairs = combinations(gpus, 2) if draw(st.booleans()) else ()
        links = tuple(GpuLink(a=one.uuid, b=two.uuid, label=draw(st.sampled_from(ORDER))) for one, two in pairs)
        nodes.append(Node(node_id=name, cpus=4, gpus=gpus, links=links))
    return tuple(nodes)


def worst_class(node, uuids):
    """The class of a set's worst pair; None where a pair is not known."""
    labels = {frozenset((link.a, link.b)): link.label for link in node.links}
    pairs = [labels.get(frozenset(pair)) for pair in combinations(uuids, 2)]
    return None if None in pairs else CLASSES[max(pairs, key=ORDER.index)]


@settings(max_examples=150, deadline=None)
@given(machines(), st.integers(2, 8), st.sampled_from(["packed", "spread", *LINK_CLASSES]))
def test_what_is_chosen_is_right_and_what_is_refused_is_not_there(nodes, gpus, placement):
    by_name = {node.node_id: node for node in nodes}
    place = Placer(nodes, "cuda").place(gpus, placement=placement)
    if isinstance(place, str):
        assert not there_is(nodes, gpus, placement), place
        return
    assert isinstance(place, Placement)
    assert place.world == gpus == len(set(place.gpu_uuids))
    assert len({place.nodes.count(name) for name in place.nodes}) == 1
    assert all(uuid.startswith(name) for name, uuid in zip(place.nodes, place.gpu_uuids, strict=True))
    indices = place.visible.split(",")
    for name in place.distinct_nodes:
        assert [uuid[1:] for uuid in place.gpu_uuids if uuid[0] == name] == indices
    if len(place.distinct_nodes) > 1:
        assert place.link_class == "cross_node"
        assert placement in ("packed", "spread", "cross_node")
    else:
        assert place.link_class == worst_class(by_name[place.nodes[0]], place.gpu_uuids)
        assert placement in ("packed", place.link_class)


def there_is(nodes, gpus, placement):
    """Whether some choice of nodes and GPUs is what the placement asks for, by looking at all."""
    if placement not in ("packed", "spread", "cross_node"):
        return any(
            worst_class(node, [gpu.uuid for gpu in chosen]) == placement
            for node in nodes
            for chosen in combinations(node.gpus, gpus)
        )
    for count in range(1 if placement == "packed" else 2, len(nodes) + 1):
        room = [node for node in nodes if len(node.gpus) >= gpus / count]
        for chosen in combinations(room, count) if gpus % count == 0 else ():
            shared = set.intersection(*({gpu.index for gpu in node.gpus} for node in chosen))
            if len(shared) >= gpus // count:
                return True
    return False
