"""Text of tools, however broken: parsers answer with data and problems, never with an exception or a shifted cell."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from rtxscale.topology.details import parse_details
from rtxscale.topology.id_lists import cuts, read_id_list
from rtxscale.topology.links import links_of_set, read_link
from rtxscale.topology.listing import parse_listing
from rtxscale.topology.nccl_graph import link_of_path, node_name, parse_graph
from rtxscale.topology.null_words import null_reason, read_number
from rtxscale.topology.query import parse_query
from rtxscale.topology.smi import Status, parse_peer_access, parse_topology
from rtxscale.topology.sources import SMI, claims_of_links, claims_of_topology, disagreements
from rtxscale.topology.transfers import parse_transfers
from rtxscale.topology.versions import parse_versions

PIECES = (
    *("\n", "\t", " ", "        ", "\r\n", "\x1b[4m", "\x1b[0m", "Legend:", ":", ",", "-", "|"),
    *("GPU0", "GPU1", "GPU10", "NIC0", "mlx5_0", "CPU Affinity", "NUMA Affinity", "GPU NUMA ID", "N/A", "[N/A]"),
    *(" X ", "X", "SYS", "NODE", "PHB", "PXB", "PIX", "NV18", "NV", "OK", "GNS", "NS", "0-55,112-167", "2231", "0"),
    *("NVIDIA-SMI ", "Driver Version: ", "CUDA UMD Version : ", "610.57.04", "Deprecated", "Not Found"),
    *("GPU 0: name (UUID: GPU-0)", "  MIG 1g.10gb Device 0: (UUID: MIG-0)", "power.draw [W], name", "84.2 W, ", '"'),
    *(
        "[0] NCCL INFO GPU/0-60 :",
        "GPU/0-70 (2/370.8/NVL) ",
        "+ PCI[48.0] - GPU/0-60 (0)",
        " Matrix (GB/s)",
        "D\\D  0  1",
    ),
    *("9" * 30, "٣", "²", "\u2028", "\x00"),
)
like_a_tool = st.lists(st.sampled_from(PIECES) | st.text(max_size=4), max_size=60).map("".join)
texts = st.text() | like_a_tool
counts = st.none() | st.integers(0, 300)
LINK_LABELS = ("NV1", "NV18", "PIX", "PXB", "PHB", "NODE", "SYS")


@given(texts, counts)
def test_a_topology_is_read_or_unavailable_but_never_empty(text, cpu_count):
    read = parse_topology(text, cpu_count)
    assert (read.status is Status.UNAVAILABLE) == (not read.rows) == (not read.devices)
    assert set(read.links) == {(row, column) for row in read.rows for column in read.devices if row != column}
    for placement in read.placements.values():
        ranges = read_id_list(placement.cpus) if placement.cpus is not None else ()
        assert cpu_count is None or all(one.stop <= cpu_count for one in ranges)
    assert all(problem.line is not None for problem in (*read.problems, *read.suspects))
    links_of_set(read.gpus, read.links)
    disagreements([claims_of_topology(read)])


@given(texts)
def test_peer_access_is_claimed_only_where_both_rows_say_so(text):
    read = parse_peer_access(text, "rw")
    assert (read.status is Status.UNAVAILABLE) == (not read.rows)
    for a, b in combinations(read.gpus, 2):
        says_ok = read.labels.get((a, b)) == read.labels.get((b, a)) == "OK"
        assert (read.claimed(a, b) is True) == says_ok


@given(texts)
def test_the_other_parsers_raise_on_no_text(text):
    versions = parse_versions(text)
    for version in (versions.driver, versions.cuda, versions.nvml, versions.smi):
        assert version is None or version.replace(".", "").isdecimal()
    assert (versions.driver is None) or versions.said == ""
    assert (parse_listing(text).status is Status.UNAVAILABLE) == (not parse_listing(text).gpus)
    parse_details(text).find("GPU Power Readings", "Average Power Draw")
    for matrix in parse_transfers(text):
        matrix.worst_pair()
    for path in parse_graph(text).paths:
        link_of_path(path)
    node_name(text)
    read_link(text)


@given(texts)
def test_a_query_gives_a_number_nothing_or_a_problem(text):
    query = parse_query(text)
    for column in query.columns:
        numbers, problems = query.numbers(column)
        assert len(numbers) == len(query.rows)
        missing = sum(null_reason(row[query.columns.index(column)]) is not None for row in query.rows)
        assert numbers.count(None) == len(problems) + missing
        assert len(query.texts(column)) == len(query.rows)


@given(texts, st.sampled_from(["", "W", "%"]))
def test_a_number_is_read_or_refused(text, unit):
    try:
        number = read_number(text, unit)
    except ValueError:
        assert null_reason(text) is None
    else:
        assert (number is None) == (null_reason(text) is not None)


@st.composite
def machines(draw):
    """Labels of every pair, CPU list, NUMA node of a made-up machine of at most six GPUs, and its CPU count."""
    gpus = [f"GPU{index}" for index in range(draw(st.integers(1, 6)))]
    labels = {pair: draw(st.sampled_from(LINK_LABELS)) for pair in combinations(gpus, 2)}
    half = draw(st.integers(1, 128))
    sockets = [f"0-{half - 1},{2 * half}-{3 * half - 1}", f"{half}-{2 * half - 1},{3 * half}-{4 * half - 1}"]
    nodes = [draw(st.integers(0, 1)) for _ in gpus]
    return gpus, labels, [sockets[node] for node in nodes], nodes, 4 * half


@given(machines(), st.sampled_from(["tabs", "spaces", "glued"]))
def test_what_is_printed_is_read_back_or_refused(machine, form):
    gpus, labels, cpus, nodes, cpu_count = machine
    lines = ["\t" + "\t".join(gpus) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"]
    for row, cpu, node in zip(gpus, cpus, nodes, strict=True):
        cells = [" X " if row == column else labels[min(row, column), max(row, column)] for column in gpus]
        lines.append("\t".join([row, *cells, cpu, str(node), "", "N/A"]))
    text = "\n".join(lines)
    if form == "spaces":
        text = text.expandtabs(8)
    elif form == "glued":
        head, *rows = text.split("\n")
        text = "\n".join([head, *(row.replace(" X ", "X").replace("\t", " ", 1).replace("\t", "") for row in rows)])
    read = parse_topology(text, cpu_count)
    right = {pair: label for pair, label in labels.items() if pair in read.links or pair[::-1] in read.links}
    assert {pair: read.link(*pair).label for pair in right} == right
    for gpu, placement in read.placements.items():
        index = gpus.index(gpu)
        assert placement.cpus in (None, cpus[index])
        assert placement.numa in (None, str(nodes[index]))
    if form != "glued":
        assert read.status is Status.READ
        assert [placement.cpus for placement in read.placements.values()] == cpus


@given(st.integers(0, 2000), st.integers(0, 2000), st.integers(0, 9))
def test_the_true_cut_is_among_the_cuts(first, more, node):
    text = f"{first}-{first + more}"
    assert (text, str(node)) in list(cuts(f"{text}{node}"))


@given(st.dictionaries(st.tuples(st.sampled_from("abc"), st.sampled_from("abc")), st.sampled_from(LINK_LABELS)))
def test_a_source_never_disagrees_with_its_own_repetition(labels):
    links = {pair: read_link(label) for pair, label in labels.items() if labels.get(pair[::-1], label) == label}
    claims = claims_of_links(SMI, links)
    assert disagreements([claims, claims]) == ()
