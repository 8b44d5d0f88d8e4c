"""Every right value of the recorded topologies, one test a value kind and file."""

import json
from pathlib import Path

import pytest

from rtxscale.topology.affinity import GPU_NUMA, NUMA
from rtxscale.topology.smi import Status, parse_peer_access, parse_topology

GOLDEN = Path(__file__).parents[2] / "golden" / "topology"
EXPECTED = json.loads((GOLDEN / "topo_expected.json").read_text())


def having(key):
    return pytest.mark.parametrize("name", [name for name, right in EXPECTED.items() if key in right])


def text_of(name):
    with (GOLDEN / name).open(newline="") as file:
        return file.read()


def topology(name, **options):
    return parse_topology(text_of(name), **options)


def numa_text(value):
    return None if value is None else str(value)


def test_every_recorded_matrix_has_a_right_value():
    assert set(EXPECTED) == {path.name for path in GOLDEN.glob("topo_*.txt")}


@having("names")
def test_devices(name):
    assert list(topology(name).devices) == EXPECTED[name]["names"]
    assert not topology(name).problems


@having("gpus")
def test_gpus_and_nics(name):
    read = topology(name)
    assert (list(read.gpus), list(read.nics)) == (EXPECTED[name]["gpus"], EXPECTED[name]["nics"])
    assert read.status is Status.READ
    assert not read.suspects


@having("links")
def test_links(name):
    read = topology(name)
    pairs = {f"{a}-{b}": link.label for (a, b), link in read.links.items() if f"{a}-{b}" in EXPECTED[name]["links"]}
    assert pairs == EXPECTED[name]["links"]
    assert len(read.links) == 2 * len(pairs)
    assert all(read.link(b, a) == link for (a, b), link in read.links.items())


@having("gpu_rows")
def test_rows_with_glued_cells(name):
    read = topology(name)
    for gpu, row in EXPECTED[name]["gpu_rows"].items():
        others = {column: label for column, label in zip(read.devices, row, strict=True) if column != gpu}
        assert {column: read.links[gpu, column].label for column in others} == others
    assert read.rows_missing == read.nics


@having("cpu_affinity")
def test_cpu_affinity(name):
    read = topology(name)
    assert [read.placements[gpu].cpus for gpu in read.gpus if gpu in read.rows] == EXPECTED[name]["cpu_affinity"]


@having("numa")
def test_numa(name):
    read, right = topology(name), EXPECTED[name]["numa"]
    found = [read.placements[gpu].numa for gpu in read.gpus if gpu in read.rows]
    assert (NUMA in read.titles) == (right is not None)
    assert found == [numa_text(value) for value in right or [None] * len(found)]


@having("gpu_numa_id")
def test_gpu_numa_id(name):
    read, right = topology(name), EXPECTED[name]["gpu_numa_id"]
    found = [placement.gpu_numa_id for placement in read.placements.values()]
    assert (GPU_NUMA in read.titles) == (right is not None)
    assert found == (right or [None] * len(found))


@having("rows_present")
def test_a_cut_matrix_says_which_rows_are_missing(name):
    read, right = topology(name), EXPECTED[name]
    assert read.status is Status.INCOMPLETE
    assert list(read.rows) == right["rows_present"]
    assert list(read.rows_missing) == right.get("rows_missing", [*read.devices[len(read.rows) :]])


def test_nics_that_are_not_shown_are_counted():
    read, right = topology("topo_76nics_preamble_cut.txt"), EXPECTED["topo_76nics_preamble_cut.txt"]
    assert (read.nics_found, read.nics_shown) == (right["nics_found"], right["nics_shown"])
    assert len(read.nics) == right["nics_shown"]


@having("error")
def test_an_error_is_no_empty_topology(name):
    read = topology(name)
    assert read.status is Status.UNAVAILABLE
    assert read.said == text_of(name).strip()


@having("cpu_affinity_true")
def test_glued_affinity_is_cut_where_the_cpu_count_is_known(name):
    read, right = topology(name, cpu_count=224), EXPECTED[name]
    assert [placement.cpus for placement in read.placements.values()] == right["cpu_affinity_true"]
    assert [placement.numa for placement in read.placements.values()] == [str(node) for node in right["numa_true"]]
    assert not read.suspects
    assert read.repairs[0] == "line 6: GPU4: '56-111,168-2231' read as CPUs 56-111,168-223 and NUMA node 1"


@having("cpu_affinity_true")
def test_glued_affinity_is_suspect_where_the_cpu_count_is_unknown(name):
    read, right = topology(name), EXPECTED[name]
    found = [placement.cpus for placement in read.placements.values()]
    assert found == [*right["cpu_affinity_true"][:4], None, None, None, None]
    assert [(suspect.line, suspect.path) for suspect in read.suspects] == [
        (line, f"GPU{line - 2}, CPU Affinity") for line in (6, 7, 8, 9)
    ]
    assert not read.repairs


def test_peer_access_of_two_5090_is_refused():
    name = "topo_p2p_rw_5090x2_gns.txt"
    read, right = parse_peer_access(text_of(name), "rw"), EXPECTED[name]
    assert (read.status, f"p2p {read.capability}") == (Status.READ, right["kind"])
    assert read.labels["GPU0", "GPU1"] == read.labels["GPU1", "GPU0"] == right["GPU0-GPU1"]
    assert read.claimed("GPU0", "GPU1") is right["p2p_usable"]
    assert topology(name).status is Status.UNAVAILABLE


def test_both_matrices_of_one_text():
    text = text_of("topo_indented_wrapped_legend_p2p.txt")
    assert parse_topology(text).link("GPU0", "GPU1").label == "NODE"
    assert parse_peer_access(text, "rw").labels["GPU0", "GPU1"] == "NS"


def test_nic_legend():
    assert topology("topo_ada6000x4_nic_legend.txt").nic_names == {f"NIC{i}": f"mlx5_{i}" for i in range(4)}
